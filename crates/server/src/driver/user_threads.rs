//! User-level threads: the blocking driver on stacks that one kernel thread switches between.
//!
//! ```text
//!   scheduler:  run the runnable ─> get events ─> wake an acceptor ─> expire
//!                  ^   | resume                       |
//!                  |   v                              |
//!                  |  thread: until it asks for       |  its socket, connections, a turn,
//!                  |          something and yields    |  or its children's end
//!                  └──────────────────────────────────┘
//! ```
//!
//! The threads are stackful coroutines, scheduled cooperatively: a thread that asks for nothing keeps the
//! processor. It asks by yielding an [`Ask`]; what it does between two of them nobody interrupts, so that all
//! share their state without locks.
//!
//! Each thread has [`STACK_BYTES`] of address space above a guard page; only what it has touched is
//! memory. Stacks are used again, latest first.
//!
//! Owns threads, their stacks, and the descriptors they wait for. Does not know what they serve.
//!
//! Invariants: nothing in [`Shared`] is borrowed across a yield; a thread waits for one thing at a time, and whoever
//! waits for an idle connection is in [`Shared::idle`], unless it is to give it up; at most one acceptor is woken between two get-events, and only when the accept queue may hold something.

mod scheduler;
mod thread;

pub use scheduler::run;
pub use thread::UserThread;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Key, Nanos};
use dispatch::Dispatcher;

use super::lender::Lender;
use super::socket_service::SocketService;
use crate::accept::{Acceptor, Arrived, PhaseEnd, RECLAIM_PAUSE, Short};
use crate::idle::IdleList;
use crate::listener::Listener;
use crate::overload_control::AcceptControl;

/// Address space of a stack. In a development build the deepest paths (128 fields, 60 ranges, a name of 7000
/// bytes to be looked up) touch a quarter of it, and a TLS handshake with an RSA key of 4096 bits a third.
const STACK_BYTES: usize = 64 * 1024;

/// What a thread asks for when it gives up the processor.
enum Ask {
    /// To run again when its socket is ready, and at this time at the latest.
    Socket(Nanos),
    /// To run again when there may be a connection to accept.
    Connections,
    /// To run again after the others.
    Turn,
    /// To run again when its last child has ended.
    Children,
}

type Yielder = corosensei::Yielder<(), Ask>;
type Coroutine = corosensei::Coroutine<(), Ask, ()>;
type Body<M, S> = Box<dyn FnOnce(&mut UserThread<'_, M, S>)>;

/// What all threads and the scheduler reach.
struct Shared<M, S> {
    dispatcher: RefCell<Dispatcher<M>>,
    lender: RefCell<Lender<S>>,
    listeners: RefCell<Vec<Listener>>,
    acceptor: RefCell<Acceptor>,
    control: RefCell<Option<AcceptControl>>,
    /// Threads that wait for idle connections.
    idle: RefCell<IdleList>,
    /// Threads that are to give up their idle connections.
    reclaimed: RefCell<Vec<Key>>,
    /// The accept queue may hold something.
    ready: Cell<bool>,
    /// When a thread last took a connection.
    last_taken: Cell<Nanos>,
    /// While paused, nobody accepts.
    paused_until: Cell<Option<Nanos>>,
    /// When every connection is cut off; nothing while the server is not going down.
    drain_until: Cell<Option<Nanos>>,
    /// Accepted when the server began to go down, and not yet served.
    leftover: RefCell<Vec<Arrived>>,
    /// Threads to be started.
    spawned: RefCell<Vec<Body<M, S>>>,
    /// Threads whose last child has ended.
    bereft: RefCell<Vec<Key>>,
}

impl<M, S: SocketService> Shared<M, S> {
    /// One accept phase, and what it says about the queue. Where there is no room, an idle connection is closed, or
    /// those that wait are turned away.
    fn accept_phase(&self, now: Nanos, batch: &mut Vec<Arrived>) {
        let (mut acceptor, listeners) = (self.acceptor.borrow_mut(), self.listeners.borrow());
        let mut lender = self.lender.borrow_mut();
        let before = batch.len();
        let end = acceptor.phase(&listeners, now, lender.counting(), batch);
        if let Some(control) = &mut *self.control.borrow_mut() {
            control.accepted((batch.len() - before) as u64 + acceptor.take_refused(), end);
        }
        let end = match end {
            PhaseEnd::NoRoom(_) if self.reclaim(now) => PhaseEnd::Pause(now + RECLAIM_PAUSE),
            PhaseEnd::NoRoom(short) => acceptor.turn_away_phase(&listeners, short, now, lender.counting()),
            end => end,
        };
        if !batch.is_empty() {
            self.last_taken.set(now);
        }
        match end {
            PhaseEnd::Empty => self.ready.set(false),
            PhaseEnd::Pause(until) => self.paused_until.set(Some(until)),
            PhaseEnd::AtLimit | PhaseEnd::NoRoom(_) => {}
        }
    }

    /// Looks whether connections wait in the accept queues: under edges nothing tells that they do no longer.
    fn somebody_waits(&self) -> bool {
        let waits = self.listeners.borrow().iter().any(Listener::somebody_waits);
        self.ready.set(waits);
        waits
    }

    /// Has the thread with the longest-idle connection close it. Returns whether there is one.
    fn reclaim(&self, now: Nanos) -> bool {
        let mut idle = self.idle.borrow_mut();
        let Some(longest) = idle.longest(now) else { return false };
        idle.leave(longest);
        self.reclaimed.borrow_mut().push(longest);
        true
    }

    /// Turns away who waits for a pool that stands still.
    fn turn_away(&self, now: Nanos) {
        let mut lender = self.lender.borrow_mut();
        let (listeners, counts) = (self.listeners.borrow(), lender.counting());
        self.acceptor.borrow_mut().turn_away_phase(&listeners, Short::Connections, now, counts);
    }
}

/// Held by a child: its end, however it comes, may be the one that its parent waits for.
struct Child<M, S> {
    shared: Rc<Shared<M, S>>,
    parent: Key,
    siblings: Rc<Cell<usize>>,
}

impl<M, S> Drop for Child<M, S> {
    fn drop(&mut self) {
        self.siblings.set(self.siblings.get() - 1);
        if self.siblings.get() == 0 {
            self.shared.bereft.borrow_mut().push(self.parent);
        }
    }
}
