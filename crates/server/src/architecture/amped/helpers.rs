//! The main process's side of the helpers: starts them, hands out errands, and receives notices.
//!
//! Only starting a process blocks, at the beginning and in place of a helper that died.

use std::io;
use std::os::fd::OwnedFd;

use base::{Clock, Nanos};
use dispatch::Token;

use super::errands::Errands;
use super::need::{Need, read_notice};
use crate::ground::counters::HelperCounts;
use crate::processes::{Event, Fleet, Sent};

/// Time for helpers to end. No connection waits for their last fetches.
const PATIENCE: Nanos = Nanos::SECOND;

/// Time until another try, after the kernel had no room for an errand's message.
const RETRY_AFTER: Nanos = Nanos::from_millis(1);

/// The helper processes.
pub struct Helpers {
    /// The counters so far.
    pub counts: HelperCounts,
    fleet: Fleet,
    errands: Errands,
    /// An errand could not be sent, and no notice may follow.
    retry_at: Option<Nanos>,
}

impl Helpers {
    /// Starts a helper in each place of the fleet. The calling thread must live as long as they do.
    ///
    /// # Errors
    /// No process or descriptor is left.
    pub fn start(mut fleet: Fleet) -> io::Result<Helpers> {
        for place in 0..fleet.places() {
            fleet.start(place).map_err(io::Error::other)?;
        }
        let errands = Errands::new(fleet.places());
        Ok(Helpers { counts: HelperCounts::default(), fleet, errands, retry_at: None })
    }

    /// A descriptor that is readable when [`Helpers::handle_arrivals`] has something to do.
    ///
    /// # Errors
    /// EMFILE.
    pub fn ready(&self) -> io::Result<OwnedFd> {
        self.fleet.ready().try_clone_to_owned()
    }

    /// Time until [`Helpers::handle_arrivals`] must be called, even if the descriptor is not ready.
    pub fn due_in(&self) -> Option<Nanos> {
        let due = [self.fleet.due(), self.retry_at].into_iter().flatten().min()?;
        Some(due.saturating_sub(self.fleet.clock().now()))
    }

    /// True if a fetch of the need can help.
    pub fn can_help(&self, need: &Need) -> bool {
        self.errands.has_a_point(need)
    }

    /// Requests a fetch for a connection that waits for it.
    pub fn fetch(&mut self, need: Need, waiter: Token) {
        self.counts.helper_waits += 1;
        if self.errands.add(need, waiter) {
            self.counts.helper_fetches += 1;
            self.hand_out();
        }
    }

    /// Reads the notices of the helpers, and appends the connections whose fetch is done. Blocks only to
    /// start a process.
    ///
    /// # Errors
    /// Waiting fails only by a mistake of ours.
    pub fn handle_arrivals(&mut self, arrived: &mut Vec<Token>) -> io::Result<()> {
        self.errands.forget_fetched();
        let mut events = Vec::new();
        self.fleet.handle_events(&mut events)?;
        for event in events {
            match event {
                Event::Said(place, message) => {
                    let id = read_notice(&message.bytes).ok_or(io::ErrorKind::InvalidData)?;
                    arrived.append(&mut self.errands.finish(place, id));
                }
                Event::Died(place) | Event::Ended(place) => {
                    self.counts.helper_fetches_repeated += u64::from(self.errands.take_back(place));
                }
                Event::Started(_) => {}
            }
        }
        self.hand_out();
        Ok(())
    }

    /// Gives queued errands to free helpers.
    fn hand_out(&mut self) {
        self.retry_at = None;
        for place in 0..self.fleet.places() {
            if !self.fleet.runs(place) || !self.errands.is_free(place) {
                continue;
            }
            let Some((id, need)) = self.errands.first() else { return };
            let (bytes, file) = need.message(id);
            match self.fleet.send(place, &bytes, file.as_slice()) {
                Ok(Sent::Yes) => self.errands.give(place),
                // Its death is reported, and the errand then continues.
                Ok(Sent::Gone) => {}
                Ok(Sent::Full) | Err(_) => self.retry_at = Some(self.fleet.clock().now() + RETRY_AFTER),
            }
        }
    }

    /// Ends all helpers. Blocks.
    ///
    /// # Errors
    /// Waiting fails only by a mistake of ours.
    pub fn end(&mut self) -> io::Result<()> {
        self.fleet.end(PATIENCE, drop)
    }
}
