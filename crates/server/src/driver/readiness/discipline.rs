//! In which order a loop accepts and works: the two disciplines that Brecht 2004 compares.
//!
//! ```text
//!   ByPhases (userver, 3.1)                     UntilEmpty (TUX, 3.3)
//!
//!   get events                                  get events ──> head
//!   accept: they wait for the next round        accept, if nothing is pending ──> head
//!   work: what *this* get-events reported       work: a batch from the head of
//!   again                                             the work-pending list; again
//! ```
//!
//! Under `UntilEmpty` a get-events that does not wait comes between two batches, so that what arrives
//! meanwhile is worked on before what is older, and accepting waits until nothing is left.
//!
//! Invariant: a connection is in the work-pending list at most once, and while it lives its
//! [`Peer::pending`] says so.
//!
//! [`Peer::pending`]: super::peer::Peer::pending

use base::Key;
use dispatch::{Mechanism, Token};

use super::{ReadinessLoop, SocketService};

/// The fewest connections worked on between two get-events. TUX is told by the kernel's callbacks as things
/// happen; a system call after each item would cost a third of serving it from memory.
const ITEMS_PER_BATCH: usize = 16;

/// The order of accepting and working, chosen at compile time.
pub trait Discipline {
    /// Whether work goes on until nothing is pending, latest first, before anything is accepted.
    const UNTIL_EMPTY: bool;
}

/// Accept, then work on what the last get-events reported.
pub struct ByPhases;

impl Discipline for ByPhases {
    const UNTIL_EMPTY: bool = false;
}

/// Accept, then work until nothing is pending.
pub struct UntilEmpty;

impl Discipline for UntilEmpty {
    const UNTIL_EMPTY: bool = true;
}

impl<M: Mechanism, S: SocketService, D: Discipline> ReadinessLoop<M, S, D> {
    /// Enters what the last get-events reported, and what its last turn left unfinished.
    pub(super) fn pend_reported(&mut self) {
        for token in std::mem::take(&mut self.unfinished) {
            self.pend(token);
        }
        for index in 0..self.events.len() {
            self.pend(self.events[index].token);
        }
    }

    /// Enters a connection at the head of the work-pending list, if it is not in it.
    pub(super) fn pend(&mut self, token: Token) {
        match self.peers.get_mut(Key::from(token)) {
            Some(peer) if !peer.pending => {
                peer.pending = true;
                self.pending.push(token);
            }
            Some(_) => {}
            None => self.counts.stale_events += 1,
        }
    }

    /// Works on a batch from the head of the list. The longer the list, the larger the batch: under level
    /// triggering a get-events reports once more whatever is pending.
    pub(super) fn work_on_pending(&mut self) {
        let batch = ITEMS_PER_BATCH.max(self.pending.len() / 4);
        for _ in 0..batch {
            let Some(token) = self.pending.pop() else { return };
            // A deadline may have ended it while it was pending.
            let Some(peer) = self.peers.get_mut(Key::from(token)) else { continue };
            peer.pending = false;
            self.turn(token, true);
        }
    }
}
