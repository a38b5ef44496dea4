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
//! The threads are stackful coroutines, scheduled cooperatively: a thread keeps the processor until it yields an
//! [`Ask`]. No other thread runs between two yields, so all threads share their state without locks.
//!
//! Each thread has [`STACK_BYTES`] of address space above a guard page. Only touched pages take memory. Stacks are
//! reused, the latest first.
//!
//! Owns the threads, their stacks, and the descriptors that they wait for. Does not know the protocols that they serve.
//!
//! Invariants: nothing in [`Shared`] is borrowed across a yield; a thread waits for one thing at a time; a thread that
//! waits for an idle connection is in [`Shared::idle`], unless it must give that connection up, and keeps its place
//! there through a wake that finds nothing; at most one acceptor is woken between two get-events, and only if the accept
//! queue may hold a connection.

mod scheduler;
mod thread;

pub use scheduler::run;
pub use thread::UserThread;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{Key, Nanos};
use connection::SocketService;
use dispatch::Dispatcher;

use super::lender::Lender;
use crate::connections::accept::{Acceptor, Arrived, PhaseEnd, RECLAIM_PAUSE, Short};
use crate::connections::idle::IdleList;
use crate::connections::overload_control::AcceptControl;
use crate::ground::choices::IdleSessions;
use crate::ground::listener::Listener;

/// Address space of a stack. In a development build the deepest paths of HTTP use 16 KiB: 128 fields, 60 ranges, the
/// lookup of a name of 7000 bytes. A TLS handshake with X25519MLKEM768 uses 40 KiB, and a test keeps that below a half.
const STACK_BYTES: usize = 96 * 1024;

/// A thread's request to the scheduler when it gives up the processor.
enum Ask {
    /// Run again when the thread's socket is ready, at this time at the latest.
    Socket(Nanos),
    /// Run again when there may be a connection to accept.
    Connections,
    /// Run again after the other runnable threads.
    Turn,
    /// Run again when the last child has ended.
    Children,
}

type Yielder = corosensei::Yielder<(), Ask>;
type Coroutine = corosensei::Coroutine<(), Ask, ()>;
type Body<M, S> = Box<dyn FnOnce(&mut UserThread<'_, M, S>)>;

/// The state that the scheduler and all threads share.
struct Shared<M, S> {
    dispatcher: RefCell<Dispatcher<M>>,
    lender: RefCell<Lender<S>>,
    listeners: RefCell<Vec<Listener>>,
    acceptor: RefCell<Acceptor>,
    control: RefCell<Option<AcceptControl>>,
    /// Idle connections give way to others, or stay.
    idle_sessions: IdleSessions,
    /// Threads whose connections are idle.
    idle: RefCell<IdleList>,
    /// Threads that must give up their idle connections.
    reclaimed: RefCell<Vec<Key>>,
    /// The accept queue may hold a connection.
    ready: Cell<bool>,
    /// The time when a thread last took a connection.
    last_taken: Cell<Nanos>,
    /// The end of a pause, in which no thread accepts.
    paused_until: Cell<Option<Nanos>>,
    /// The time when every connection is cut off; `None` before the shutdown.
    drain_until: Cell<Option<Nanos>>,
    /// Connections that were accepted when the shutdown began, and are not yet served.
    leftover: RefCell<Vec<Arrived>>,
    /// Threads to be started.
    spawned: RefCell<Vec<Body<M, S>>>,
    /// Threads whose last child has ended.
    bereft: RefCell<Vec<Key>>,
}

impl<M, S: SocketService> Shared<M, S> {
    /// Runs one accept phase, and notes the state of the queue. Without room, it closes an idle connection or else
    /// turns the waiting ones away.
    fn accept_phase(&self, now: Nanos, batch: &mut Vec<Arrived>) {
        let (mut acceptor, listeners) = (self.acceptor.borrow_mut(), self.listeners.borrow());
        let mut lender = self.lender.borrow_mut();
        let before = batch.len();
        let found = acceptor.phase(&listeners, now, lender.counting(), batch);
        let end = match found {
            PhaseEnd::NoRoom(_) if self.reclaim(now) => PhaseEnd::Pause(now + RECLAIM_PAUSE),
            PhaseEnd::NoRoom(short) => acceptor.turn_away_phase(&listeners, short, now, lender.counting()),
            end => end,
        };
        if let Some(control) = &mut *self.control.borrow_mut() {
            control.accepted((batch.len() - before) as u64 + acceptor.take_refused(), found);
        }
        if !batch.is_empty() {
            self.last_taken.set(now);
        }
        match end {
            PhaseEnd::Empty => self.ready.set(false),
            PhaseEnd::Pause(until) => self.paused_until.set(Some(until)),
            PhaseEnd::AtLimit | PhaseEnd::NoRoom(_) => {}
        }
    }

    /// Returns true if connections wait in the accept queues, and notes that. Under edge triggering no event reports
    /// that a queue has become empty.
    fn somebody_waits(&self) -> bool {
        let waits = self.listeners.borrow().iter().any(Listener::somebody_waits);
        self.ready.set(waits);
        waits
    }

    /// Makes the thread with the longest-idle connection close it. Returns false if none is idle.
    fn reclaim(&self, now: Nanos) -> bool {
        if self.idle_sessions == IdleSessions::Stay {
            return false;
        }
        let mut idle = self.idle.borrow_mut();
        let Some(longest) = idle.longest(now) else { return false };
        idle.leave(longest);
        self.reclaimed.borrow_mut().push(longest);
        true
    }

    /// Turns away the connections that wait for a pool that has stood still.
    fn turn_away(&self, now: Nanos) {
        let mut lender = self.lender.borrow_mut();
        let (listeners, counts) = (self.listeners.borrow(), lender.counting());
        let mut acceptor = self.acceptor.borrow_mut();
        acceptor.turn_away_phase(&listeners, Short::Connections, now, counts);
        if let Some(control) = &mut *self.control.borrow_mut() {
            control.accepted(acceptor.take_refused(), PhaseEnd::AtLimit);
        }
    }
}

/// A guard that each child holds. Its drop notes the child's end on every path; the parent may wait for the last one.
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
