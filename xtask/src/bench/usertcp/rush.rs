//! The client's plays: a small open loop over a stack.

use std::collections::VecDeque;
use std::io;

use anyhow::{Context, ensure};
use base::{Clock, Key, Nanos, PerSecond, RealClock, Slab};
use dispatch::Token;
use lab::stage::memory;
use usertcp::{Event, Kind, Link, Stack, Window};

/// A turn begins this many connections at most, so that packets are received in between.
const BEGUN_PER_TURN: u32 = 64;
/// Idle connections are opened at this rate, which the server's kernel takes without dropping any.
const OPENING: PerSecond = PerSecond(30_000.0);
/// The wait for the last connections.
const PATIENCE: Nanos = Nanos::from_secs(2);

const REQUEST: &[u8] = b"GET /1k.html HTTP/1.1\r\nHost: 10.77.0.1\r\n\r\n";

/// The client's behaviour.
pub enum Play {
    /// Begins connections at a rate and abandons each after a while.
    Syns { rate: PerSecond, timeout: Nanos },
    /// Keeps a number of connections under way, each for one request that the server ends.
    Connections { at_a_time: u32 },
    /// Keeps asking on a number of connections, for replies of a given length in bytes.
    Requests { connections: u32, reply: usize },
    /// Opens connections and then does nothing.
    Idle { connections: u32 },
}

/// The figures of a play.
pub struct Figures {
    pub done: u64,
    pub failed: u64,
    /// Time of the turns with work; for idle connections, the thread's CPU time per second.
    pub busy: Nanos,
    pub span: Nanos,
    pub late_p99: Nanos,
    pub bytes_each: f64,
}

struct Connection {
    key: Key,
    received: usize,
}

struct Rush<'a, L> {
    stack: &'a mut Stack<L>,
    clock: &'a RealClock,
    play: &'a Play,
    connections: Slab<Connection>,
    /// The times at which connections are abandoned.
    timeouts: VecDeque<(Nanos, Key)>,
    lateness: Vec<u32>,
    done: u64,
    established: u64,
    failed: u64,
    busy: Nanos,
}

/// Plays for `duration`; blocks.
///
/// # Errors
/// The link is gone; a connection fails that should not.
pub fn perform<L: Link>(
    stack: &mut Stack<L>,
    clock: &RealClock,
    play: &Play,
    duration: Nanos,
) -> anyhow::Result<Figures> {
    let rush = Rush {
        stack,
        clock,
        play,
        connections: Slab::new(),
        timeouts: VecDeque::new(),
        lateness: Vec::new(),
        done: 0,
        established: 0,
        failed: 0,
        busy: Nanos::ZERO,
    };
    match play {
        Play::Idle { connections } => rush.hold(*connections, duration),
        _ => rush.run(duration),
    }
}

