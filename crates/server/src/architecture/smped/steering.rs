//! The kernel as dispatcher: each worker has accept queues of its own, and a BPF program chooses the queue at the SYN.
//!
//! ```text
//!                 ┌─ the program: the schedule, at each SYN ─┐
//!   SYN ────────> │   reads and adds to [C_i, T_i, alive]    │ ──> accept queue of worker i ──> worker i
//!                 └──────────────────────────────────────────┘                                     │
//!                                  ^                    plain stores, each turn                    │
//!                                  └───────────────────────────────────────────────────────────────┘
//!   parent: looks at the same memory every 20 ms; starts, replaces, stops; moves queues
//! ```
//!
//! The parent dispatches nothing. It is the paper's resource controller:
//!
//! - If the first worker by the schedule had no room (`crowded`), or connections wait at a full worker, the parent
//!   starts one.
//! - If a worker has been idle for too long, the parent clears `alive`, moves the queue, and tells the worker to end.
//! - If a worker has died or is silent, the parent clears `alive`, moves the queue, and listens again, for the
//!   successor or for the same worker.
//!
//! To move a queue, the parent shuts the listener down. The kernel then runs the program for each waiting connection,
//! and moves the connection. If no other worker is alive, the connections stay in the queue, because the parent holds
//! the listeners too.
//!
//! Owns the parent's thread and the words that workers show. [`account`] decides, [`queues`] are the listeners with the
//! program, [`arrivals`] is the worker's side, and [`report`] computes the worker's C_i and T_i.
//!
//! Invariants: `alive` is cleared before a listener stops. While no worker has a connection, and none is starting or
//! silent, the parent sleeps until a connection comes.
//!
//! Deviations from the paper: the worker itself measures T_i and C_i, so that a stuck worker keeps its T_i. A connection that
//! needs one more worker waits in a full worker's queue, and is moved when the new worker answers.

mod account;
mod arrivals;
mod queues;
mod report;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Clock, Nanos};
use bpf::BpfError;
use bpf::steering::{Steering, Workers};
use sys::thread::stop::Stop;

use self::account::{Account, Seen, Sight, State};
use self::queues::{Queues, schedule};
use super::settings::{PATIENCE, SCHEDULE, START_PAUSE, SmpedSettings, role, smped_settings};
use crate::driver::pools::waiters::{readable, sleep};
use crate::ground::counters::{Board, Counters, LoopCounts, SteeringCounts, WorkerFigures};
use crate::ground::error::{ServeError, system};
use crate::ground::scoreboard::IDLE_FROM;
use crate::ground::threads::start_thread;
use crate::plan::{Opened, Opening, Plan, Started};
use crate::processes::{Event, Fleet, Reclaims};
pub use arrivals::work;

/// Words of a worker in shared memory, after [`IDLE_FROM`]: the turns of its loop, and its open connections. The
/// parent writes [`PINCHED_FROM`]: the time since which no other worker can take the connections in the queue, or 0.
const TURNS: usize = IDLE_FROM + 1;
const OPEN: usize = TURNS + 1;
const PINCHED_FROM: usize = OPEN + 1;
const WORDS: usize = PINCHED_FROM + 1;

/// Interval of the parent's looks while connections come. A new worker takes about as long to begin.
const LOOK_EVERY: Nanos = Nanos::from_millis(20);
/// Interval of the looks when no connection has come for [`CALM_AFTER`] and some are open.
const LOOK_RARELY: Nanos = Nanos::from_millis(100);
const CALM_AFTER: Nanos = Nanos::SECOND;

/// Loads the program.
///
/// # Errors
/// [`BpfError`]: a missing capability or kernel facility, or too many workers.
pub fn load(plan: &Plan) -> Result<Steering, BpfError> {
    let config = plan.config();
    Steering::load(schedule(config.chosen.get(&SCHEDULE).unwrap_or_default()), smped_settings(config).p_max)
}

