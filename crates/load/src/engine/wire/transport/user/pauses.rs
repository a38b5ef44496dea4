//! The pauses between the turns of a client in user space, as a network card moderates its interrupts.
//!
//! A wake-up costs as much as several packets: the client's own timer, and an interrupt of the server's processor for
//! each small batch. So a busy client lets packets gather:
//!
//! ```text
//!   time from one turn to the next
//!   160 us              ┌────────
//!                      ╱
//!    20 us  ──────────┘
//!           0        1/6 1/4     share of the time that turns take
//! ```
//!
//! At a low load a reply is at most 20 us late. A client without packets wakes up for the first one at once.
//!
//! Owns the measured load. Leaves out the wait itself, and ends of it that are due earlier.

use base::Nanos;

/// The time from one turn to the next at a low and at a high load.
const SHORT: Nanos = Nanos::from_micros(20);
const LONG: Nanos = Nanos::from_micros(160);

/// The shares of the time up to which the load is low, and from which it is high.
const LOW: f64 = 1.0 / 6.0;
const HIGH: f64 = 1.0 / 4.0;

/// The time over which the load is measured.
const MEMORY: Nanos = Nanos::MILLISECOND;

/// The pauses of one client.
#[derive(Default)]
pub struct Pauses {
    /// The beginning of the current turn.
    woken: Nanos,
    /// The length of the last turn.
    turn: Nanos,
    /// The share of the time that turns take.
    load: f64,
}

impl Pauses {
    /// Notes the end of a wait.
    pub fn woken(&mut self, now: Nanos) {
        let period = now.saturating_sub(self.woken).as_secs_f64();
        self.woken = now;
        if period > 0.0 {
            let weight = (period / MEMORY.as_secs_f64()).min(1.0);
            self.load += weight * (self.turn.as_secs_f64() / period - self.load);
        }
    }

    /// Notes the end of a turn. Returns the pause after it if it had packets.
    pub fn after(&mut self, now: Nanos) -> Nanos {
        self.turn = now.saturating_sub(self.woken);
        let height = ((self.load - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
        let between = Nanos::from_secs_f64((LONG - SHORT).as_secs_f64() * height);
        (SHORT + between).saturating_sub(self.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time from one turn to the next of a client whose turns take this share of the time.
    fn settled_period(share: f64) -> Nanos {
        let (mut pauses, mut now, mut next) = (Pauses::default(), Nanos::ZERO, SHORT);
        for _ in 0..1000 {
            pauses.woken(now);
            let turn = Nanos::from_secs_f64(next.as_secs_f64() * share);
            next = pauses.after(now + turn) + turn;
            now += next;
        }
        next
    }

    #[test]
    fn the_busier_the_client_the_more_packets_gather() {
        assert_eq!([0.0, 0.05, 0.15].map(settled_period), [SHORT; 3]);
        assert_eq!([0.3, 0.6].map(settled_period), [LONG; 2]);
        let between = settled_period(0.2);
        assert!(between > SHORT * 2 && between < LONG / 2, "{between}");
    }

    #[test]
    fn a_turn_that_takes_as_long_is_followed_by_no_pause() {
        let mut pauses = Pauses::default();
        pauses.woken(Nanos::from_micros(100));
        assert_eq!(pauses.after(Nanos::from_micros(105)), Nanos::from_micros(15));
        assert_eq!(pauses.after(Nanos::from_micros(130)), Nanos::ZERO);
    }

    #[test]
    fn a_long_wait_makes_the_load_low_again() {
        let mut pauses = Pauses { load: 1.0, ..Pauses::default() };
        assert_eq!(pauses.after(Nanos::ZERO), LONG);
        pauses.woken(Nanos::MILLISECOND);
        assert_eq!(pauses.after(Nanos::MILLISECOND), SHORT);
    }
}
