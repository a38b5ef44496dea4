//! Counting by voluntary context switches, from outside, without privilege.
//!
//! Each task's count and state are read from `/proc/PID/task/TID/status` while it sleeps; it does nothing
//! itself. Two readings of all tasks in a row that find every one asleep with the same counts prove that
//! all slept at once between them.
//!
//! When the last fell asleep: if each waiter was about to sleep (as it notes on the board) at least as
//! often as it woke, every wake-up came back to user space, and the latest note is the time, a few
//! microseconds early. Otherwise the time is the first look that found what all later ones found; it may be late by
//! the distance to the look before. Of threads a look is one getrusage(2) of the whole process, and
//! looks are some 50 us apart; of processes it reads the CPU clock of each, some 0.5 us, to see whether
//! anybody has run. Looking takes at most half of one processor's time.

use std::fs::File;
use std::os::unix::fs::FileExt;

use base::{Clock, Nanos, RealClock};
use rustix::process::Pid;
use sys::usage::{Whose, voluntary_switches};

use super::{Settled, deadline, nap, stuck};
use crate::error::{HerdError, system};
use crate::population::Population;

/// The shortest time between two looks.
const LOOK_EVERY: Nanos = Nanos::from_micros(50);

/// Looks that find nothing new before the proof is tried.
const QUIET_LOOKS: u32 = 2;

/// Other threads of the process may never be quiet: then the proof is tried after so many looks.
const MOST_LOOKS: u32 = 100;

/// `status` is about 1.5 KiB, more on machines with many processors.
const STATUS_BYTES: usize = 16 * 1024;

/// A reading of all tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reading {
    all_asleep: bool,
    switches: Vec<u64>,
}

pub(crate) struct Switches {
    tasks: Vec<Pid>,
    statuses: Vec<File>,
    buffer: Vec<u8>,
    /// The last that proved everybody asleep.
    proven: Reading,
    /// The one before the sample.
    before: Reading,
    sleeps_before: Vec<u64>,
}

impl Switches {
    pub fn start(herd: &Population, tasks: &[Pid]) -> Result<Switches, HerdError> {
        let open = |task: &Pid| {
            let task = task.as_raw_nonzero();
            let process = if herd.are_processes() { task.to_string() } else { "self".to_owned() };
            File::open(format!("/proc/{process}/task/{task}/status"))
        };
        let statuses = tasks.iter().map(open).collect::<Result<_, _>>();
        Ok(Switches {
            tasks: tasks.to_vec(),
            statuses: statuses.map_err(system("read a waiter's status in /proc"))?,
            buffer: vec![0; STATUS_BYTES],
            proven: Reading::default(),
            before: Reading::default(),
            sleeps_before: Vec::new(),
        })
    }

    /// Two readings in a row that are the same and find everyone asleep.
    pub fn wait_until_all_sleep(&mut self, herd: &Population) -> Result<(), HerdError> {
        let deadline = deadline();
        while !self.proof()? {
            if RealClock.now() > deadline {
                return Err(stuck(herd, "the waiters never slept all at once"));
            }
            nap(Nanos::MILLISECOND);
        }
        Ok(())
    }

    /// Everybody has slept since the last proof, so what it read still holds.
    pub fn begin(&mut self, herd: &Population) {
        self.before = std::mem::take(&mut self.proven);
        self.sleeps_before = (0..herd.waiters).map(|waiter| herd.board().sleeps(waiter)).collect();
    }

    pub fn settle(&mut self, herd: &Population, start: Nanos) -> Result<Settled, HerdError> {
        let (watched_at, late_by) = self.watch(herd, start)?;
        let woke = |waiter: usize| self.proven.switches[waiter] - self.before.switches[waiter];
        let board = herd.board();
        let all_returned =
            (0..herd.waiters).all(|waiter| board.sleeps(waiter) - self.sleeps_before[waiter] >= woke(waiter));
        let noted_at = (0..herd.waiters).map(|waiter| board.asleep_at(waiter)).max().unwrap_or(start);
        let (at, late_by) = if all_returned { (noted_at, Nanos::ZERO) } else { (watched_at, late_by) };
        Ok(Settled { wakeups: (0..herd.waiters).map(woke).sum(), at, late_by })
    }

    /// Looks until everyone provably sleeps; says which look was the first to find what all later ones
    /// found, and how far it was from the one before.
    fn watch(&mut self, herd: &Population, start: Nanos) -> Result<(Nanos, Nanos), HerdError> {
        let deadline = deadline();
        let (mut seen, mut found, mut looked) = (None, (start, Nanos::ZERO), start);
        let (mut looks, mut quiet) = (0, 0);
        loop {
            let began = RealClock.now();
            let sees = Some(self.look(herd)?);
            let ended = RealClock.now();
            if sees == seen {
                quiet += 1;
            } else {
                (seen, found, quiet) = (sees, (ended, ended.saturating_sub(looked)), 0);
            }
            (looked, looks) = (ended, looks + 1);
            if quiet >= QUIET_LOOKS || looks >= MOST_LOOKS {
                if self.proof()? {
                    return Ok(found);
                }
                (looks, quiet) = (0, 0);
            }
            if ended > deadline {
                return Err(stuck(herd, "the waiters did not settle"));
            }
            nap(LOOK_EVERY.max(ended.saturating_sub(began)));
        }
    }

    /// A number that has changed if a waiter has slept and woken or woken and slept since.
    fn look(&self, herd: &Population) -> Result<u64, HerdError> {
        if herd.are_processes() {
            return Ok(herd.cpu_time(&self.tasks).map_err(system("read a waiter's CPU time"))?.0);
        }
        // This thread's own naps are no waiter's.
        Ok(voluntary_switches(Whose::Process).saturating_sub(voluntary_switches(Whose::Thread)))
    }

    fn proof(&mut self) -> Result<bool, HerdError> {
        let first = self.read()?;
        self.proven = self.read()?;
        Ok(first.all_asleep && first == self.proven)
    }

    fn read(&mut self) -> Result<Reading, HerdError> {
        let mut reading = Reading { all_asleep: true, switches: Vec::with_capacity(self.statuses.len()) };
        for status in &self.statuses {
            let length =
                status.read_at(&mut self.buffer, 0).map_err(system("read a waiter's status in /proc"))?;
            let Some((asleep, switches)) = parse(&self.buffer[..length]) else {
                return Err(system("read a waiter's status in /proc")(
                    std::io::ErrorKind::InvalidData.into(),
                ));
            };
            reading.all_asleep &= asleep;
            reading.switches.push(switches);
        }
        Ok(reading)
    }
}

/// Whether a task sleeps, and how often it went to sleep by itself.
fn parse(status: &[u8]) -> Option<(bool, u64)> {
    let text = std::str::from_utf8(status).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((field("State:")?.starts_with('S'), field("voluntary_ctxt_switches:")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_count_are_found_in_a_status() {
        let text = "Name:\twaiter\nState:\tS (sleeping)\nTgid:\t1\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(parse(text.as_bytes()), Some((true, 42)));
        assert_eq!(parse(text.replace("S (sleeping)", "R (running)").as_bytes()), Some((false, 42)));
        assert_eq!(parse(b"Name:\twaiter\n"), None);
    }

    #[test]
    fn our_own_status_can_be_read() {
        assert!(matches!(parse(&std::fs::read("/proc/thread-self/status").unwrap()), Some((false, _))));
    }
}
