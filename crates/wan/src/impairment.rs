//! One direction of a path as a state machine. A packet goes in with the current time, and comes out with the
//! time at which it is due. No clock, no I/O; a packet may be any value.
//!
//! A packet passes three stages, as in a real network:
//!
//! ```text
//!   offer ──> lost? ──> bottleneck ──> propagation ──────────────> take_due
//!               │        a queue of      delay, uniform within ± jitter, never before
//!               │        bytes, sent     the packet in front; or, for the share that is
//!               │        one by one      reordered, no delay at all
//!               v            v
//!             lost       queue full, too many on their way
//! ```
//!
//! Invariants:
//! - received = forwarded + lost + queue full + too many + on their way, at any time (`Counts`).
//! - A packet that is not reordered comes out after every such packet offered before it, so jitter alone
//!   changes no order. Packets that follow each other more closely than the jitter is wide are delayed to
//!   keep the order. Their mean delay exceeds the configured one.
//! - A packet is due no earlier than its arrival + the time the bottleneck takes for it + delay - jitter.
//! - The bottleneck keeps its rate exactly: fractions of a nanosecond are carried over.
//! - Losses depend only on the seed and the order of packets, and so do jitter and reordering. A change of
//!   one of the three leaves the other two unchanged.
//!
//! The paper (Banga 1997, section 4.1) asks for a router that delays packets and leaves the rest
//! open.

use std::collections::VecDeque;

use base::{Nanos, Rng, Seed};
use rand::RngExt;

use crate::conditions::{Bottleneck, Conditions};
use crate::units::Share;

/// The most packets of one direction on their way at once: 400,000/s for a quarter of a second, in 150 MB.
/// Netem's default of 1000 is a frequent trap for its users.
pub const MOST_ON_THEIR_WAY: usize = 100_000;

base::counts! {
    /// The packets of one direction, by their fate.
    pub struct Counts {
        /// Packets offered.
        received,
        /// Packets taken out when they were due.
        forwarded,
        /// Packets lost by the configured loss.
        lost,
        /// Packets dropped because the bottleneck's queue was full.
        queue_full,
        /// Packets dropped because [`MOST_ON_THEIR_WAY`] were on their way.
        too_many,
        /// Packets sent ahead without the delay; they also count as forwarded.
        reordered,
    }
}

/// A packet and the time at which it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due<P> {
    /// The time at which the packet comes out.
    pub at: Nanos,
    /// The packet.
    pub packet: P,
}

/// One direction of a path.
pub struct Impairment<P> {
    conditions: Conditions,
    link: Link,
    /// Packets in order, sorted by due time: each waits for the one before it.
    in_order: VecDeque<Due<P>>,
    /// Reordered packets, sorted by due time: they leave the bottleneck one after the other.
    ahead: VecDeque<Due<P>>,
    /// The due time of the last packet in order, even if it has left.
    last_due: Nanos,
    losses: Rng,
    jitters: Rng,
    reorderings: Rng,
    counts: Counts,
}

/// The sending side of the bottleneck.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// The time at which all accepted packets are sent.
    free_at: Nanos,
    /// The rounding error of `free_at`, in nanoseconds times the rate; below the rate.
    remainder: u64,
}

impl Link {
    /// The time at which a packet of `length` bytes will be sent; `None` if the queue has no room. An idle
    /// link takes any packet.
    fn send(&mut self, now: Nanos, length: usize, bottleneck: Bottleneck) -> Option<Nanos> {
        let rate = u128::from(bottleneck.rate.bits_per_second());
        let busy = self.free_at.saturating_sub(now);
        // Both sides are bits times 10^9, so that nothing is rounded.
        let waiting = u128::from(busy.0) * rate;
        let bits = length as u128 * 8 * u128::from(Nanos::SECOND.0);
        let room = u128::from(bottleneck.queue.0) * 8 * u128::from(Nanos::SECOND.0);
        if busy > Nanos::ZERO && waiting + bits > room {
            return None;
        }
        if busy == Nanos::ZERO {
            *self = Link { free_at: now, remainder: 0 };
        }
        let exact = bits + u128::from(self.remainder);
        self.remainder = (exact % rate) as u64;
        self.free_at = self.free_at.saturating_add(Nanos(u64::try_from(exact / rate).unwrap_or(u64::MAX)));
        Some(self.free_at)
    }
}

impl<P> Impairment<P> {
    /// A direction without packets on their way. Equal seeds treat equal packets equally.
    pub fn new(conditions: Conditions, seed: Seed) -> Impairment<P> {
        Impairment {
            conditions,
            link: Link::default(),
            in_order: VecDeque::new(),
            ahead: VecDeque::new(),
            last_due: Nanos::ZERO,
            losses: seed.child("losses").rng(),
            jitters: seed.child("jitter").rng(),
            reorderings: seed.child("reordering").rng(),
            counts: Counts::default(),
        }
    }

    /// Takes in a packet of `length` bytes; `now` never decreases. Returns the packet if it is lost or
    /// dropped.
    pub fn offer(&mut self, now: Nanos, length: usize, packet: P) -> Option<P> {
        self.counts.received += 1;
        // Every packet takes its draws, whatever becomes of it: so one condition does not shift another's.
        let lost = happens(self.conditions.loss, &mut self.losses);
        let reordered = happens(self.conditions.reorder, &mut self.reorderings);
        let propagation = self.propagation();
        if lost {
            self.counts.lost += 1;
            return Some(packet);
        }
        if self.on_their_way() >= MOST_ON_THEIR_WAY {
            self.counts.too_many += 1;
            return Some(packet);
        }
        let sent = match self.conditions.bottleneck {
            None => now,
            Some(bottleneck) => match self.link.send(now, length, bottleneck) {
                Some(sent) => sent,
                None => {
                    self.counts.queue_full += 1;
                    return Some(packet);
                }
            },
        };
        if reordered {
            self.counts.reordered += 1;
            self.ahead.push_back(Due { at: sent, packet });
        } else {
            self.last_due = sent.saturating_add(propagation).max(self.last_due);
            self.in_order.push_back(Due { at: self.last_due, packet });
        }
        None
    }

    fn propagation(&mut self) -> Nanos {
        let Conditions { delay, jitter, .. } = self.conditions;
        if jitter == Nanos::ZERO {
            return delay;
        }
        Nanos(self.jitters.random_range(delay.0 - jitter.0..=delay.0 + jitter.0))
    }

    /// The time at which the next packet is due; `None` without packets on their way.
    pub fn next_due(&self) -> Option<Nanos> {
        let fronts = [self.in_order.front(), self.ahead.front()];
        fronts.into_iter().flatten().map(|due| due.at).min()
    }

    /// Takes out the next packet if it is due.
    pub fn take_due(&mut self, now: Nanos) -> Option<Due<P>> {
        let next = self.next_due().filter(|at| *at <= now)?;
        let in_order = self.in_order.front().is_some_and(|due| due.at == next);
        let queue = if in_order { &mut self.in_order } else { &mut self.ahead };
        self.counts.forwarded += 1;
        queue.pop_front()
    }

    /// The number of packets on their way.
    pub fn on_their_way(&self) -> usize {
        self.in_order.len() + self.ahead.len()
    }

    /// The packets so far, by their fate.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

fn happens(share: Share, rng: &mut Rng) -> bool {
    share > Share::NONE && rng.random::<f64>() < share.probability()
}

#[cfg(test)]
mod tests;
