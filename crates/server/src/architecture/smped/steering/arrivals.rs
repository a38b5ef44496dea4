//! A worker that accepts from queues of its own, which a program in the kernel fills.
//!
//! ```text
//!   parent ── listeners, once; count anew; drain ──> control socket ─┐
//!                                                                    ├─> the loop of a worker
//!   kernel ── connections ──> the worker's accept queues ────────────┘      │ each turn: turns, C_i, T_i
//!     ^                                                                     v
//!     └──────────────────────────── shared memory <─────────────────────────┘
//! ```
//!
//! Owns the [`Arrivals`] of the loop. The loop itself is SPED's, its accept phase the ordinary one. At C_max the worker
//! leaves connections in its queue: the parent moves them to workers that have room, starts one, or has a connection
//! reclaimed. If none of these helps for [`STILL`], the worker makes room by itself, as at the connection limit.
//!
//! The connection limit is one number for all workers ([`Share::of_process`]). At the limit the longest-idle
//! connection of all workers is closed; if it is another worker's, the worker asks the parent.
//!
//! Invariant: nothing here waits for the parent.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Limit, Nanos};
use bpf::steering::Workers;
use dispatch::{Dispatcher, Mechanism};
use overload::law::Sessions;
use sys::socket::AcceptQueue;
use sys::thread::stop::Stop;

use super::super::settings::smped_settings;
use super::report::{Known, Report};
use super::{OPEN, PINCHED_FROM, TURNS};
use crate::connections::accept::{Accepted, Acceptor, Arrived, Look, RECLAIM_PAUSE, Short};
use crate::connections::overload_control::AcceptControl;
use crate::connections::overload_control::ControlledQueue;
use crate::connections::refusals::Refusals;
use crate::connections::slots::Share;
use crate::driver::event_loop::{Arrivals, Listeners, News, Parts};
use crate::driver::pools::full_pool::STILL;
use crate::ground::counters::LoopCounts;
use crate::ground::error::{ServeError, system};
use crate::ground::listener::Listener;
use crate::ground::scoreboard::Slot;
use crate::ground::threads::LoopHandle;
use crate::observation::access_log::LogSender;
use crate::plan::refusal_loop;
use crate::processes::{Changed, Control, Heard, Sent, Worker, orphaned};

/// Runs a worker until it is told to end and its connections have ended. Blocks.
///
/// # Errors
/// [`ServeError::System`] if descriptors run out, or if the loop fails by a mistake of ours.
pub fn work(mut worker: Worker, control: Control) -> Result<(), ServeError> {
    let memory = worker.inherited.pop().ok_or(ServeError::NoParent)?;
    let workers = Workers::open(memory).map_err(system("map the memory of the workers"))?;
    let Some(listeners) = listeners(&worker, &control)? else { return Ok(()) };
    let refusals = Refusals::new().map_err(system("make an eventfd"))?;
    let answers = refusal_loop::start(&worker.plan, refusals.clone())?;
    let (log, refused) = (worker.plan.log(), answers.board.clone());
    let board = worker.board(move |counters| {
        counters.add_refusals(&refused.read());
        counters.loops.log_lines_dropped = log.as_ref().map_or(0, LogSender::dropped);
    });
    let config = worker.plan.config();
    let settings = smped_settings(config);
    let share = Share::of_process(config.max_connections, Arc::clone(&worker.slot), OPEN);
    let acceptor = Acceptor::new(worker.plan.limit(), share.clone(), Some(refusals));
    let overload = worker.plan.control_by_backlog(format!("worker {}: ", worker.place), &listeners);
    let stop = Stop::new().map_err(system("make an eventfd"))?;
    let arrivals = OwnQueue {
        control,
        slot: Arc::clone(&worker.slot),
        place: worker.place,
        workers,
        listeners: Listeners::new(ControlledQueue { listeners, control: overload }, acceptor),
        share,
        c_max: settings.c_max as usize,
        taken: 0,
        last_taken: Nanos::ZERO,
        report: Report::new(settings.period, settings.alpha),
        asked: 0,
        draining: false,
        stop: stop.clone(),
        reconfigure: Box::new(worker.reconfigurer()),
    };
    let parts = Parts { board, stop, ..worker.plan.parts_for(arrivals)? };
    let ran = worker.plan.run_worker(parts);
    let LoopHandle { thread, stop, .. } = answers;
    stop.ask();
    // The result of this thread no longer matters.
    let _ = thread.join();
    ran.map_err(system("run the event loop of a worker"))
}

/// Receives the listeners, which the parent sends first. Returns `None` if the worker is to end before it has begun.
/// Blocks.
fn listeners(worker: &Worker, control: &Control) -> Result<Option<Vec<Listener>>, ServeError> {
    loop {
        match control.receive() {
            Ok(Heard::Message(message)) => {
                return worker.listeners(message.descriptors).map(Some);
            }
            Ok(Heard::Changed(text)) => worker.reconfigurer()(&text),
            Ok(Heard::Nothing) => control.wait(),
            Ok(Heard::Drain) => return Ok(None),
            Ok(Heard::Reclaim) => {}
            Ok(Heard::Gone) | Err(_) => orphaned(),
        }
    }
}

