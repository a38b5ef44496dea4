//! The dead man's switch of an agent: load is offered only while the coordinator's beats arrive.
//!
//! The engine threads ask the switch themselves, at least every 50 ms, so it works although NATS or this
//! process's own runtime hangs. A beat counts from the time it was *sent*: one that waited in a buffer is old.
//! Once the switch has tripped it stays so for the run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Nanos;

/// The silence that ends the load. With the engines' 50 ms and a beat's interval it stays below 2 s.
pub(crate) const SILENCE_MAX: Nanos = Nanos::from_millis(1_500);

/// The switch.
pub(crate) struct Pulse {
    /// The time at which the last beat was sent, on this machine's clock.
    last_beat_ns: AtomicU64,
    /// The coordinator wants the load to end.
    ended: AtomicBool,
    /// The switch has tripped: the coordinator is silent, or counts on this agent no more.
    tripped: AtomicBool,
}

impl Pulse {
    /// A switch that has heard a beat now.
    pub fn new(now: Nanos) -> Pulse {
        Pulse {
            last_beat_ns: AtomicU64::new(now.0),
            ended: AtomicBool::new(false),
            tripped: AtomicBool::new(false),
        }
    }

    /// Takes a beat that was sent at `sent` on this machine's clock.
    pub fn beat(&self, sent: Nanos) {
        self.last_beat_ns.fetch_max(sent.0, Ordering::Relaxed);
    }

    /// Ends the load in order.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Ends the load because the coordinator goes on without this agent.
    pub fn trip(&self) {
        self.tripped.store(true, Ordering::Relaxed);
    }

    /// True once the switch has tripped.
    pub fn has_tripped(&self) -> bool {
        self.tripped.load(Ordering::Relaxed)
    }

    /// True if the load must end at this time.
    pub fn must_stop(&self, now: Nanos) -> bool {
        let last = Nanos(self.last_beat_ns.load(Ordering::Relaxed));
        if now.saturating_sub(last) > SILENCE_MAX {
            self.trip();
        }
        self.has_tripped() || self.ended.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_trips_the_switch_for_good() {
        let at = Nanos::from_secs;
        let pulse = Pulse::new(at(10));
        assert!(!pulse.must_stop(at(11)));
        pulse.beat(at(11));
        pulse.beat(at(9));
        assert!(!pulse.must_stop(at(12)), "an old beat does not turn time back");
        assert!(pulse.must_stop(at(11) + SILENCE_MAX + Nanos(1)));
        pulse.beat(at(13));
        assert!(pulse.must_stop(at(13)) && pulse.has_tripped());
    }

    #[test]
    fn an_end_in_order_is_no_fault() {
        let pulse = Pulse::new(Nanos::SECOND);
        pulse.end();
        assert!(pulse.must_stop(Nanos::SECOND) && !pulse.has_tripped());
    }
}
