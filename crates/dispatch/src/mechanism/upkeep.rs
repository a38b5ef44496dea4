//! The upkeep of the FDM paper's server on real-time signals (5.2, 5.3): once in several fetches it rearranges the array
//! for poll and looks through the time stamps of all connections.
//!
//! Owns the count of fetches and the time stamps. The array belongs to the mechanism that recovers from overflows.
//!
//! The paper does not say how many fetches "several" are, so they are a setting. Both passes cost by the number of
//! connections, idle ones too, which real-time signals themselves do not. Connections that were quiet for too long
//! stay open, as in the paper. Without the setting there is no upkeep.

use std::hint::black_box;
use std::os::fd::RawFd;

use base::Nanos;
use base::setting::{Declaration, Setting, number_in};

/// The time without an announcement after which a connection counts as quiet. The paper gives none.
const QUIET: Nanos = Nanos::from_secs(15);

/// The setting for the fetches from one round of upkeep to the next.
pub(super) static UPKEEP: Setting<usize> = Setting::parsed_by(
    Declaration {
        flag: "--rt-upkeep",
        value: "FETCHES",
        help: "after so many fetches of signals rearrange the array for poll and read the time stamps of all \
               connections, as the server of the FDM paper does [default: never]",
        more: None,
        without: "has no queue of signals",
        in_kernel: None,
    },
    |text| number_in(1..=1_000_000, text),
);

/// The rounds of upkeep.
pub(super) struct Upkeep {
    /// Fetches from one round to the next.
    every: usize,
    /// Fetches since the last round.
    fetches: usize,
    /// The time of each descriptor's last announcement, by descriptor number.
    stamps: Vec<Nanos>,
}

impl Upkeep {
    /// A round after every so many fetches.
    pub(super) fn every(fetches: usize) -> Upkeep {
        Upkeep { every: fetches, fetches: 0, stamps: Vec::new() }
    }

    /// Notes a fetch from the queue.
    pub(super) fn fetched(&mut self) {
        self.fetches += 1;
    }

    /// Notes an announcement of a descriptor.
    pub(super) fn stamp(&mut self, fd: RawFd, now: Nanos) {
        let index = fd as usize;
        if index >= self.stamps.len() {
            self.stamps.resize(index + 1, Nanos::ZERO);
        }
        self.stamps[index] = now;
    }

    /// Looks through the stamps if a round is due. Returns true if the array is to be rearranged with it.
    pub(super) fn round(&mut self, now: Nanos) -> bool {
        let due = self.fetches >= self.every;
        if due {
            self.fetches = 0;
            black_box(self.quiet(now));
        }
        due
    }

    /// The number of descriptors that were quiet for too long.
    fn quiet(&self, now: Nanos) -> usize {
        self.stamps.iter().filter(|stamp| now.saturating_sub(**stamp) > QUIET).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_is_due_once_in_so_many_fetches() {
        let mut upkeep = Upkeep::every(3);
        let rounds: Vec<bool> = (0..7)
            .map(|_| {
                upkeep.fetched();
                upkeep.round(Nanos::SECOND)
            })
            .collect();
        assert_eq!(rounds, [false, false, true, false, false, true, false]);
    }

    #[test]
    fn descriptor_is_quiet_after_its_last_stamp() {
        let mut upkeep = Upkeep::every(1);
        for fd in 0..3 {
            upkeep.stamp(fd, Nanos::SECOND);
        }
        upkeep.stamp(1, Nanos::SECOND * 2);
        assert_eq!(upkeep.quiet(Nanos::SECOND + QUIET), 0);
        assert_eq!(upkeep.quiet(Nanos::SECOND * 2 + QUIET), 2);
    }
}
