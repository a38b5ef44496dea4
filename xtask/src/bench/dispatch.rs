//! The costs of the event mechanisms by themselves: a wait, by the numbers of registered and of ready descriptors,
//! and a change of interest. No server, no network: Unix socket pairs in one process.
//!
//! A *turn* is the work of a server that learns of all events: non-blocking waits until every ready descriptor is
//! reported. Most mechanisms need one wait. Every turn begins with fresh readiness and ends with all of it drained,
//! so that level and edge do the same. The ready descriptors are spread evenly over the set and are the same in each
//! turn. With none ready a turn is one wait.
//!
//! The next wait pays for a change when it reconciles it. So the cost of a change comes from many changes and the
//! wait after them, minus a wait without changes. *Modify* turns a wait for reading into one for writing and back, on
//! sockets without room, so that nothing is ever reported.
//!
//! All costs are CPU time of the waiting thread, with the kernel's work for it. Within a run they are means, because
//! some mechanisms examine all descriptors only now and then. The mechanisms of a round come in random order, and the
//! table shows the median over the rounds. Every run has a thread of its own, because a mechanism may keep state per
//! thread.

mod show;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, anyhow};
use base::Nanos;
use dispatch::table::Table;
use dispatch::{Dispatcher, Event, Interest, Mechanism, Token};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use serde::Serialize;
use statistics::Spread;
use sys::cpu::thread_time;

use super::Common;
use crate::test_bed::{TestBed, allow_descriptors};

/// Numbers of registered descriptors.
const REGISTERED: [usize; 4] = [10, 100, 1000, 5000];
/// Numbers of ready descriptors among them.
const READY: [usize; 4] = [0, 1, 10, 100];
/// The number of descriptors that change their interest before a wait.
const CHANGED: usize = 1000;
/// Descriptors that this process has open besides the pairs.
const OTHER_DESCRIPTORS: usize = 64;
/// CPU time that a point of a run is given.
const BUDGET: Nanos = Nanos::from_millis(20);
/// The least number of turns of a point, and of waits at once if none is ready. Polling sets with their default N = 3
/// examine all descriptors within nine calls; this is eight times nine.
const TURNS: u32 = 72;
/// Times that each change is made in a run.
const REPEATS: u32 = 10;
/// Waits after which a mechanism is broken that still does not report a ready descriptor.
const WAITS_MAX: u32 = 10_000;

/// The options of the measurement.
#[derive(clap::Args)]
pub struct DispatchOptions {
    #[command(flatten)]
    common: Common,
    /// Rounds, in each of which every mechanism runs once
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// The cost of a turn.
#[derive(Clone, Debug, Serialize)]
struct Wait {
    mechanism: &'static str,
    registered: usize,
    ready: usize,
    ns: Spread,
}

/// The cost of changing one descriptor's interest.
#[derive(Clone, Debug, Serialize)]
struct Change {
    mechanism: &'static str,
    register_ns: Spread,
    modify_ns: Spread,
    deregister_ns: Spread,
}

#[derive(Serialize)]
struct Results {
    waits: Vec<Wait>,
    changes: Vec<Change>,
}

/// A watched socket, and the socket that makes it ready.
struct Pair {
    watched: OwnedFd,
    peer: OwnedFd,
}

/// The measurement of one mechanism over some pairs: turns by [`READY`], and changes.
struct Contender {
    name: &'static str,
    turns: fn(&[Pair]) -> io::Result<Vec<f64>>,
    changes: fn(&[Pair]) -> io::Result<[f64; 3]>,
}

/// The costs of one mechanism in one round.
struct Sample {
    /// By [`REGISTERED`] and [`READY`].
    turns: Vec<Vec<f64>>,
    /// Register, modify, deregister.
    changes: [f64; 3],
}

macro_rules! contender_of_each {
    ($($name:literal => $mechanism:ty,)*) => {
        vec![$(Contender { name: $name, turns: turns::<$mechanism>, changes: changes::<$mechanism> },)*]
    };
}

impl Contender {
    /// Tells whether the machine of this table has the mechanism; prints the reason if not.
    fn is_available(&self, table: &Table) -> bool {
        let row = table.rows.iter().find(|row| row.capabilities.name == self.name);
        let why_not = row.and_then(|row| row.why_not.as_ref());
        why_not.inspect(|why| println!("skipped: {}: {why}", self.name)).is_none()
    }
}

/// Measures, prints, draws and writes.
pub fn run(options: &DispatchOptions, bed: &TestBed) -> anyhow::Result<()> {
    let sizes = sizes();
    let pairs = pairs(sizes.last().copied().unwrap_or(0)).context("cannot make socket pairs")?;
    let mut contenders = dispatch::for_each_mechanism!(contender_of_each);
    let table = dispatch::table::table();
    contenders.retain(|contender| contender.is_available(&table));
    let run = |index: usize| measure(&contenders[index], &sizes, &pairs);
    let samples = options.common.in_rounds("mechanisms", options.rounds, contenders.len(), run)?;
    let results = summarise(&sizes, &contenders, &samples);
    print!("\n{}\n", show::text(&results));
    bed.conclude(&options.common, "dispatch", &results, &[])
}

/// The sizes that the descriptor limit allows; names the others.
fn sizes() -> Vec<usize> {
    let allowed = |size: &usize| {
        let outcome = allow_descriptors(&format!("{size} registered"), 2 * size + OTHER_DESCRIPTORS);
        outcome.inspect_err(|error| println!("skipped: {error:#}")).is_ok()
    };
    REGISTERED.into_iter().filter(allowed).collect()
}

/// Pairs whose watched side has nothing to read and no room to write.
fn pairs(count: usize) -> io::Result<Vec<Pair>> {
    let pair = |_| {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (watched, peer) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The least that the kernel allows.
        rustix::net::sockopt::set_socket_send_buffer_size(&watched, 1)?;
        loop {
            match rustix::net::send(&watched, &[0; 1024], SendFlags::NOSIGNAL) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(Pair { watched, peer }),
                Err(error) => return Err(error.into()),
            }
        }
    };
    (0..count).map(pair).collect()
}

