//! The dispatcher: one loop that accepts, places and passes on connections, and receives the workers'
//! reports.
//!
//! ```text
//!   loop:  get_events ─> attend ─> accept ─> pass_on ─> expire
//! ```
//!
//! *attend* handles reports and deaths, and takes back connections that a worker has not begun in time.
//! *accept* takes connections up to the accept-limit and places them. *pass_on* sends each worker its placed
//! connections in one message. *expire* ends periods and idle workers.
//!
//! A worker may die or not answer. The dispatcher places its accepted connections anew before it accepts
//! others. There is no room for a connection at the connection limit, or if all workers are full. The worker
//! with the longest-idle connection then closes it. If no connection is idle, the new one is turned away.
//!
//! Invariants: the listeners are watched exactly while the gate is open. A connection is in one outbox, or
//! unplaced, or its worker's. The pool counts the connections in an outbox as the worker's.

use std::collections::VecDeque;
use std::io;

use base::{Clock, Key, Nanos, RealClock};
use dispatch::mechanism::Epoll;
use dispatch::{Dispatcher, Event, Interest, Token};
use sys::thread::stop::Stop;

use super::handover::Outbox;
use super::messages::{Handed, Report};
use super::pool::{Placement, Pool};
use super::relief::Relief;
use crate::architecture::smped::settings::{PATIENCE, START_PAUSE};
use crate::connections::accept::{Arrived, Look, PhaseEnd, RECLAIM_PAUSE, Ready, Short};
use crate::driver::event_loop::{Arrivals, Listeners, listener_token};
use crate::driver::pools::full_pool::STILL;
use crate::ground::counters::{Board, Counters, LoopCounts, PUBLISH_EVERY, WorkerFigures};
use crate::ground::error::ServeError;
use crate::processes::{self, Fleet, Reclaims};

/// Tokens of the fleet's descriptor and of the stop. No listener has them, because a listener's generation is
/// 0.
const FLEET: Token = Token(1 << 32);
const STOP: Token = Token(2 << 32);
/// Delay before another attempt to send a message that a worker had no room for.
const RETRY: Nanos = Nanos::MILLISECOND;

/// The state of accepting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Until a given time there is no room, or no resource to accept with.
    Paused,
    /// No worker answers, or some accepted connections have no worker.
    NoWorker,
}

/// The parts of a dispatcher.
pub struct Parts {
    /// The source of connections.
    pub listeners: Listeners,
    /// The account of the workers.
    pub pool: Pool,
    /// Adapts C_max; `None` for a fixed one.
    pub relief: Option<Relief>,
    /// The workers' processes.
    pub fleet: Fleet,
    /// Number of workers at the start.
    pub initial: usize,
    /// Maximum connections at once, over all workers.
    pub max_connections: usize,
    /// The destination of the counters.
    pub board: Board,
    /// The signal to end.
    pub stop: Stop,
    /// Time for workers to end.
    pub drain_timeout: Nanos,
    /// The number of processors that the workers have.
    pub processors: usize,
}

/// The state of the loop.
struct Dispatching {
    parts: Parts,
    dispatcher: Dispatcher<Epoll>,
    clock: RealClock,
    now: Nanos,
    events: Vec<Event>,
    happened: Vec<processes::Event>,
    /// The listeners that are ready in this turn.
    ready: Ready,
    /// Connections that are placed and not yet claimed, by worker.
    outboxes: Vec<Outbox>,
    reclaims: Reclaims,
    /// Accepted connections without a worker, because theirs died or does not answer.
    unplaced: VecDeque<Handed>,
    /// The connection that waits for room has been counted.
    meets_limit: bool,
    /// Time at which a connection was last placed.
    last_placed: Nanos,
    gate: Gate,
    paused_until: Option<Nanos>,
    /// Time of the next attempt to empty outboxes that could not be emptied.
    retry_at: Option<Nanos>,
    counts: LoopCounts,
    published: Nanos,
    unpublished: bool,
}

