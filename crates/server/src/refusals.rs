//! Connections without room, and the loop that answers them 503.
//!
//! ```text
//!   acceptors, at the limit ──take──> waiting ──> one loop: reads the request, answers 503, lingers
//! ```
//!
//! Any acceptor of the server hands over the connections that it turns away, and forgets them. One small loop on a
//! thread of its own then speaks HTTP. It waits for the request, which may not have arrived, and answers. Then it
//! shuts its side down and reads until the peer has closed, so that no reset overtakes the answer (RFC 9112, 9.6). It
//! uses the server's deadlines and access log.
//!
//! Some descriptors are kept in reserve for the time when no others are left. An acceptor gives one up to accept the
//! connection that it turns away. The loop takes one back when it closes a connection.
//!
//! Owns the connections that are turned away, outside the connection limit and with a limit of their own. Does not
//! choose them.
//!
//! Invariants: at most [`MOST_WAITING`] connections wait here and [`MOST_OPEN`] are answered. Beyond those, newcomers
//! stay in the accept queue until some have gone.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{Limit, Nanos};
use dispatch::mechanism::Poll;
use dispatch::{Dispatcher, Mechanism};
use http1::{Request, Response, Service};
use rustix::event::{EventfdFlags, eventfd};
use sys::socket::AcceptQueue;

use crate::accept::{Accepted, Arrived, Short};
use crate::access_log::LoopLog;
use crate::counters::{Board, LoopCounts};
use crate::driver::Stop;
use crate::driver::event_loop::{Arrivals, News, Parts};
use crate::driver::readiness::{self, ByPhases};
use crate::driver::socket_service::SocketService;
use crate::error::{ServeError, system};
use crate::plan::{LoopHandle, Plan, start_thread};
use crate::service::unavailable;
use crate::slots::Share;

/// Connections answered at once. A loop of this size on poll(2) takes some 20 us per wait.
const MOST_OPEN: usize = 256;
/// Connections handed over and not yet looked at: a quarter of the usual accept queue.
const MOST_WAITING: usize = 1024;

/// Reserve descriptors: the connections that can be answered at once when no other descriptor is left.
const RESERVE: usize = 8;

/// Descriptors that connections may hold beyond the connection limit while they are turned away, reserve included.
pub const DESCRIPTORS: usize = MOST_OPEN + MOST_WAITING + RESERVE;

/// The place where acceptors hand over connections; clones share it.
#[derive(Clone, Debug)]
pub struct Refusals(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Readable while there is work.
    wake: OwnedFd,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    connections: VecDeque<(OwnedFd, Option<SocketAddr>)>,
    reserve: Vec<OwnedFd>,
    /// Silent connections to be closed, because another connection needs their descriptors.
    asked: usize,
}

impl Waiting {
    /// Fills the reserve while there are descriptors.
    fn fill_reserve(&mut self) {
        let missing = RESERVE - self.reserve.len();
        let opened = std::iter::repeat_with(|| File::open("/dev/null")).take(missing).map_while(Result::ok);
        self.reserve.extend(opened.map(OwnedFd::from));
    }
}

impl Refusals {
    /// Makes an empty queue with its reserve.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Refusals> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut waiting = Waiting::default();
        waiting.fill_reserve();
        Ok(Refusals(Arc::new(Shared { wake, waiting: Mutex::new(waiting) })))
    }

    /// Tells whether there is room for another connection. Several acceptors that ask at once may all get the same
    /// answer.
    pub fn has_room(&self) -> bool {
        self.waiting().connections.len() < MOST_WAITING
    }

    /// Gives up a reserve descriptor. If none is left, asks the loop to close a silent connection that was turned
    /// away before.
    pub fn use_reserve(&self) {
        let mut waiting = self.waiting();
        if waiting.reserve.pop().is_none() {
            waiting.asked = 1;
            drop(waiting);
            self.wake();
        }
    }

    /// Fills the reserve again, if the given-up descriptor was not used.
    pub fn fill_reserve(&self) {
        self.waiting().fill_reserve();
    }

    /// Takes a connection over, to be answered 503.
    pub fn take(&self, socket: OwnedFd, peer: Option<SocketAddr>) {
        self.waiting().connections.push_back((socket, peer));
        self.wake();
    }

    fn wake(&self) {
        // The counter is full only after an earlier write, so the loop wakes in any case.
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the loop that answers connections.
///
/// # Errors
/// [`ServeError::System`]: descriptors, the thread.
pub fn start(plan: &Plan, refusals: Refusals) -> Result<LoopHandle, ServeError> {
    let parts = Parts {
        arrivals: TurnedAway { refusals, share: Share::alone(MOST_OPEN), closed: 0 },
        service: Unavailable,
        settings: plan.settings(),
        read_after_accept: true,
        log: plan.log().map(LoopLog::new),
        board: Board::default(),
        mechanism: dispatch::Settings::default(),
        stop: Stop::new().map_err(system("make an eventfd"))?,
        drain_timeout: plan.config().drain_timeout,
    };
    let (stop, board) = (parts.stop.clone(), parts.board.clone());
    let body = move || readiness::run::<Poll, _, ByPhases, _>(parts);
    start_thread("refusals".to_owned(), &[], stop, board, Vec::new(), body)
}

/// A service that answers every request with 503.
struct Unavailable;

impl Service for Unavailable {
    type File = site::File;

    fn respond(&mut self, _request: &Request<'_>, _now: Nanos) -> Response<site::File> {
        Response { close: true, ..unavailable() }
    }
}

impl SocketService for Unavailable {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The arrivals of the loop.
struct TurnedAway {
    refusals: Refusals,
    share: Share,
    /// Connections closed when the reserve was last filled.
    closed: u64,
}

impl Arrivals for TurnedAway {
    fn sources(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.refusals.0.wake.as_fd())
    }

    fn limit(&self) -> Limit {
        Limit::Infinite
    }

    fn accept(&mut self, _index: usize, now: Nanos, counts: &mut LoopCounts) -> Accepted {
        let mut waiting = self.refusals.waiting();
        if waiting.connections.is_empty() {
            // Readable while some wait. Connections that come from now on are written after the lock is free.
            let _ = rustix::io::read(&self.refusals.0.wake, &mut [0; 8]);
            return Accepted::Empty;
        }
        let Some(slot) = self.share.take() else {
            counts.limit_connections += 1;
            return Accepted::NoRoom(Short::Connections);
        };
        let (socket, peer) = waiting.connections.pop_front().expect("one was there");
        Accepted::Connection(Arrived { socket, peer, at: now, slot })
    }

    fn queue(&self) -> AcceptQueue {
        AcceptQueue { depth: self.refusals.waiting().connections.len() as u32, ..AcceptQueue::default() }
    }

    fn close<M: Mechanism>(&mut self, dispatcher: &mut Dispatcher<M>) {
        dispatcher.deregister(self.refusals.0.wake.as_fd());
    }

    fn asked(&mut self) -> usize {
        std::mem::take(&mut self.refusals.waiting().asked)
    }

    fn hear(&mut self, news: News, _now: Nanos) -> Option<Nanos> {
        if std::mem::replace(&mut self.closed, news.closed) != news.closed {
            self.refusals.waiting().fill_reserve();
        }
        None
    }
}
