use super::*;
use crate::locality::sets::Member;

const NAP: Nanos = Nanos::from_micros(500);
const START: Nanos = Nanos::SECOND;

fn tuning(live_counter: u32, sleep_threshold: u32, longest: Nanos) -> Tuning {
    Tuning { live_counter, sleep_threshold, longest, horizon: Nanos::ZERO }
}

/// Sets and their schedule, which starts at [`START`].
fn start(count: usize, tuning: Tuning) -> (Sets, Schedule) {
    (Sets::new(count, tuning.live_counter), Schedule::new(tuning, NAP, START))
}

/// Makes a call that finds nothing. Returns the number of calls it counts as.
fn call(sets: &mut Sets, schedule: &Schedule, polled: usize, took: Nanos, longest: Nanos) -> u64 {
    let calls = schedule.counts_as(took, longest);
    sets.apply_rules((polled, calls, START), |_| 0, |_, _, _, _| ());
    calls
}

/// The steps of consecutive waits in which no event comes and every nap runs to its end.
fn empty_waits(count: usize, tuning: Tuning, waits: usize) -> Vec<Next> {
    let (mut sets, mut schedule) = start(count, tuning);
    let mut now = START;
    let one = |_| {
        let next = schedule.next(&sets, now);
        let (polled, longest) = match next {
            Next::Look(sets) => (sets, Nanos::ZERO),
            Next::Nap(longest) => (1, longest),
            Next::Sleep => return next,
        };
        // A poll ends a little late.
        let took = longest + Nanos(700);
        now += took;
        let calls = call(&mut sets, &schedule, polled, took, longest);
        if polled == count {
            schedule.all_polled(now);
        }
        schedule.found(calls, false);
        next
    };
    (0..waits).map(one).collect()
}

#[test]
fn naps_fill_gaps_until_the_sleep_threshold() {
    use Next::{Look, Nap, Sleep};
    let waits = empty_waits(3, tuning(3, 10, Nanos::MAX), 8);
    assert_eq!(waits, [Nap(NAP * 2), Look(2), Nap(NAP * 2), Look(2), Nap(NAP * 2), Look(3), Nap(NAP), Sleep]);
    let waits = empty_waits(3, tuning(1000, 100, Nanos::MAX), 2);
    assert_eq!(waits, [Nap(NAP * 100), Sleep], "no nap goes past the threshold");
    assert_eq!(
        empty_waits(1, tuning(3, 7, Nanos::MAX), 2),
        [Nap(NAP * 7), Sleep],
        "one set is never looked at"
    );
    assert_eq!(empty_waits(3, tuning(3, 0, Nanos::MAX), 1), [Sleep]);
}

#[test]
fn no_set_waits_longer_than_the_longest_time() {
    use Next::{Look, Nap};
    let waits = empty_waits(3, tuning(1000, 1000, NAP * 3), 4);
    assert_eq!(waits[..2], [Nap(NAP * 3), Look(3)]);
    assert_eq!(waits[2..], waits[..2]);
}

#[test]
fn poll_just_before_the_longest_gap_covers_all_sets() {
    use Next::{Look, Nap};
    let waits = |longest| empty_waits(3, Tuning { horizon: NAP * 10, ..tuning(10, 1000, longest) }, 6);
    let looks = |sets: [usize; 3]| sets.map(|sets| [Nap(NAP * 9), Look(sets)]).concat();
    assert_eq!(waits(NAP * 12), looks([3, 3, 3]));
    assert_eq!(waits(NAP * 20), looks([2, 3, 2]));
    assert_eq!(waits(NAP * 28), looks([2, 2, 3]));
}

#[test]
fn nap_counts_its_calls_and_event_resets_the_count() {
    let (mut sets, mut schedule) = start(3, tuning(10, 100, Nanos::MAX));
    assert_eq!(schedule.next(&sets, START), Next::Nap(NAP * 9));
    assert_eq!(call(&mut sets, &schedule, 1, Nanos::ZERO, NAP * 9), 1, "it was ready");
    assert_eq!(schedule.next(&sets, START), Next::Nap(NAP * 8));
    assert_eq!(call(&mut sets, &schedule, 1, NAP * 3 + Nanos(1), NAP * 8), 4);
    assert_eq!(schedule.next(&sets, START), Next::Nap(NAP * 4));
    assert_eq!(call(&mut sets, &schedule, 1, NAP * 40, NAP * 4), 4, "a late wake-up is not counted as a nap");
    assert_eq!(schedule.next(&sets, START), Next::Look(2));
    let calls = call(&mut sets, &schedule, 2, NAP * 40, Nanos::ZERO);
    assert_eq!(calls, 1, "a look is a call, however long it takes");
    schedule.found(99, false);
    assert_eq!(schedule.next(&sets, START), Next::Nap(NAP));
    schedule.found(1, false);
    assert_eq!(schedule.next(&sets, START), Next::Sleep);
    schedule.found(1, true);
    assert_eq!(schedule.next(&sets, START), Next::Nap(NAP * 9));
}

#[test]
fn without_naps_it_spins() {
    let mut sets = Sets::new(3, 3);
    sets.insert(7, 1, Member::new(0, false, START));
    let schedule = Schedule::new(tuning(3, 100, Nanos::MAX), Nanos::ZERO, START);
    assert_eq!(schedule.next(&sets, START), Next::Nap(Nanos::ZERO));
    assert_eq!(schedule.counts_as(Nanos::SECOND, Nanos::ZERO), 1);
}