/// Starts the parent's thread.
///
/// # Errors
/// [`ServeError`]: the server cannot listen, open a descriptor or start the thread, or the kernel rejects the
/// program.
pub fn start(plan: &Plan, opening: Opening, steering: Steering) -> Result<Started, ServeError> {
    let config = plan.config();
    let settings = smped_settings(config);
    let by_slot = opening.bind_groups(plan, settings.p_max)?;
    let mut queues = Queues::new(steering, by_slot, config.backlog, settings.c_max.into());
    for slot in 0..settings.initial {
        queues.open(slot)?;
        queues.reset(slot);
        queues.worker(slot).set_alive(true);
    }
    if plan.queue_target().is_some() {
        sys::say!(
            "overload control: only the backlog bounds the accept queues: an address takes one program, and has that \
             of --handoff kernel"
        );
    }
    let memory = queues.memory().map_err(system("share the memory of the workers"))?;
    let fleet = Fleet::new(plan, role(&settings, WORDS), vec![memory])?;
    let board = board(fleet.board(), queues.figures()?, settings.p_max);
    let (stop, addresses) = (Stop::new().map_err(system("make an eventfd"))?, queues.addresses());
    let parent = Parent {
        account: Account::new(&settings),
        settings,
        queues,
        fleet,
        reclaims: Reclaims::default(),
        board: board.clone(),
        loops: LoopCounts::default(),
        counts: SteeringCounts::default(),
        crowded: 0,
        awake_until: Nanos::ZERO,
        look_at: Nanos::ZERO,
        stop: stop.clone(),
        drain_timeout: config.drain_timeout,
    };
    let body = move || parent.run();
    let running = start_thread("steering".to_owned(), &config.cpus, stop, board, addresses, body)?;
    Ok(Started { loops: vec![running], opened: Opened::default() })
}

/// The counters of all workers, with T_i, C_i and the program's totals at the moment of reading.
fn board(workers: Board, memory: Workers, slots: usize) -> Board {
    let memory = Arc::new(memory);
    Board::with_live(move |counters| {
        counters.add(&workers.read());
        for figures in &mut counters.workers {
            let worker = memory.worker(figures.place);
            figures.throughput_per_s = worker.throughput().0;
            figures.connections = u32::try_from(worker.connections()).unwrap_or(u32::MAX);
        }
        let totals = memory.totals();
        let counts = counters.steering.get_or_insert_default();
        counts.steered = (0..slots).map(|slot| memory.worker(slot).assigned()).sum();
        counts.steering_crowded = totals.crowded;
        counts.steering_full = totals.full;
        counts.steering_unsteered = totals.unsteered;
        counts.steering_migrated = totals.migrated;
    })
}

/// The parent's thread.
struct Parent {
    settings: SmpedSettings,
    account: Account,
    queues: Queues,
    fleet: Fleet,
    reclaims: Reclaims,
    board: Board,
    loops: LoopCounts,
    counts: SteeringCounts,
    /// The program's count of crowded connections at the last look.
    crowded: u64,
    /// Until this time the parent looks regularly, even if no connection is open, because connections came recently.
    awake_until: Nanos,
    /// The time of the next look, unless the parent sleeps.
    look_at: Nanos,
    stop: Stop,
    drain_timeout: Nanos,
}

impl Parent {
    fn run(mut self) -> io::Result<()> {
        for slot in 0..self.settings.initial {
            self.fleet.start(slot).map_err(io::Error::other)?;
            self.welcome(slot, true);
        }
        while !self.stop.asked() {
            let woken = self.wait()?;
            self.handle_workers()?;
            let now = self.fleet.clock().now();
            if woken {
                self.awake_until = now + CALM_AFTER;
            }
            if woken || now >= self.look_at || self.account.next_surplus().is_some_and(|next| next.at <= now)
            {
                self.look_at_workers(now);
            }
        }
        self.end()
    }

