//! The main process's side of the helpers: starts them, hands out errands, and hears what has been fetched.
//!
//! Nothing here blocks but to start a process, at the beginning and in place of one that died.

use std::io;
use std::os::fd::OwnedFd;

use base::{Clock, Nanos};
use dispatch::Token;

use super::errands::Errands;
use super::need::{Need, read_notice};
use crate::processes::{Event, Fleet, Sent};

/// How long helpers may take to end. What they fetch then, nobody waits for.
const PATIENCE: Nanos = Nanos::SECOND;

base::counts! {
    /// What comes of what is not in memory.
    pub struct HelperCounts {
        /// Fetches asked of helpers.
        helper_fetches,
        /// Fetches given to another helper because the first had died.
        helper_fetches_repeated,
        /// Times that a connection waited for a helper; the others went on.
        helper_waits,
        /// Times that the main process did what may have waited for a disk, because helpers could not help.
        main_waits,
    }
}

/// The helper processes.
pub struct Helpers {
    /// What came of it all so far.
    pub counts: HelperCounts,
    fleet: Fleet,
    errands: Errands,
}

impl Helpers {
    /// Starts one in each place of the fleet. This thread must stay as long as they.
    ///
    /// # Errors
    /// No process or descriptor left.
    pub fn start(mut fleet: Fleet) -> io::Result<Helpers> {
        for place in 0..fleet.places() {
            fleet.start(place).map_err(io::Error::other)?;
        }
        let errands = Errands::new(fleet.places());
        Ok(Helpers { counts: HelperCounts::default(), fleet, errands })
    }

    /// A descriptor that is readable when [`Helpers::attend`] has something to do.
    ///
    /// # Errors
    /// EMFILE.
    pub fn ready(&self) -> io::Result<OwnedFd> {
        self.fleet.ready().try_clone_to_owned()
    }

    /// How long until [`Helpers::attend`] is to be called although nothing is ready.
    pub fn due_in(&self) -> Option<Nanos> {
        self.fleet.due().map(|due| due.saturating_sub(self.fleet.clock().now()))
    }

    /// Whether helpers can do something about what is missing.
    pub fn can_help(&self, need: &Need) -> bool {
        self.errands.has_a_point(need)
    }

    /// Has something fetched, for a connection that waits for it.
    pub fn fetch(&mut self, need: Need, waiter: Token) {
        self.counts.helper_waits += 1;
        if self.errands.add(need, waiter) {
            self.counts.helper_fetches += 1;
            self.hand_out();
        }
    }

    /// Takes in what helpers have to say: adds the connections for which something has been fetched. Never
    /// blocks but to start a process.
    ///
    /// # Errors
    /// Waiting fails, which is our mistake.
    pub fn attend(&mut self, arrived: &mut Vec<Token>) -> io::Result<()> {
        self.errands.forget_fetched();
        let mut events = Vec::new();
        self.fleet.attend(&mut events)?;
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

    /// Gives helpers that have nothing to do what is to be fetched.
    fn hand_out(&mut self) {
        for place in 0..self.fleet.places() {
            if !self.fleet.runs(place) || !self.errands.is_free(place) {
                continue;
            }
            let Some((id, need)) = self.errands.first() else { return };
            let (bytes, file) = need.message(id);
            // One that is going takes nothing: its death is heard of, and then this goes on.
            if matches!(self.fleet.send(place, &bytes, file.as_slice()), Ok(Sent::Yes)) {
                self.errands.give(place);
            }
        }
    }

    /// Has all helpers end. Blocks.
    ///
    /// # Errors
    /// Waiting fails, which is our mistake.
    pub fn end(&mut self) -> io::Result<()> {
        self.fleet.end(PATIENCE, drop)
    }
}
