//! The silences of members between two events, in a histogram that forgets.

use base::Nanos;

/// Seconds after which half of the observations are forgotten, so that a change shows soon.
const HALF_LIFE: f64 = 1.0;
/// The same for the time without events: only a long time can tell how rare a rare event is.
const HALF_LIFE_OF_NOTHING: f64 = 60.0;
/// Upper end of the first bucket, in seconds. Each bucket ends at twice the end of the one before.
const FIRST: f64 = 100e-6;
/// The buckets reach up to 7 min; the last one takes longer gaps too.
const BUCKETS: usize = 23;

/// Events, by the gap before them.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    buckets: [Bucket; BUCKETS],
    /// Events since time last passed.
    fresh: [Bucket; BUCKETS],
    observed: Observed,
    /// The same time, forgotten more slowly.
    longer: Observed,
    /// The traffic of gaps up to the upper end of each bucket.
    up_to: [Traffic; BUCKETS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    events: f64,
    /// Sum of the gaps of these events, in seconds.
    silence: f64,
}

/// Observed time that is not forgotten yet, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Observed(f64);

/// Events per second, and the number of members that they come from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub(super) rate: f64,
    pub(super) members: f64,
}

impl Gaps {
    pub(super) fn event(&mut self, gap: Nanos) {
        let gap = gap.as_secs_f64();
        let bucket = &mut self.fresh[(position(gap).ceil() as usize).min(BUCKETS - 1)];
        bucket.events += 1.0;
        bucket.silence += gap;
    }

    /// Forgets by the time since the last call.
    pub(super) fn pass(&mut self, time: Nanos) {
        let time = time.as_secs_f64();
        self.longer.pass(time, HALF_LIFE_OF_NOTHING);
        let (kept, left) = self.observed.pass(time, HALF_LIFE);
        let mut sum = Traffic::default();
        for ((bucket, fresh), up_to) in self.buckets.iter_mut().zip(&mut self.fresh).zip(&mut self.up_to) {
            let fresh = std::mem::take(fresh);
            bucket.events = bucket.events * kept + fresh.events * left;
            bucket.silence = bucket.silence * kept + fresh.silence * left;
            sum.rate += bucket.events / self.observed.0.max(1e-9);
            sum.members += bucket.silence / self.observed.0.max(1e-9);
            *up_to = sum;
        }
    }

    /// The traffic of all members.
    pub(super) fn all(&self) -> Traffic {
        self.up_to[BUCKETS - 1]
    }

    /// The rate of a single event over the longer remembered time, per second.
    pub(super) fn rate_of_one(&self) -> f64 {
        1.0 / self.longer.0.max(1e-9)
    }

    /// The traffic of members with gaps below `gap` seconds. A member with gaps of g has 1/g events per
    /// second, so the gaps of its events within a second add up to one member.
    pub(super) fn below(&self, gap: f64) -> Traffic {
        let position = position(gap).min((BUCKETS - 1) as f64);
        let (here, next) = (self.up_to[position.floor() as usize], self.up_to[position.ceil() as usize]);
        let part = position.fract();
        Traffic {
            rate: here.rate + part * (next.rate - here.rate),
            members: here.members + part * (next.members - here.members),
        }
    }
}

impl Observed {
    /// Adds `time`. Returns the kept fraction of earlier observations, and the average kept fraction of
    /// observations within `time`.
    fn pass(&mut self, time: f64, half_life: f64) -> (f64, f64) {
        let kept = 0.5_f64.powf(time / half_life);
        let left = if time > 0.0 { (1.0 - kept) * half_life / std::f64::consts::LN_2 / time } else { 1.0 };
        self.0 = self.0 * kept + time * left;
        (kept, left)
    }
}

/// The position of a gap among the buckets: k at the upper end of bucket k.
fn position(gap: f64) -> f64 {
    (gap / FIRST).log2().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_follow_from_the_gaps_of_their_events() {
        // For 10 s, 50 members speak every 40 ms and 1000 members every 2 s.
        let mut gaps = Gaps::default();
        for _ in 0..100 {
            (0..125).for_each(|_| gaps.event(Nanos::from_millis(40)));
            (0..50).for_each(|_| gaps.event(Nanos::from_secs(2)));
            gaps.pass(Nanos::from_millis(100));
        }
        let near = |traffic: Traffic, rate: f64, members: f64| {
            assert!((traffic.rate / rate - 1.0).abs() < 1e-6, "{traffic:?}");
            assert!((traffic.members / members - 1.0).abs() < 1e-6, "{traffic:?}");
        };
        near(gaps.below(0.1), 1250.0, 50.0);
        near(gaps.below(1000.0), 1750.0, 1050.0);
        assert_eq!(gaps.below(0.01), Traffic::default());
    }

    #[test]
    fn old_gaps_are_forgotten_and_new_ones_seen_soon() {
        let mut gaps = Gaps::default();
        (0..1000).for_each(|_| gaps.event(Nanos::from_millis(1)));
        gaps.pass(Nanos::SECOND);
        let before = gaps.below(1.0).rate;
        gaps.pass(Nanos::from_secs(30));
        assert!((before - 1000.0).abs() < 1e-6);
        assert!(gaps.below(1.0).rate < 1.0 && gaps.rate_of_one() < 1.0);
        (0..2000).for_each(|_| gaps.event(Nanos::from_secs(10)));
        gaps.pass(Nanos::from_secs(2));
        assert!((gaps.all().rate - 750.0).abs() < 1.0, "three quarters of 1000 a second: {:?}", gaps.all());
    }

    #[test]
    fn event_rarity_grows_with_silence_up_to_memory() {
        let mut gaps = Gaps::default();
        gaps.pass(Nanos::from_secs(10));
        let soon = gaps.rate_of_one();
        gaps.pass(Nanos::from_secs(3600));
        let late = gaps.rate_of_one();
        assert!(soon > 0.1 && soon < 0.11, "{soon}");
        assert!(late > 1.0 / 90.0 && late < 1.0 / 80.0, "{late}");
    }

    #[test]
    fn no_gap_is_too_short_or_too_long() {
        let mut gaps = Gaps::default();
        [Nanos::ZERO, Nanos(1), Nanos::MAX].into_iter().for_each(|gap| gaps.event(gap));
        gaps.pass(Nanos::SECOND);
        assert!((gaps.all().rate - 3.0).abs() < 1e-6);
        assert!(Gaps::default().below(1.0) == Traffic::default());
    }
}
