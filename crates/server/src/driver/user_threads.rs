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
//! Invariants: nothing in [`Shared`] is borrowed across a yield; a thread waits for one thing at a time; at most
//! one acceptor is woken between two get-events, and only when the accept queue may hold something.

mod scheduler;
mod thread;

pub use scheduler::run;
pub use thread::UserThread;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use base::{Key, Nanos};
use dispatch::Dispatcher;

use super::blocking::Common;
use super::readiness::SocketService;
use crate::accept::{Acceptor, Arrived, PhaseEnd};
use crate::listener::Listener;
use crate::slots::Slots;

/// Address space of a stack. In a development build the deepest paths (128 fields, 60 ranges, a name of 7000
/// bytes to be looked up) touch a quarter of it.
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
    common: RefCell<Common<S>>,
    listeners: RefCell<Vec<Listener>>,
    acceptor: RefCell<Acceptor>,
    slots: Arc<Slots>,
    /// The accept queue may hold something.
    ready: Cell<bool>,
    /// An accept phase has met the connection limit.
    full: Cell<bool>,
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
    /// One accept phase, and what it says about the queue.
    fn accept_phase(&self, now: Nanos, batch: &mut Vec<Arrived>) -> PhaseEnd {
        let (mut acceptor, listeners) = (self.acceptor.borrow_mut(), self.listeners.borrow());
        let mut common = self.common.borrow_mut();
        let end = acceptor.phase(&listeners, now, &self.slots, common.counting(), batch);
        self.full.set(end == PhaseEnd::Full);
        match end {
            PhaseEnd::Empty => self.ready.set(false),
            PhaseEnd::Exhausted(until) => self.paused_until.set(Some(until)),
            PhaseEnd::AtLimit | PhaseEnd::Full => {}
        }
        end
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