/// Runs a dispatcher until it is told to stop and its workers have ended. Blocks.
///
/// # Errors
/// The loop fails only by a mistake of ours.
pub fn run(parts: Parts) -> io::Result<()> {
    let mut this = Dispatching::new(parts)?;
    this.start_workers()?;
    while !this.parts.stop.asked() {
        this.get_events()?;
        this.handle_reports()?;
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
            ready: Ready::default(),
            outboxes: (0..parts.pool.slots()).map(|_| Outbox::default()).collect(),
            reclaims: Reclaims::default(),
            unplaced: VecDeque::new(),
            meets_limit: false,
            last_placed: clock.now(),
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

    /// Waits, and records the ready listeners.
    fn get_events(&mut self) -> io::Result<()> {
        self.mind_the_gate();
        self.events.clear();
        self.ready.clear();
        if let Some(control) = self.parts.listeners.control() {
            control.turned(self.clock.now() - self.now);
        }
        let timeout = self.next_due().map(|due| due.saturating_sub(self.now));
        self.counts.waits += 1;
        self.dispatcher.wait(&mut self.events, timeout)?;
        self.now = self.clock.now();
        self.counts.events += self.events.len() as u64;
        self.unpublished |= !self.events.is_empty();
        let listeners = self.events.iter().map(|event| Key::from(event.token));
        let ready = listeners.filter(|key| key.generation == 0);
        ready.for_each(|key| self.ready.report(key.index as usize));
        self.paused_until = self.paused_until.filter(|until| *until > self.now);
        Ok(())
    }

    /// The time of the next action that needs no event.
    fn next_due(&self) -> Option<Nanos> {
        let publish = self.unpublished.then(|| self.published + PUBLISH_EVERY);
        let surplus = self.parts.pool.next_surplus().map(|surplus| surplus.at);
        let period = self.parts.pool.period_ends();
        let answer = self.outboxes.iter().filter_map(Outbox::answer_due).min();
        let tick = self.parts.listeners.control_due();
        let due = [
            period,
            surplus,
            publish,
            self.retry_at,
            self.paused_until,
            self.parts.fleet.due(),
            answer,
            tick,
            self.parts.pool.pause_ends(self.now),
        ];
        due.into_iter().flatten().min()
    }

    /// Opens or closes the gate as the present state requires.
    fn mind_the_gate(&mut self) {
        let gate = self.gate_as_it_should_be();
        if std::mem::replace(&mut self.gate, gate) == gate {
            return;
        }
        let interest = if gate == Gate::Open { Interest::Read } else { Interest::None };
        for source in self.parts.listeners.sources() {
            self.dispatcher.modify(source, interest);
        }
    }

    fn gate_as_it_should_be(&self) -> Gate {
        if self.paused_until.is_some() {
            Gate::Paused
        } else if !self.unplaced.is_empty() || !self.parts.pool.has_answering_worker(self.now) {
            Gate::NoWorker
        } else {
            Gate::Open
        }
    }

    fn connections(&self) -> u64 {
        self.parts.pool.connections() + self.unplaced.len() as u64
    }

    /// Handles the workers' reports and events, and checks which workers answer.
    fn handle_reports(&mut self) -> io::Result<()> {
        let due = self.parts.fleet.due().is_some_and(|due| due <= self.now);
        if due || self.events.iter().any(|event| event.token == FLEET) {
            let mut happened = std::mem::take(&mut self.happened);
            self.parts.fleet.handle_events(&mut happened)?;
            for event in happened.drain(..) {
                self.heard(event);
            }
            self.happened = happened;
        }
        for slot in 0..self.outboxes.len() {
            self.see_whether_it_answers(slot);
        }
        Ok(())
    }

    /// Removes the connections that a worker has claimed. Takes back those that it has not claimed in time,
    /// so that other workers begin them.
    fn see_whether_it_answers(&mut self, slot: usize) {
        let (outbox, words) = (&mut self.outboxes[slot], self.parts.fleet.own(slot));
        if self.parts.pool.is_silent(slot) && outbox.is_answered(words) {
            self.parts.pool.answers(slot);
        }
        if let Some(taken_back) = outbox.take_back_if_late(words, self.now) {
            self.parts.pool.falls_silent(slot, taken_back.len() as u64);
            self.unplaced.extend(taken_back);
        }
    }

    fn heard(&mut self, event: processes::Event) {
        match event {
            processes::Event::Said(slot, message) => {
                if let Some(report) = Report::from_bytes(&message.bytes) {
                    self.parts.pool.reported(slot, report.replies, report.closed, self.now);
                }
            }
            processes::Event::Started(slot) => {
                self.outboxes[slot] = Outbox::default();
                self.parts.pool.replaced(slot, self.now);
            }
            processes::Event::Ended(slot) => {
                self.unplaced.extend(self.outboxes[slot].take_back(self.parts.fleet.own(slot)));
                self.parts.pool.left(slot);
            }
            processes::Event::Died(slot) => {
                // Connections that the worker had not begun are not lost with it.
                let before = self.unplaced.len();
                self.unplaced.extend(self.outboxes[slot].take_back(self.parts.fleet.own(slot)));
                self.parts.pool.died(slot, (self.unplaced.len() - before) as u64);
            }
        }
    }

    /// Takes connections from the queues, at most accept-limit in all, and places them.
    fn accept(&mut self) {
        let occupancy = self.connections() as f64 / self.parts.max_connections as f64;
        self.parts.listeners.late_connections(self.parts.fleet.late_connections());
        self.parts.listeners.tick_at(self.now, occupancy);
        if let Some(control) = self.parts.listeners.control() {
            self.parts.fleet.instruct(control.instructions(self.parts.processors));
        }
        // After a pause the wait has not asked the listeners yet, so a missing event says nothing about their
        // queues.
        if self.gate != Gate::Open || self.gate_as_it_should_be() != Gate::Open {
            return;
        }
        let mut ready = std::mem::take(&mut self.ready);
        let began = self.clock.now();
        let phase = ready.phase(self.parts.listeners.limit(), |index| self.take_connection(index));
        self.ready = ready;
        phase.count(&mut self.counts);
        if let Some(control) = self.parts.listeners.control() {
            control.accepted(phase.taken, phase.end);
        }
        self.parts.listeners.accepting_took(phase.taken, self.clock.now() - began);
        if let PhaseEnd::Pause(until) = phase.end {
            self.paused_until = Some(until);
        }
    }

    /// Takes one connection, if there is a worker for it.
    fn take_connection(&mut self, index: usize) -> Look {
        let look = self.try_to_take(index);
        self.meets_limit &= !matches!(look, Look::Taken | Look::TurnedAway | Look::Empty);
        look
    }

    fn try_to_take(&mut self, index: usize) -> Look {
        if self.gate_as_it_should_be() != Gate::Open {
            // A connection that was taken could not be placed after all, and comes before others.
            return Look::Stop(PhaseEnd::AtLimit);
        }
        let at_limit = self.connections() >= self.parts.max_connections as u64;
        if at_limit || !self.parts.pool.has_room(self.now) {
            if !self.parts.listeners.listeners[index].somebody_waits() {
                return Look::Empty;
            }
            if !std::mem::replace(&mut self.meets_limit, true) {
                self.counts.limit_connections += u64::from(at_limit);
                self.parts.pool.decisions.all_workers_full += u64::from(!at_limit);
            }
            let comes_free = self.last_placed.saturating_add(STILL) > self.now;
            if !at_limit && comes_free && self.parts.listeners.control().is_some() {
                return self.wait_for_room();
            }
            return self.make_room(index, Short::Connections);
        }
        match self.parts.listeners.accept(index, self.now, &mut self.counts).or_look() {
            Ok(Arrived { socket, peer, .. }) => {
                self.place(Handed { socket, peer });
                Look::Taken
            }
            Err(Look::Stop(PhaseEnd::NoRoom(short))) => self.make_room(index, short),
            Err(look) => look,
        }
    }

    /// Leaves connections in the accept queue, whose length overload control bounds, until workers have room.
    /// Meanwhile a worker closes the longest-idle connection.
    fn wait_for_room(&mut self) -> Look {
        self.reclaim();
        Look::Stop(PhaseEnd::Pause(self.now + RECLAIM_PAUSE))
    }

    /// Makes a worker close the longest-idle connection, or turns the new one away.
    fn make_room(&mut self, index: usize, short: Short) -> Look {
        if self.reclaim() {
            return Look::Stop(PhaseEnd::Pause(self.now + RECLAIM_PAUSE));
        }
        self.parts.listeners.turn_away(index, short, self.now, &mut self.counts)
    }

    /// Asks the answering worker with the longest-idle connection to close it. Returns true if there will be room.
    fn reclaim(&mut self) -> bool {
        let Parts { pool, fleet, .. } = &self.parts;
        self.reclaims.reclaim(fleet, |slot| !pool.is_silent(slot), || true, self.now)
    }

    /// Puts a connection into the outbox of a worker, and starts the worker if necessary.
    fn place(&mut self, handed: Handed) {
        self.last_placed = self.now;
        match self.parts.pool.place(self.now) {
            Placement::To(slot) => self.outboxes[slot].push(handed),
            Placement::Start(slot) => match self.parts.fleet.start(slot) {
                Ok(()) => {
                    self.parts.pool.grown(slot, self.now);
                    self.outboxes[slot] = Outbox::default();
                    self.outboxes[slot].push(handed);
                }
                Err(error) => self.could_not_grow(&error, handed),
            },
            Placement::Full => self.unplaced.push_back(handed),
        }
    }

    /// Handles a worker that cannot be started: until the next attempt, connections go to workers that have room.
    fn could_not_grow(&mut self, error: &ServeError, handed: Handed) {
        sys::say!("inrush: {error}; tried again in {START_PAUSE}");
        self.counts.workers_not_started += 1;
        self.parts.pool.pause(self.now + START_PAUSE);
        self.place(handed);
    }

    /// Places connections whose worker is gone or does not answer, as far as there is room.
    fn place_the_unplaced(&mut self) {
        for _ in 0..self.unplaced.len() {
            if self.paused_until.is_some() {
                return;
            }
            if !self.parts.pool.has_room(self.now) {
                // `make_room` does not run now, because the dispatcher accepts nothing.
                self.reclaim();
                self.retry_at = Some(self.now + RETRY);
                return;
            }
            self.unplaced.pop_front().into_iter().for_each(|handed| self.place(handed));
        }
    }

    /// Sends every worker its placed connections, as far as it takes them.
    fn pass_on(&mut self) {
        self.retry_at = None;
        self.place_the_unplaced();
        for (slot, outbox) in self.outboxes.iter_mut().enumerate() {
            if outbox.send(&self.parts.fleet, slot, self.now) {
                self.parts.pool.decisions.passing_on_waited += 1;
                self.retry_at = Some(self.now + RETRY);
            }
        }
    }

    /// Handles the passing of time: the end of a period, workers idle for too long, outdated counters.
    fn expire(&mut self) {
        if self.parts.pool.period_ends().is_some_and(|end| end <= self.now) {
            let Parts { pool, relief, fleet, .. } = &mut self.parts;
            if let Some(relief) = relief {
                pool.relieve(&relief.needed(|slot| fleet.own(slot), self.now), self.now);
            }
            pool.end_period(self.now);
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

    /// Lets workers finish their connections and those in the accept queues, and waits for the workers to
    /// end.
    fn end(mut self) -> io::Result<()> {
        let until = self.now.saturating_add(self.parts.drain_timeout).saturating_add(PATIENCE);
        self.take_the_queue();
        self.parts.listeners.close(&mut self.dispatcher);
        self.dispatcher.deregister(self.parts.stop.descriptor());
        let mut told = false;
        while self.parts.fleet.any_left() {
            self.pass_on();
            let overdue = self.now >= until;
            let passed_on = self.unplaced.is_empty() && self.outboxes.iter().all(Outbox::is_empty);
            if !told && (passed_on || overdue) {
                self.parts.fleet.drain();
                told = true;
            }
            if overdue {
                self.parts.fleet.kill();
            }
            // A killed worker ends soon.
            let answer = self.outboxes.iter().filter_map(Outbox::answer_due).min();
            let next =
                [self.retry_at, self.parts.fleet.due(), answer, Some(until)].into_iter().flatten().min();
            let timeout = next.map(|next| next.saturating_sub(self.now).max(Nanos::MILLISECOND));
            self.events.clear();
            self.dispatcher.wait(&mut self.events, timeout)?;
            self.now = self.clock.now();
            self.paused_until = self.paused_until.filter(|until| *until > self.now);
            self.handle_reports()?;
            self.publish();
        }
        // The connections in the outboxes came back when their workers ended.
        self.counts.cut_off_at_shutdown += self.unplaced.len() as u64;
        self.unplaced.clear();
        self.publish();
        Ok(())
    }

    /// Accepts the connections that the kernel has accepted, beyond the connection limit if necessary, and
    /// places them as far as there is room.
    fn take_the_queue(&mut self) {
        let (listeners, mut taken) = (&mut self.parts.listeners, Vec::new());
        listeners.seal();
        listeners.acceptor.last_phase(&listeners.listeners, self.now, &mut self.counts, &mut taken);
        taken.into_iter().for_each(|Arrived { socket, peer, .. }| self.place(Handed { socket, peer }));
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