/// Measures one mechanism once. Blocks.
fn measure(contender: &Contender, sizes: &[usize], pairs: &[Pair]) -> anyhow::Result<Sample> {
    let Contender { name, turns, changes } = contender;
    let of_size = |size: &usize| {
        in_a_thread(|| turns(&pairs[..*size])).with_context(|| format!("{name}, {size} descriptors"))
    };
    let turns = sizes.iter().map(of_size).collect::<anyhow::Result<_>>()?;
    let changes = in_a_thread(|| changes(&pairs[..CHANGED.min(pairs.len())]));
    Ok(Sample { turns, changes: changes.with_context(|| format!("{name}, changes"))? })
}

fn in_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> anyhow::Result<T> {
    let joined = std::thread::scope(|scope| scope.spawn(work).join());
    Ok(joined.map_err(|_| anyhow!("the measuring thread panicked"))??)
}

fn summarise(sizes: &[usize], contenders: &[Contender], samples: &[Vec<Sample>]) -> Results {
    let mut results = Results { waits: Vec::new(), changes: Vec::new() };
    for (Contender { name: mechanism, .. }, samples) in contenders.iter().zip(samples) {
        for (row, registered) in sizes.iter().copied().enumerate() {
            let points = READY.into_iter().enumerate().filter_map(|(column, ready)| {
                let costs = samples.iter().filter_map(|sample| sample.turns[row].get(column));
                Some(Wait { mechanism, registered, ready, ns: Spread::of(costs)? })
            });
            results.waits.extend(points);
        }
        let change = |kind: usize| Spread::of(samples.iter().map(|sample| sample.changes[kind]));
        if let [Some(register_ns), Some(modify_ns), Some(deregister_ns)] = [0, 1, 2].map(change) {
            results.changes.push(Change { mechanism, register_ns, modify_ns, deregister_ns });
        }
    }
    results
}

/// A dispatcher over some pairs, with the cost of reading the clock, which every measurement subtracts.
struct Subject<'a, M> {
    dispatcher: Dispatcher<M>,
    pairs: &'a [Pair],
    events: Vec<Event>,
    clock_cost: Nanos,
}

/// The cost of a turn in nanoseconds, for each of [`READY`] that there are descriptors for.
fn turns<M: Mechanism>(pairs: &[Pair]) -> io::Result<Vec<f64>> {
    let mut subject = Subject::<M>::new(pairs)?;
    subject.register()?;
    let possible = READY.into_iter().filter(|ready| *ready <= pairs.len());
    let costs = possible.map(|ready| subject.turn(ready)).collect();
    subject.deregister()?;
    costs
}

/// The cost in nanoseconds of one descriptor's register, modify and deregister.
fn changes<M: Mechanism>(pairs: &[Pair]) -> io::Result<[f64; 3]> {
    let mut subject = Subject::<M>::new(pairs)?;
    let mut costs = [0.0; 3];
    // The first change makes the tables grow, so it does not count.
    subject.change_all()?;
    for _ in 0..REPEATS {
        for (sum, cost) in costs.iter_mut().zip(subject.change_all()?) {
            *sum += cost;
        }
    }
    Ok(costs.map(|cost| cost / f64::from(REPEATS) / pairs.len() as f64))
}

