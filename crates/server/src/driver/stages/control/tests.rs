//! Tests the controllers with arbitrary sequences of events, and with a server that is too slow.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn pool_grows_by_one_within_its_bounds(
        most in 1_usize..30,
        threshold in 0_usize..50,
        steps in vec((0_usize..100, 0_u64..60, any::<bool>()), 1..200),
    ) {
        let mut controller = PoolController::new(threshold, most);
        let (mut threads, mut now, mut last) = (1, Nanos::ZERO, None::<Nanos>);
        for (queued, passes_ms, one_ends) in steps {
            now += Nanos::from_millis(passes_ms);
            if controller.grows(queued, threads, now) {
                prop_assert!(queued > threshold);
                prop_assert!(last.is_none_or(|last| now - last >= GROW_EVERY));
                last = Some(now);
                threads += 1;
            } else {
                let lately = last.is_some_and(|last| now - last < GROW_EVERY);
                prop_assert!(queued <= threshold || threads == most || lately);
            }
            prop_assert!(threads <= most);
            if one_ends && threads > 1 {
                threads -= 1;
            }
        }
    }

    #[test]
    fn no_more_is_admitted_than_the_rate_and_a_bucket(
        response_ms in 121_u64..10_000,
        steps_us in vec(0_u64..5_000, 1..2_000),
    ) {
        let mut controller = AdmissionController::new(Nanos::from_millis(100), Percentile::Anew);
        for number in 0..SAMPLE as u64 {
            prop_assert!(controller.admits(Nanos::from_millis(number)));
            controller.answered(Nanos::from_millis(response_ms), Nanos::from_millis(number));
        }
        let rate = controller.figures().rate_per_s.unwrap();
        let (begin, mut admitted) = (Nanos::SECOND, 0);
        let mut now = begin;
        for step_us in steps_us {
            now += Nanos::from_micros(step_us);
            admitted += u64::from(controller.admits(now));
        }
        prop_assert!(admitted as f64 <= depth(rate) + rate * (now - begin).as_secs_f64() + 1e-6);
    }

    #[test]
    fn the_rate_moves_as_the_smoothed_percentile_says(
        samples in vec(1_u64..400, 1..60),
        percentile in prop_oneof![Just(Percentile::Anew), Just(Percentile::Kept)],
    ) {
        let target = Nanos::from_millis(100);
        let mut controller = AdmissionController::new(target, percentile);
        let (mut now, mut smoothed, mut rate) = (Nanos::SECOND, None::<f64>, None::<f64>);
        // A sample has ten responses in a second instead of a hundred.
        for ms in samples {
            now += Nanos::SECOND;
            (0..9).for_each(|_| controller.answered(Nanos::from_millis(ms), now));
            now += Nanos::SECOND;
            controller.answered(Nanos::from_millis(ms), now);
            let sample = ms as f64 * 1e6;
            smoothed = Some(smoothed.map_or(sample, |past| PAST * past + (1.0 - PAST) * sample));
            let load = smoothed.unwrap() / target.0 as f64;
            if load > 1.2 {
                rate = Some((rate.unwrap_or(10.0) / 2.0).max(LEAST_PER_S));
                if percentile == Percentile::Anew {
                    smoothed = None;
                }
            } else if load < 0.9 {
                rate = rate.map(|rate| rate + 0.5);
            }
            prop_assert_eq!(controller.figures().rate_per_s, rate);
        }
    }
}

#[test]
fn the_percentile_is_the_ninetieth() {
    let mut controller = AdmissionController::new(Nanos::SECOND, Percentile::Anew);
    for number in 1..=100 {
        controller.answered(Nanos::from_millis(number), Nanos::from_millis(number));
    }
    assert_eq!(controller.figures().response_time_p90_s, 0.09);
    assert_eq!(controller.figures().rate_per_s, None, "nothing is limited while the target is met");
}

#[test]
fn few_slow_responses_and_pauses_keep_the_rate() {
    let hours = |hours: u64| Nanos::from_secs(hours * 3600);
    let mut controller = AdmissionController::new(Nanos::from_millis(100), Percentile::Anew);
    (0..100).for_each(|_| controller.answered(Nanos::MILLISECOND, Nanos::SECOND));
    for hour in 1..5 {
        controller.answered(Nanos::SECOND, hours(hour));
    }
    assert_eq!(controller.figures().rate_per_s, None);
    (0..39).for_each(|_| controller.answered(Nanos::SECOND, hours(5)));
    controller.answered(Nanos::SECOND, hours(6));
    assert_eq!(controller.figures().rate_per_s, Some(20.0), "half of forty in a second");
}

/// A server that answers `CAPACITY` requests a second in order, offered twice that rate.
///
/// Every hundred responses raise the rate by 0.5 a second, so it grows by a factor of e in 200 s. At 1.03 times the
/// capacity it halves, and halves again because the queue outlasts the first halving. A cycle takes `200 ln 4` seconds, and
/// the mean rate in it is `1.03 (1 - 1/4) / ln 4` of the capacity.
#[test]
fn twice_the_capacity_keeps_queue_bounded_server_busy() {
    const CAPACITY: u64 = 1000;
    const UNTIL_S: u64 = 1000;
    /// The start of the last two whole cycles.
    const FROM_S: u64 = UNTIL_S - 554;
    let target = Nanos::from_millis(100);
    let mut controller = AdmissionController::new(target, Percentile::Anew);
    let service = Nanos::SECOND / CAPACITY;
    let (mut free_at, mut pending) = (Nanos::ZERO, std::collections::VecDeque::new());
    let (mut answered_late, mut worst) = (0_u32, Nanos::ZERO);
    for number in 0..2 * CAPACITY * UNTIL_S {
        let now = Nanos::SECOND + Nanos(number * (Nanos::SECOND.0 / (2 * CAPACITY)));
        while pending.front().is_some_and(|(_, done)| *done <= now) {
            let (came, done): (Nanos, Nanos) = pending.pop_front().unwrap();
            controller.answered(done - came, done);
            if number > 2 * CAPACITY * FROM_S {
                answered_late += 1;
                worst = worst.max(done - came);
            }
        }
        if controller.admits(now) {
            free_at = free_at.max(now) + service;
            pending.push_back((now, free_at));
        }
    }
    let share = f64::from(answered_late) / (CAPACITY * (UNTIL_S - FROM_S)) as f64;
    let expected = 1.03 * 0.75 / 4_f64.ln();
    assert!((share - expected).abs() < 0.02, "{share} of the capacity, expected {expected}");
    // The queue grows until a sample shows a response time above 1.2 times the target.
    assert!((target * 6 / 5..target * 3 / 2).contains(&worst), "{worst}");
}