    /// Sleeps until an event or a deadline. Returns true if a connection has woken the parent.
    fn wait(&self) -> io::Result<bool> {
        let now = self.fleet.clock().now();
        let asleep = now >= self.awake_until && self.account.is_idle();
        let surplus = self.account.next_surplus().map(|surplus| surplus.at);
        let look = (!asleep).then_some(self.look_at);
        let next = [self.fleet.due(), surplus, look].into_iter().flatten().min();
        let mut set = [self.stop.descriptor(), self.fleet.ready()].map(|ready| readable(&ready)).to_vec();
        let first_queue = set.len();
        if asleep {
            let slots = self.account.listening().filter(|slot| self.queues.is_open(*slot));
            let listeners = slots.flat_map(|slot| self.queues.listeners(slot));
            set.extend(listeners.map(|listener| readable(&listener.socket)));
        }
        sleep(&mut set, next.map(|next| next.saturating_sub(now)))?;
        Ok(set[first_queue..].iter().any(|queue| queue.reported() != 0))
    }

    /// Handles starts, deaths and messages of workers.
    fn handle_workers(&mut self) -> io::Result<()> {
        let mut happened = Vec::new();
        self.fleet.handle_events(&mut happened)?;
        for event in happened {
            let now = self.fleet.clock().now();
            match event {
                Event::Started(slot) => {
                    self.queues.reset(slot);
                    self.welcome(slot, false);
                }
                // The worker is at the connection limit, and another worker's connection has been idle longest.
                Event::Said(..) => {
                    let account = &self.account;
                    let answers = |slot| account.state(slot) == State::Running;
                    self.reclaims.reclaim(&self.fleet, answers, || true, now);
                }
                Event::Ended(slot) => self.left(slot),
                Event::Died(slot) => self.died(slot),
            }
            self.look_at = now;
        }
        Ok(())
    }

    /// Gives its listeners to a worker that was started.
    fn welcome(&mut self, slot: usize, alive: bool) {
        let listeners = self.queues.listeners(slot).iter();
        let sockets: Vec<_> = listeners.map(|listener| listener.socket.as_fd()).collect();
        // If the worker has died, the fleet reports it.
        let _ = self.fleet.send(slot, b"", &sockets);
        self.account.started(slot, alive, self.fleet.clock().now());
    }

    fn died(&mut self, slot: usize) {
        self.queues.reset(slot);
        self.account.died(slot);
        self.counts.connections_lost_with_worker += self.forget(slot);
        if self.account.state(slot) == State::Vacant {
            self.queues.shut(slot);
        } else {
            self.move_queue(slot);
        }
        self.publish();
    }

    fn left(&mut self, slot: usize) {
        self.account.left(slot);
        self.forget(slot);
        // The worker's loop may have changed the backlog, which makes a listener listen again.
        self.queues.shut(slot);
    }

    /// Clears the shared words of a worker that has ended. Returns the connections that it had.
    fn forget(&self, slot: usize) -> u64 {
        self.fleet.own(slot)[IDLE_FROM].store(0, Ordering::Relaxed);
        self.fleet.own(slot)[OPEN].swap(0, Ordering::SeqCst)
    }

    /// Moves the queue of a worker to others, if any other is alive.
    fn move_queue(&mut self, slot: usize) {
        if self.account.another_is_alive(slot) {
            self.or_say(slot, |queues| queues.hand_over(slot));
            // The message makes the worker count its queue anew. A dead worker needs no message.
            let _ = self.fleet.send(slot, b"", &[]);
        }
    }

    fn or_say(&mut self, slot: usize, change: impl FnOnce(&mut Queues) -> Result<(), ServeError>) {
        if let Err(error) = change(&mut self.queues) {
            sys::say!("inrush: worker {slot} gets no connections: {error}");
        }
    }

    /// Looks at every worker; moves queues, starts and stops workers.
    fn look_at_workers(&mut self, now: Nanos) {
        let mut crowded = self.is_crowded();
        for slot in self.account.listening() {
            self.look_at_one(slot, now);
            crowded |= self.relieve(slot, now);
        }
        if crowded {
            self.grow(now);
        }
        while let Some(slot) = self.account.take_surplus(now) {
            self.counts.workers_stopped_idle += 1;
            self.queues.worker(slot).set_alive(false);
            self.queues.shut(slot);
            self.fleet.retire(slot);
        }
        self.publish();
        self.look_at = now + if now < self.awake_until { LOOK_EVERY } else { LOOK_RARELY };
    }