impl<L: Link> Rush<'_, L> {
    fn run(mut self, duration: Nanos) -> anyhow::Result<Figures> {
        let start = self.clock.now();
        let end = start + duration;
        let mut begun = 0;
        loop {
            let now = self.clock.now();
            if now >= end {
                break;
            }
            let (wanted, gap) = match self.play {
                Play::Syns { rate, .. } => (rate.times(now - start) as u64 + 1 - begun, rate.interval()),
                Play::Connections { at_a_time: most } | Play::Requests { connections: most, .. } => {
                    (u64::from(*most).saturating_sub(self.connections.len() as u64), Nanos::ZERO)
                }
                Play::Idle { .. } => (0, Nanos::ZERO),
            };
            let wanted = wanted.min(BEGUN_PER_TURN.into());
            for number in begun..begun + wanted {
                self.begin(now)?;
                let lateness = now.saturating_sub(start + Nanos((gap.0 as f64 * number as f64) as u64));
                self.lateness.push(u32::try_from(lateness.0).unwrap_or(u32::MAX));
            }
            begun += wanted;
            let events = self.turn(now)?;
            if wanted > 0 || events {
                self.busy += self.clock.now() - now;
            }
        }
        if matches!(self.play, Play::Syns { .. }) {
            self.done = begun;
        }
        self.lateness.sort_unstable();
        let late_p99 = self
            .lateness
            .get(self.lateness.len() * 99 / 100)
            .map_or(Nanos::ZERO, |late| Nanos((*late).into()));
        let span = self.clock.now() - start;
        Ok(Figures {
            done: self.done,
            failed: self.failed,
            busy: self.busy,
            span,
            late_p99,
            bytes_each: f64::NAN,
        })
    }

    /// Opens idle connections, and measures their cost while nothing happens.
    fn hold(mut self, connections: u32, duration: Nanos) -> anyhow::Result<Figures> {
        let memory = memory::anonymous_memory_of_all(std::process::id())?;
        let start = self.clock.now();
        let mut begun = 0;
        let mut keys = Vec::with_capacity(connections as usize);
        while self.established < u64::from(connections) {
            let now = self.clock.now();
            ensure!(
                now < start + OPENING.interval() * u64::from(connections) + PATIENCE * 10,
                "the server takes no more"
            );
            while begun < connections && OPENING.times(now - start) as u32 >= begun {
                // Only the stack's memory counts.
                keys.push(self.stack.connect(Token(u64::MAX), Window::Open, now).context("no name is free")?);
                begun += 1;
            }
            self.turn(now)?;
        }
        let after = memory::anonymous_memory_of_all(std::process::id())?;
        let (start, cpu) = (self.clock.now(), sys::cpu::thread_time());
        let end = start + duration;
        while self.clock.now() < end {
            let due = self.stack.next_due().unwrap_or(end).min(end);
            self.stack.wait(due.saturating_sub(self.clock.now()))?;
            self.turn(self.clock.now())?;
        }
        let span = self.clock.now() - start;
        let busy = Nanos::from_secs_f64((sys::cpu::thread_time() - cpu).as_secs_f64() / span.as_secs_f64());
        let held = self.stack.len() as u64;
        ensure!(held == u64::from(connections), "only {held} of {connections} connections are still open");
        let now = self.clock.now();
        for key in keys {
            self.stack.abort(key, now);
        }
        self.stack.flush(now)?;
        let bytes_each = (after.0.saturating_sub(memory.0)) as f64 / held as f64;
        Ok(Figures { done: held, failed: self.failed, busy, span, late_p99: Nanos::ZERO, bytes_each })
    }

    fn begin(&mut self, now: Nanos) -> anyhow::Result<()> {
        let stack = &mut *self.stack;
        let mut begun = None;
        let name = self.connections.insert_with(|name| {
            begun = stack.connect(Token::from(name), Window::Open, now);
            Connection { key: begun.unwrap_or(name), received: 0 }
        });
        begun.context("no name of the source net is free")?;
        if let Play::Syns { timeout, .. } = self.play {
            self.timeouts.push_back((now + *timeout, name));
        }
        Ok(())
    }

    /// Sends and receives all packets; returns true if there were any.
    fn turn(&mut self, now: Nanos) -> io::Result<bool> {
        while let Some((due, name)) = self.timeouts.front().copied()
            && due <= now
        {
            self.timeouts.pop_front();
            if let Some(connection) = self.connections.remove(name) {
                self.stack.abort(connection.key, now);
            }
        }
        self.stack.flush(now)?;
        let before = self.stack.counts().received;
        let now = self.clock.now();
        self.stack.expire(now);
        while let Some(event) = self.stack.next(now)? {
            self.handle(event, now);
        }
        Ok(self.stack.counts().received != before)
    }

    fn handle(&mut self, event: Event, now: Nanos) {
        self.established += u64::from(event.kind == Kind::Established);
        let name = Key::from(event.token);
        let Some(connection) = self.connections.get_mut(name) else { return };
        match (event.kind, self.play) {
            (Kind::Established, Play::Connections { .. } | Play::Requests { .. }) => {
                self.stack.send(connection.key, REQUEST, now);
            }
            (Kind::Received, Play::Requests { reply, .. }) => {
                connection.received += self.stack.bytes().len();
                if connection.received >= *reply {
                    connection.received -= reply;
                    self.done += 1;
                    self.stack.send(connection.key, REQUEST, now);
                }
            }
            (Kind::Received, _) => connection.received += self.stack.bytes().len(),
            (Kind::Ended, _) => {
                let complete = connection.received > 0;
                self.stack.close(connection.key, now);
                self.connections.remove(name);
                *(if complete { &mut self.done } else { &mut self.failed }) += 1;
            }
            (Kind::Failed(_), _) => {
                self.connections.remove(name);
                self.failed += 1;
            }
            (Kind::Established | Kind::HasRoom, _) => {}
        }
    }
}
