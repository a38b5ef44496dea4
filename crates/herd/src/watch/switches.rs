//! Counts voluntary context switches from outside, without privilege.
//!
//! The count and the state of each sleeping task are read from `/proc/PID/task/TID/status`, which does not
//! disturb the task. Two consecutive readings that find every task asleep with the same counts prove that all
//! slept at once between them.
//!
//! A task sets its state before it leaves its processor, and a virtual machine may stop the processor between
//! the two. A connection that comes then finds the task asleep by its state, but costs no switch. `wchan`
//! beside `status` tells the difference: it is 0 until the task has left its processor's queue. A kernel
//! without names of its functions has no `wchan`; there the state alone counts.
//!
//! The settle time has two sources. Each waiter notes on the board when it is about to sleep. If every waiter
//! noted that at least as often as it woke, every wake-up returned to user space. The latest note is then the
//! settle time, a few microseconds early. Otherwise the settle time is the first look whose result all later
//! looks repeat. It may be late by the time since the look before.
//!
//! A look at threads is one getrusage(2) of the whole process, about every 50 us. A look at processes reads
//! the CPU clock of each, about 0.5 us, to see whether it has run. Looking takes at most half of one
//! processor's time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use base::{Clock, Nanos, RealClock};
use rustix::process::Pid;
use sys::thread::usage::{Whose, voluntary_switches};

use super::{Settled, deadline, nap, stuck};
use crate::error::{HerdError, system};
use crate::population::Population;

/// The shortest time between two looks.
const LOOK_EVERY: Nanos = Nanos::from_micros(50);

/// Consecutive looks without a change before the proof is tried.
const QUIET_LOOKS: u32 = 2;

/// Looks after which the proof is tried anyway, because other threads of the process may never be quiet.
const MOST_LOOKS: u32 = 100;

/// The read buffer: `status` has about 1.5 KiB, more on machines with many processors.
const STATUS_BYTES: usize = 16 * 1024;

/// A reading of all tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reading {
    all_asleep: bool,
    switches: Vec<u64>,
}

/// The files of one task in /proc.
struct State {
    status: File,
    wchan: Option<File>,
}

impl State {
    fn open(task: Pid, in_own_process: bool) -> io::Result<State> {
        let task = task.as_raw_nonzero();
        let process = if in_own_process { task.to_string() } else { "self".to_owned() };
        let open = |name: &str| File::open(format!("/proc/{process}/task/{task}/{name}"));
        let wchan = match open("wchan") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        Ok(State { status: open("status")?, wchan })
    }

    /// Returns true if the task sleeps, and its number of voluntary switches.
    fn read(&self, buffer: &mut [u8]) -> io::Result<(bool, u64)> {
        let length = self.status.read_at(buffer, 0)?;
        let (asleep, switches) = parse(&buffer[..length]).ok_or(io::ErrorKind::InvalidData)?;
        let left = match &self.wchan {
            Some(wchan) if asleep => {
                let length = wchan.read_at(buffer, 0)?;
                buffer[..length] != *b"0"
            }
            _ => true,
        };
        Ok((asleep && left, switches))
    }
}

pub(crate) struct Switches {
    tasks: Vec<Pid>,
    states: Vec<State>,
    buffer: Vec<u8>,
    /// The last reading that proved every task asleep.
    proven: Reading,
    /// The reading before the sample.
    before: Reading,
    sleeps_before: Vec<u64>,
}

impl Switches {
    pub fn start(herd: &Population, tasks: &[Pid]) -> Result<Switches, HerdError> {
        let states =
            tasks.iter().map(|task| State::open(*task, herd.are_processes())).collect::<Result<_, _>>();
        Ok(Switches {
            tasks: tasks.to_vec(),
            states: states.map_err(system("read a waiter's status in /proc"))?,
            buffer: vec![0; STATUS_BYTES],
            proven: Reading::default(),
            before: Reading::default(),
            sleeps_before: Vec::new(),
        })
    }

    /// Waits for two equal consecutive readings that find every task asleep.
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

    /// Keeps the last proof as the reading before the sample: every task has slept since.
    pub fn begin(&mut self, herd: &Population) {
        self.before = std::mem::take(&mut self.proven);
        self.sleeps_before = (0..herd.waiters).map(|waiter| herd.board().sleeps(waiter)).collect();
    }

    pub fn await_all_asleep(&mut self, herd: &Population, start: Nanos) -> Result<Settled, HerdError> {
        let (watched_at, late_by) = self.watch(herd, start)?;
        let woke = |waiter: usize| self.proven.switches[waiter] - self.before.switches[waiter];
        let board = herd.board();
        let all_returned =
            (0..herd.waiters).all(|waiter| board.sleeps(waiter) - self.sleeps_before[waiter] >= woke(waiter));
        let noted_at = (0..herd.waiters).map(|waiter| board.asleep_at(waiter)).max().unwrap_or(start);
        let (at, late_by) = if all_returned { (noted_at, Nanos::ZERO) } else { (watched_at, late_by) };
        Ok(Settled { wakeups: (0..herd.waiters).map(woke).sum(), at, late_by })
    }

    /// Looks until every task provably sleeps. Returns the time of the first look whose result all later
    /// looks repeat, and its distance from the look before.
    fn watch(&mut self, herd: &Population, start: Nanos) -> Result<(Nanos, Nanos), HerdError> {
        let deadline = deadline();
        let (mut seen, mut found, mut looked) = (None, (start, Nanos::ZERO), start);
        let (mut looks, mut quiet) = (0, 0);
        loop {
            let began = RealClock.now();
            let sees = Some(self.read_activity(herd)?);
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

    /// A number that changes when a waiter sleeps and wakes or wakes and sleeps.
    fn read_activity(&self, herd: &Population) -> Result<u64, HerdError> {
        if herd.are_processes() {
            return Ok(herd.cpu_time(&self.tasks).map_err(system("read a waiter's CPU time"))?.0);
        }
        // Subtracts the naps of this thread, which is not a waiter.
        Ok(voluntary_switches(Whose::Process).saturating_sub(voluntary_switches(Whose::Thread)))
    }

    fn proof(&mut self) -> Result<bool, HerdError> {
        let first = self.read()?;
        self.proven = self.read()?;
        Ok(first.all_asleep && first == self.proven)
    }

    fn read(&mut self) -> Result<Reading, HerdError> {
        let mut reading = Reading { all_asleep: true, switches: Vec::with_capacity(self.states.len()) };
        for state in &self.states {
            let (asleep, switches) =
                state.read(&mut self.buffer).map_err(system("read a waiter's status in /proc"))?;
            reading.all_asleep &= asleep;
            reading.switches.push(switches);
        }
        Ok(reading)
    }
}

/// Parses a status: true for a sleeping task, and its number of voluntary switches.
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
    fn a_sleeping_task_is_told_from_a_running_one() {
        let read = |task| State::open(task, false).unwrap().read(&mut [0; STATUS_BYTES]).unwrap();
        assert!(!read(rustix::thread::gettid()).0);
        let (tell, number) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            ended.recv().unwrap_err();
        });
        let number = number.recv().unwrap();
        while !read(number).0 {
            nap(Nanos::MILLISECOND);
        }
        drop(end);
        sleeper.join().unwrap();
    }
}