    fn is_crowded(&mut self) -> bool {
        let crowded = self.queues.totals().crowded;
        std::mem::replace(&mut self.crowded, crowded) != crowded
    }

    fn look_at_one(&mut self, slot: usize, now: Nanos) {
        let (words, record) = (self.fleet.own(slot), self.queues.worker(slot));
        let seen = Seen {
            turns: words[TURNS].load(Ordering::Acquire),
            open: words[OPEN].load(Ordering::Relaxed),
            connections: record.connections(),
            assigned: record.assigned(),
        };
        let (sight, given) = self.account.evaluate_reading(slot, seen, || self.queues.waits(slot), now);
        if given {
            self.awake_until = now + CALM_AFTER;
        }
        match sight {
            Sight::Nothing => {}
            Sight::Answers => record.set_alive(true),
            Sight::Ghosts => drop(self.fleet.send(slot, b"", &[])),
            Sight::FallsSilent => {
                self.counts.workers_silent += 1;
                record.set_alive(false);
                // A silent worker would not close its longest-idle connection when told.
                words[IDLE_FROM].store(0, Ordering::Relaxed);
            }
        }
    }

    /// Moves the queue of a worker that does not accept or is full. Returns true if the worker is full and no other
    /// has room, so that only one more worker could help.
    fn relieve(&mut self, slot: usize, now: Nanos) -> bool {
        if !self.queues.is_open(slot) {
            self.or_say(slot, |queues| queues.open(slot));
        }
        let does_not_accept = matches!(self.account.state(slot), State::Silent | State::Down);
        let waits = (does_not_accept || self.account.is_full(slot)) && self.queues.waits(slot);
        let pinched = waits && !does_not_accept && !self.account.another_has_room(slot);
        if waits && !pinched {
            self.move_queue(slot);
        }
        let alone = pinched && !self.account.may_grow(now);
        if alone {
            self.reclaims.reclaim(&self.fleet, |place| place == slot, || true, now);
        }
        let from = &self.fleet.own(slot)[PINCHED_FROM];
        if !alone {
            from.store(0, Ordering::Relaxed);
        } else if from.load(Ordering::Relaxed) == 0 {
            from.store(now.0, Ordering::Relaxed);
        }
        pinched
    }

    /// Starts one more worker, if there may be one.
    fn grow(&mut self, now: Nanos) {
        let Some(slot) = self.account.vacancy(now) else { return };
        self.queues.reset(slot);
        let started = self.queues.open(slot).and_then(|()| self.fleet.start(slot));
        match started {
            Ok(()) => self.welcome(slot, false),
            Err(error) => {
                self.queues.shut(slot);
                self.account.pause(now + START_PAUSE);
                self.loops.workers_not_started += 1;
                sys::say!("inrush: {error}; tried again in {START_PAUSE}");
            }
        }
    }

    fn publish(&self) {
        let runs = |slot: &usize| matches!(self.account.state(*slot), State::Running | State::Silent);
        let figures = |place| WorkerFigures { place, throughput_per_s: 0.0, connections: 0 };
        self.board.publish(Counters {
            loops: self.loops.clone(),
            workers: self.account.listening().filter(runs).map(figures).collect(),
            steering: Some(self.counts.clone()),
            ..Counters::default()
        });
    }

    /// Has workers take the connections in their queues and finish, and waits for them to end.
    fn end(mut self) -> io::Result<()> {
        self.queues.seal();
        for slot in self.account.listening() {
            let does_not_accept = matches!(self.account.state(slot), State::Silent | State::Down);
            if does_not_accept && self.account.another_is_alive(slot) {
                self.queues.shut(slot);
            }
        }
        let within = self.drain_timeout.saturating_add(PATIENCE);
        self.fleet.end(within, |_| ())?;
        let open = (0..self.settings.p_max).filter(|slot| self.queues.is_open(*slot));
        self.loops.cut_off_at_shutdown += open.map(|slot| self.queues.depth(slot)).sum::<u64>();
        self.publish();
        Ok(())
    }
}
