//! The dispatcher: one loop that accepts, places, passes on, and hears of what became of it.
//!
//! ```text
//!   loop:  get_events ─> attend ─> accept ─> pass_on ─> expire
//! ```
//!
//! *attend* hears reports and deaths; *accept* takes connections up to the accept-limit and places them; *pass_on*
//! sends each worker what was placed with it, in one message; *expire* ends periods and idle workers.
//!
//! A connection is accepted only while one more can be placed, so that none waits here that would be better
//! off in the kernel's queue; those whose worker dies before it has them are placed anew.
//!
//! Invariants: the listeners are watched exactly while the gate is open; a connection is in one outbox, or
//! unplaced, or its worker's; the pool counts those in an outbox as the worker's.

use std::collections::VecDeque;
use std::io;

use base::{Clock, Key, Nanos, RealClock};
use dispatch::mechanism::Epoll;
use dispatch::{Dispatcher, Event, Interest, Token};

use super::messages::{Handed, Report, pack};
use super::pool::{Placement, Pool};
use crate::accept::Accepted;
use crate::counters::{Board, Counters, LoopCounts, PUBLISH_EVERY, WorkerFigures};
use crate::driver::Stop;
use crate::driver::readiness::{Arrivals, Listeners, listener_token};
use crate::error::ServeError;
use crate::processes::{self, Fleet, Sent};

/// The token of the fleet's descriptor, and that of the stop: no listener's, whose generation is 0.
const FLEET: Token = Token(1 << 32);
const STOP: Token = Token(2 << 32);
/// How soon a message is tried again that a worker had no room for.
const RETRY: Nanos = Nanos::MILLISECOND;
/// How much longer than their own drain time-out workers may take to end.
const PATIENCE: Nanos = Nanos::SECOND;

/// Whether connections are accepted, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Nothing left to accept with, until then.
    Paused,
    /// The connection limit is reached.
    AtLimit,
    /// Every worker is full (step 6), or down.
    Full,
}

/// What a dispatcher is made of.
pub struct Parts {
    /// Where connections come from.
    pub listeners: Listeners,
    /// Who is there.
    pub pool: Pool,
    /// Their processes.
    pub fleet: Fleet,
    /// Workers at first.
    pub initial: usize,
    /// Connections at once, all workers together.
    pub max_connections: usize,
    /// Where counters go.
    pub board: Board,
    /// How it is told to end.
    pub stop: Stop,
    /// How long workers may take to end.
    pub drain_timeout: Nanos,
}

/// The state of the loop.
struct Dispatching {
    parts: Parts,
    dispatcher: Dispatcher<Epoll>,
    clock: RealClock,
    now: Nanos,
    events: Vec<Event>,
    happened: Vec<processes::Event>,
    /// Which listeners are ready in this turn.
    ready: Vec<usize>,
    /// Placed, and not yet passed on, by worker.
    outboxes: Vec<VecDeque<Handed>>,
    /// Accepted, and without a worker because theirs died.
    unplaced: VecDeque<Handed>,
    gate: Gate,
    paused_until: Option<Nanos>,
    /// When outboxes that could not be emptied are tried again.
    retry_at: Option<Nanos>,
    counts: LoopCounts,
    published: Nanos,
    unpublished: bool,
}

/// Runs a dispatcher until it is told to stop and its workers have ended. Blocks.
///
/// # Errors
/// The loop fails in a way that is our mistake.
pub fn run(parts: Parts) -> io::Result<()> {
    let mut this = Dispatching::new(parts)?;
    this.start_workers()?;
    while !this.parts.stop.asked() {
        this.get_events()?;
        this.attend()?;
        this.accept();
        this.pass_on();
        this.expire();
    }
    this.end()
}

impl Dispatching {
    fn new(parts: Parts) -> io::Result<Dispatching> {
        let clock = parts.fleet.clock();
        let mut dispatcher = Dispatcher::new()?;
        for (index, source) in parts.listeners.sources().enumerate() {
            dispatcher.register(source, listener_token(index), Interest::Read);
        }
        dispatcher.register(parts.fleet.ready(), FLEET, Interest::Read);
        dispatcher.register(parts.stop.descriptor(), STOP, Interest::Read);
        Ok(Dispatching {
            dispatcher,
            clock,
            now: clock.now(),
            events: Vec::new(),
            happened: Vec::new(),
            ready: Vec::new(),
            outboxes: (0..parts.pool.slots()).map(|_| VecDeque::new()).collect(),
            unplaced: VecDeque::new(),
            gate: Gate::Open,
            paused_until: None,
            retry_at: None,
            counts: LoopCounts::default(),
            published: Nanos::ZERO,
            unpublished: true,
            parts,
        })
    }

    fn start_workers(&mut self) -> io::Result<()> {
        for slot in 0..self.parts.initial {
            self.parts.fleet.start(slot).map_err(io::Error::other)?;
            self.parts.pool.started(slot, self.now);
        }
        Ok(())
    }