impl<'a, M: Mechanism> Subject<'a, M> {
    fn new(pairs: &'a [Pair]) -> io::Result<Subject<'a, M>> {
        let since = thread_time();
        for _ in 1..TURNS {
            thread_time();
        }
        let clock_cost = Nanos((thread_time() - since).0 / u64::from(TURNS));
        Ok(Subject { dispatcher: Dispatcher::new()?, pairs, events: Vec::new(), clock_cost })
    }

    fn wait(&mut self) -> io::Result<()> {
        self.events.clear();
        self.dispatcher.wait(&mut self.events, Some(Nanos::ZERO)).map(drop)
    }

    fn register(&mut self) -> io::Result<()> {
        for (index, pair) in self.pairs.iter().enumerate() {
            self.dispatcher.register(pair.watched.as_fd(), Token(index as u64), Interest::Read);
        }
        self.wait()
    }

    fn modify(&mut self, interest: Interest) -> io::Result<()> {
        for pair in self.pairs {
            self.dispatcher.modify(pair.watched.as_fd(), interest);
        }
        self.wait()
    }

    fn deregister(&mut self) -> io::Result<()> {
        for pair in self.pairs {
            self.dispatcher.deregister(pair.watched.as_fd());
        }
        self.wait()
    }

    /// CPU time of some work on this thread, in nanoseconds.
    fn time(&mut self, work: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<f64> {
        let since = thread_time();
        work(self)?;
        Ok((thread_time() - since).saturating_sub(self.clock_cost).0 as f64)
    }

    /// The mean cost of a wait with nothing ready.
    fn empty_turn(&mut self) -> io::Result<f64> {
        let cost = self.time(|this| (0..TURNS).try_for_each(|_| this.wait()))?;
        Ok(cost / f64::from(TURNS))
    }

    /// The mean cost of a turn.
    fn turn(&mut self, ready: usize) -> io::Result<f64> {
        let each: Vec<usize> = (0..ready).map(|index| index * self.pairs.len() / ready).collect();
        let mut reported = vec![0_u32; self.pairs.len()];
        let (mut cost, mut turns) = (0.0, 0);
        while turns < TURNS || cost < BUDGET.0 as f64 {
            if ready == 0 {
                cost += self.empty_turn()? * f64::from(TURNS);
                turns += TURNS;
                continue;
            }
            turns += 1;
            for index in &each {
                rustix::net::send(&self.pairs[*index].peer, &[0], SendFlags::NOSIGNAL)?;
            }
            cost += self.time(|this| this.wait_for_all(ready, &mut reported, turns))?;
            for index in &each {
                rustix::io::read(&self.pairs[*index].watched, &mut [0])?;
            }
        }
        Ok(cost / f64::from(turns))
    }

    /// Waits until `ready` descriptors have been reported. Marks them with the number of the turn.
    fn wait_for_all(&mut self, ready: usize, reported: &mut [u32], turn: u32) -> io::Result<()> {
        let mut left = ready;
        for _ in 0..WAITS_MAX {
            self.wait()?;
            for event in &self.events {
                let last = &mut reported[event.token.0 as usize];
                left -= usize::from(*last != turn);
                *last = turn;
            }
            if left == 0 {
                return Ok(());
            }
        }
        Err(io::Error::other(format!("{left} of {ready} ready descriptors are not reported")))
    }

    /// Returns the costs to register, modify and deregister all descriptors, without waiting.
    fn change_all(&mut self) -> io::Result<[f64; 3]> {
        let register = self.time(Self::register)?;
        let full = self.empty_turn()?;
        let modify = self.time(|this| this.modify(Interest::Write))?;
        let modify = modify + self.time(|this| this.modify(Interest::Read))?;
        let deregister = self.time(Self::deregister)?;
        let empty = self.empty_turn()?;
        Ok([register - full, modify / 2.0 - full, deregister - empty].map(|cost| cost.max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_reports_every_ready_descriptor() {
        let (pairs, table) = (pairs(20).unwrap(), dispatch::table::table());
        for contender in dispatch::for_each_mechanism!(contender_of_each) {
            let is_available = contender.is_available(&table);
            let Contender { name, turns, changes } = contender;
            if !is_available {
                assert_ne!(name, "epoll", "every Linux has it");
                println!("skipped: {name} is not available here");
                continue;
            }
            let costs = in_a_thread(|| turns(&pairs)).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert_eq!(costs.len(), 3, "{name}: 0, 1 and 10 of 20 ready");
            assert!(costs.iter().all(|cost| *cost > 0.0), "{name}: {costs:?}");
            in_a_thread(|| changes(&pairs)).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        }
    }

    #[test]
    fn what_is_watched_can_neither_be_read_nor_written() {
        use std::os::fd::AsRawFd;
        use sys::readiness::poll::{PollFd, bits};
        let pairs = pairs(1).unwrap();
        let mut set = [PollFd::new(pairs[0].watched.as_raw_fd(), bits::IN | bits::OUT)];
        assert_eq!(sys::readiness::poll::wait(&mut set, Some(Nanos::ZERO)).unwrap(), 0);
    }
}