/// Connections of the worker's own queues.
struct OwnQueue {
    control: Control,
    /// Shared memory, read by the parent and the other workers.
    slot: Arc<Slot>,
    /// The worker's place.
    place: usize,
    /// The memory that the kernel's program chooses by.
    workers: Workers,
    listeners: Listeners,
    share: Share,
    c_max: usize,
    /// Connections taken from the queues, including those turned away.
    taken: u64,
    /// The time at which the worker last accepted a connection.
    last_taken: Nanos,
    report: Report,
    /// Number of idle connections that the parent wants closed.
    asked: usize,
    draining: bool,
    stop: Stop,
    reconfigure: Box<dyn Fn(&Changed)>,
}

impl OwnQueue {
    /// Handles the messages of the parent.
    fn hear_parent(&mut self) {
        loop {
            match self.control.receive() {
                Ok(Heard::Message(_)) => self.report.recount(),
                Ok(Heard::Changed(text)) => (self.reconfigure)(&text),
                Ok(Heard::Reclaim) => self.asked += 1,
                Ok(Heard::Drain) => {
                    self.draining = true;
                    self.stop.ask();
                }
                Ok(Heard::Nothing) => return,
                Ok(Heard::Gone) | Err(_) => orphaned(),
            }
        }
    }

    fn is_full(&self) -> bool {
        !self.draining && self.share.taken_here() >= self.c_max
    }

    /// Handles waiting connections at C_max. Leaves them in the queue while connections come free or another worker
    /// may help.
    fn wait_for_room(&self, index: usize, now: Nanos) -> Accepted {
        let pinched_from = Nanos(self.slot.own()[PINCHED_FROM].load(Ordering::Relaxed));
        let still = |since: Nanos| since.saturating_add(STILL) <= now;
        if !self.listeners.listeners[index].somebody_waits() {
            Accepted::Empty
        } else if pinched_from > Nanos::ZERO && still(pinched_from) && still(self.last_taken) {
            Accepted::NoRoom(Short::Connections)
        } else {
            Accepted::Pause(now + RECLAIM_PAUSE)
        }
    }
}

impl Arrivals for OwnQueue {
    /// The control socket, then the listeners.
    fn sources(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        (0..self.listeners.listeners.len() + 1).map(|index| match index.checked_sub(1) {
            None => self.control.as_fd(),
            Some(listener) => self.listeners.listeners[listener].socket.as_fd(),
        })
    }

    fn limit(&self) -> Limit {
        self.listeners.limit()
    }

    fn accepting_took(&mut self, taken: u64, took: Nanos) {
        self.listeners.accepting_took(taken, took);
    }

    fn worked(&mut self, turns: u64, closed: u64, took: Nanos) {
        self.listeners.worked(turns, closed, took);
    }

    fn accept(&mut self, index: usize, now: Nanos, counts: &mut LoopCounts) -> Accepted {
        let Some(index) = index.checked_sub(1) else {
            self.hear_parent();
            return Accepted::Empty;
        };
        if self.is_full() {
            return self.wait_for_room(index, now);
        }
        let accepted = self.listeners.accept(index, now, counts);
        if matches!(accepted, Accepted::Connection(_)) {
            self.taken += 1;
            self.last_taken = now;
        }
        accepted
    }

    fn turn_away(&mut self, index: usize, short: Short, now: Nanos, counts: &mut LoopCounts) -> Look {
        let Some(index) = index.checked_sub(1) else { return Look::Empty };
        let look = self.listeners.turn_away(index, short, now, counts);
        self.taken += u64::from(matches!(look, Look::TurnedAway));
        look
    }

    /// Asks the parent to have the longest-idle connection closed, if it is another worker's. At C_max that would not
    /// help: the worker needs one of its own places.
    fn reclaim_elsewhere(&mut self, idle_from: Nanos, _now: Nanos) -> bool {
        let elsewhere = !self.is_full() && self.slot.idle_elsewhere() < idle_from;
        elsewhere && matches!(self.control.send(b"", &[]), Ok(Sent::Yes | Sent::Full))
    }

    fn asked(&mut self) -> usize {
        std::mem::take(&mut self.asked)
    }

    fn queue(&self) -> AcceptQueue {
        self.listeners.queue()
    }

    fn last_newcomer(&mut self, now: Nanos) -> Option<Arrived> {
        let last = self.listeners.last_newcomer(now);
        self.taken += u64::from(last.is_some());
        last
    }

    fn close<M: Mechanism>(&mut self, dispatcher: &mut Dispatcher<M>) {
        // The control socket stays open, because the parent takes its end for that of the worker.
        dispatcher.deregister(self.control.as_fd());
        self.listeners.close(dispatcher);
    }

    fn shut(&mut self) {
        self.listeners.shut();
    }

    fn control(&mut self) -> Option<&mut AcceptControl> {
        self.listeners.control()
    }

    fn late_connections(&mut self, so_far: u64) {
        self.listeners.late_connections(so_far);
    }

    fn tick(&mut self, now: Nanos) {
        self.listeners.tick(now);
    }

    fn sessions(&self) -> Sessions {
        self.listeners.sessions()
    }

    /// Shows a turn, and reports C_i and T_i.
    fn take_news(&mut self, news: News, now: Nanos) -> Option<Nanos> {
        let turns = &self.slot.own()[TURNS];
        turns.store(turns.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.slot.show_idle(news.idle_from);
        let record = self.workers.worker(self.place);
        let known = Known {
            assigned: record.assigned(),
            taken: self.taken,
            open: self.share.taken_here() as u64,
            replies: news.replies,
        };
        let told = self.report.report_at(known, || self.listeners.queue().depth.into(), now);
        record.set_connections(told.connections);
        record.set_throughput(told.throughput);
        told.due.into_iter().chain(self.listeners.control_due()).min()
    }
}