    /// Waits, and notes which listeners are ready.
    fn get_events(&mut self) -> io::Result<()> {
        self.mind_the_gate();
        self.events.clear();
        self.ready.clear();
        let timeout = self.next_due().map(|due| due.saturating_sub(self.now));
        self.counts.waits += 1;
        self.dispatcher.wait(&mut self.events, timeout)?;
        self.now = self.clock.now();
        self.counts.events += self.events.len() as u64;
        self.unpublished |= !self.events.is_empty();
        let listeners = self.events.iter().map(|event| Key::from(event.token));
        self.ready.extend(listeners.filter(|key| key.generation == 0).map(|key| key.index as usize));
        self.paused_until = self.paused_until.filter(|until| *until > self.now);
        Ok(())
    }

    /// When there is something to do even if nothing happens.
    fn next_due(&self) -> Option<Nanos> {
        let publish = self.unpublished.then(|| self.published + PUBLISH_EVERY);
        let surplus = self.parts.pool.next_surplus().map(|surplus| surplus.at);
        let period = self.parts.pool.period_ends();
        let due = [period, surplus, publish, self.retry_at, self.paused_until, self.parts.fleet.due()];
        due.into_iter().flatten().min()
    }

    /// Opens or closes the gate as things are, and counts why it closes.
    fn mind_the_gate(&mut self) {
        let gate = self.gate_as_it_should_be();
        let before = std::mem::replace(&mut self.gate, gate);
        if gate == before {
            return;
        }
        match gate {
            Gate::AtLimit => self.counts.limit_connections += 1,
            Gate::Full => self.parts.pool.decisions.all_workers_full += 1,
            Gate::Open | Gate::Paused => {}
        }
        let interest = if gate == Gate::Open { Interest::Read } else { Interest::None };
        for source in self.parts.listeners.sources() {
            self.dispatcher.modify(source, interest);
        }
    }

    fn gate_as_it_should_be(&self) -> Gate {
        if self.paused_until.is_some() {
            Gate::Paused
        } else if self.connections() >= self.parts.max_connections as u64 {
            Gate::AtLimit
        } else if !self.unplaced.is_empty() || !self.parts.pool.has_room() {
            Gate::Full
        } else {
            Gate::Open
        }
    }

    fn connections(&self) -> u64 {
        self.parts.pool.connections() + self.unplaced.len() as u64
    }

    /// Hears the workers, and of them.
    fn attend(&mut self) -> io::Result<()> {
        let due = self.parts.fleet.due().is_some_and(|due| due <= self.now);
        if !due && !self.events.iter().any(|event| event.token == FLEET) {
            return Ok(());
        }
        let mut happened = std::mem::take(&mut self.happened);
        self.parts.fleet.attend(&mut happened)?;
        for event in happened.drain(..) {
            self.heard(event);
        }
        self.happened = happened;
        Ok(())
    }

    fn heard(&mut self, event: processes::Event) {
        match event {
            processes::Event::Said(slot, message) => {
                if let Some(report) = Report::from_bytes(&message.bytes) {
                    self.parts.pool.reported(slot, report.replies, report.closed, self.now);
                }
            }
            processes::Event::Started(slot) => self.parts.pool.replaced(slot, self.now),
            processes::Event::Ended(slot) => self.parts.pool.left(slot),
            processes::Event::Died(slot) => {
                // What it was never given is not lost with it.
                let kept = std::mem::take(&mut self.outboxes[slot]);
                self.parts.pool.died(slot, kept.len() as u64);
                self.unplaced.extend(kept);
            }
        }
    }

    /// Takes connections from the queues, at most accept-limit in all, and places them.
    fn accept(&mut self) {
        if self.ready.is_empty() || self.gate_as_it_should_be() != Gate::Open {
            return;
        }
        let limit = self.parts.listeners.begin_phase(&mut self.counts);
        let mut accepted = 0;
        // Another listener comes first each time, so that none waits for ever under a small limit.
        let first = self.counts.accept_phases as usize % self.ready.len();
        self.ready.sort_unstable();
        self.ready.rotate_left(first);
        while let Some(&index) = self.ready.first()
            && limit.allows(accepted + 1)
            && self.gate_as_it_should_be() == Gate::Open
        {
            match self.parts.listeners.accept(index, self.now, &mut self.counts) {
                Accepted::Connection(socket, peer) => {
                    accepted += 1;
                    self.place(Handed { socket, peer });
                }
                Accepted::Empty | Accepted::Dead => drop(self.ready.remove(0)),
                Accepted::Exhausted(until) => self.paused_until = Some(until),
            }
        }
    }

    /// Puts a connection into the outbox of a worker, which may have to be started for it.
    fn place(&mut self, handed: Handed) {
        match self.parts.pool.place(self.now) {
            Placement::To(slot) => self.outboxes[slot].push_back(handed),
            Placement::Start(slot) => match self.parts.fleet.start(slot) {
                Ok(()) => {
                    self.parts.pool.grown(slot, self.now);
                    self.outboxes[slot].push_back(handed);
                }
                Err(error) => self.could_not_grow(&error, handed),
            },
            Placement::Full => self.unplaced.push_back(handed),
        }
    }

