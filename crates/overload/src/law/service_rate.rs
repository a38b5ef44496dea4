//! The rate at which connections leave the accept queue while connections wait in it.
//!
//! The rate is a ratio of sums instead of a mean of rates, because a tick of a slow server holds two or three
//! connections. The sums decay with the measured time, and slowly with all time, so that a new measurement
//! replaces an old one.

/// The slowest rate of a server, in connections per second. The wait of a server that stands still is
/// unknown, not infinite.
const SLOWEST: f64 = 0.1;

/// The measured service rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceRate {
    taken: f64,
    seconds: f64,
    per_second: Option<f64>,
    /// The highest recent rate.
    peak: f64,
    /// Seconds since the last measurement.
    age: f64,
}

impl ServiceRate {
    /// Counts a tick in which `taken` connections left the queue. `saturated` means that the queue was never
    /// empty. The rate is measured over `memory` seconds, and a measurement fades in `fade` seconds.
    pub fn tick(&mut self, taken: f64, seconds: f64, saturated: bool, memory: f64, fade: f64) {
        self.age += seconds;
        self.peak *= (-seconds / fade).exp();
        self.decay(seconds, fade);
        // An unsaturated tick shows a lower bound: the server may have become faster.
        if !saturated && self.per_second.is_none_or(|rate| taken <= rate * seconds) {
            return;
        }
        self.decay(seconds, memory);
        self.taken += taken;
        self.seconds += seconds;
        let rate = (self.taken / self.seconds).max(SLOWEST);
        self.per_second = Some(rate);
        self.peak = self.peak.max(rate);
        self.age = 0.0;
    }

    /// The rate; `None` before the first measurement.
    pub fn per_second(&self) -> Option<f64> {
        self.per_second
    }

    /// The highest recent rate; `None` if the last measurement is older than `oldest` seconds.
    pub fn peak(&self, oldest: f64) -> Option<f64> {
        (self.per_second.is_some() && self.age < oldest).then_some(self.peak)
    }

    fn decay(&mut self, seconds: f64, over: f64) {
        let keep = (-seconds / over).exp();
        self.taken *= keep;
        self.seconds *= keep;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts 100 ticks of 5 ms.
    fn ticks(rate: &mut ServiceRate, taken: f64, saturated: bool) {
        (0..100).for_each(|_| rate.tick(taken, 0.005, saturated, 0.02, 1.0));
    }

    #[test]
    fn idle_server_keeps_its_service_rate() {
        let mut rate = ServiceRate::default();
        ticks(&mut rate, 50.0, false);
        assert_eq!(rate.per_second(), None);
        ticks(&mut rate, 140.0, true);
        assert!((rate.per_second().unwrap() - 28_000.0).abs() < 1.0);
        ticks(&mut rate, 0.0, false);
        assert!((rate.per_second().unwrap() - 28_000.0).abs() < 1.0);
        (0..10).for_each(|_| ticks(&mut rate, 0.0, false));
        assert_eq!(rate.peak(1.0), None, "but how far back that was is known");
    }

    #[test]
    fn a_change_by_half_is_seen_within_a_few_memories() {
        let mut rate = ServiceRate::default();
        ticks(&mut rate, 140.0, true);
        (0..12).for_each(|_| rate.tick(70.0, 0.005, true, 0.02, 1.0));
        assert!(rate.per_second().unwrap() < 15_000.0, "{rate:?}");
        assert!(rate.peak(1.0).unwrap() > 25_000.0, "a stall does not lower the peak: {rate:?}");
    }

    #[test]
    fn faster_server_is_seen_with_an_empty_queue() {
        let mut rate = ServiceRate::default();
        ticks(&mut rate, 70.0, true);
        ticks(&mut rate, 140.0, false);
        assert!(rate.per_second().unwrap() > 27_000.0, "{rate:?}");
        ticks(&mut rate, 20.0, false);
        assert!(rate.per_second().unwrap() > 27_000.0, "and fewer arrivals do not make it slower: {rate:?}");
    }

    #[test]
    fn a_server_that_stands_still_has_a_rate_to_divide_by() {
        let mut rate = ServiceRate::default();
        (0..100).for_each(|_| ticks(&mut rate, 0.0, true));
        assert!(rate.per_second().unwrap() >= SLOWEST);
    }
}