    /// A worker that is wanted cannot be started: leaves it alone for a delay.
    fn could_not_grow(&mut self, error: &ServeError, handed: Handed) {
        let pause = self.parts.listeners.acceptor.next_pause();
        sys::say!("inrush: {error}; tried again in {pause}");
        self.counts.workers_not_started += 1;
        self.paused_until = Some(self.now + pause);
        self.unplaced.push_back(handed);
    }

    /// Places those whose worker is gone, as far as there is room.
    fn place_the_unplaced(&mut self) {
        for _ in 0..self.unplaced.len() {
            if self.paused_until.is_some() || !self.parts.pool.has_room() {
                return;
            }
            self.unplaced.pop_front().into_iter().for_each(|handed| self.place(handed));
        }
    }

    /// Gives every worker what was placed with it, as far as it takes it.
    fn pass_on(&mut self) {
        self.place_the_unplaced();
        self.retry_at = None;
        for (slot, outbox) in self.outboxes.iter_mut().enumerate() {
            while !outbox.is_empty() {
                let (bytes, sockets) = pack(outbox.iter());
                let count = sockets.len();
                match self.parts.fleet.send(slot, &bytes, &sockets) {
                    Ok(Sent::Yes) => drop(outbox.drain(..count)),
                    // One that has gone will be reported dead, and what it was not given placed anew.
                    Ok(Sent::Gone) => break,
                    Ok(Sent::Full) | Err(_) => {
                        self.parts.pool.decisions.passing_on_waited += 1;
                        self.retry_at = Some(self.now + RETRY);
                        break;
                    }
                }
            }
        }
    }

    /// What time brings: the end of a period, workers idle for too long, counters that have become old.
    fn expire(&mut self) {
        if self.parts.pool.period_ends().is_some_and(|end| end <= self.now) {
            self.parts.pool.end_period(self.now);
            self.unpublished = true;
        }
        while let Some(slot) = self.parts.pool.take_surplus(self.now) {
            self.parts.fleet.retire(slot);
            self.unpublished = true;
        }
        if self.unpublished && self.now - self.published >= PUBLISH_EVERY {
            self.publish();
        }
    }

    /// Has workers finish what they have, what waits in the accept queues among it, and waits for them to end.
    fn end(mut self) -> io::Result<()> {
        let until = self.now.saturating_add(self.parts.drain_timeout).saturating_add(PATIENCE);
        self.take_the_queue();
        self.parts.listeners.close(&mut self.dispatcher);
        self.dispatcher.deregister(self.parts.stop.descriptor());
        let mut told = false;
        while self.parts.fleet.any_left() {
            self.pass_on();
            let overdue = self.now >= until;
            let passed_on = self.unplaced.is_empty() && self.outboxes.iter().all(VecDeque::is_empty);
            if !told && (passed_on || overdue) {
                self.parts.fleet.drain();
                told = true;
            }
            if overdue {
                self.parts.fleet.kill();
            }
            // A killed one ends soon.
            let next = [self.retry_at, self.parts.fleet.due(), Some(until)].into_iter().flatten().min();
            let timeout = next.map(|next| next.saturating_sub(self.now).max(Nanos::MILLISECOND));
            self.events.clear();
            self.dispatcher.wait(&mut self.events, timeout)?;
            self.now = self.clock.now();
            self.paused_until = self.paused_until.filter(|until| *until > self.now);
            self.attend()?;
            self.publish();
        }
        let left = self.unplaced.len() + self.outboxes.iter().map(VecDeque::len).sum::<usize>();
        self.counts.cut_off_at_shutdown += left as u64;
        self.unplaced.clear();
        self.publish();
        Ok(())
    }

    /// Accepts what the kernel has accepted for us; the gate says how much of it.
    fn take_the_queue(&mut self) {
        for index in 0..self.parts.listeners.listeners.len() {
            while self.gate_as_it_should_be() == Gate::Open {
                match self.parts.listeners.accept(index, self.now, &mut self.counts) {
                    Accepted::Connection(socket, peer) => self.place(Handed { socket, peer }),
                    Accepted::Dead => {}
                    Accepted::Empty | Accepted::Exhausted(_) => break,
                }
            }
        }
    }

    fn publish(&mut self) {
        let worker = |(place, load): (usize, super::scheduler::Load)| WorkerFigures {
            place,
            throughput_per_s: load.throughput,
            connections: load.connections,
        };
        self.parts.board.publish(Counters {
            loops: self.counts.clone(),
            connections: self.connections(),
            queue: self.parts.listeners.queue(),
            workers: self.parts.pool.loads().map(worker).collect(),
            decisions: Some(self.parts.pool.decisions.clone()),
            ..Counters::default()
        });
        self.published = self.now;
        self.unpublished = false;
    }
}
