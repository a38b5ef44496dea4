//! The loop that answers 503 to connections without room, and 429 to clients at a limit.
//!
//! ```text
//!   acceptors, at the limit ──take──> waiting ──> one loop: reads the request, answers, lingers
//! ```
//!
//! Any acceptor of the server hands over the connections that it turns away ([`Refusals`]), and forgets them. One small
//! loop on a thread of its own then speaks HTTP. It waits for the request, which may not have arrived, and answers. Then
//! it shuts its side down and reads until the peer has closed, so that no reset overtakes the answer (RFC 9112, 9.6). It
//! uses the server's deadlines and access log.
//!
//! Owns the connections that are turned away, outside the connection limit and with a limit of their own. Does not
//! choose them.
//!
//! Invariant: at most [`MOST_OPEN`] connections are answered at once.

use std::os::fd::BorrowedFd;

use base::{Limit, Nanos};
use connection::SocketService;
use connection::refusal::unavailable;
use dispatch::mechanism::Poll;
use dispatch::{Dispatcher, Mechanism};
use http_semantics::{Request, Response, Service};
use sys::socket::AcceptQueue;
use sys::thread::stop::Stop;

use super::Plan;
use crate::connections::accept::{Accepted, Arrived, Short};
use crate::connections::refusals::{MOST_WAITING, RESERVE, Refusals, TurnedAway};
use crate::connections::slots::Share;
use crate::driver::event_loop::{Arrivals, News, Parts};
use crate::driver::readiness::{self, ByPhases};
use crate::ground::counters::{Board, LoopCounts};
use crate::ground::error::{ServeError, system};
use crate::ground::threads::{LoopHandle, start_thread};
use crate::observation::access_log::LoopLog;

/// Connections answered at once. A loop of this size on poll(2) takes some 20 us per wait.
const MOST_OPEN: usize = 256;
/// Descriptors that connections may hold beyond the connection limit while they are turned away, reserve included.
pub const DESCRIPTORS: usize = MOST_OPEN + MOST_WAITING + RESERVE;

/// Starts the loop that answers connections.
///
/// # Errors
/// [`ServeError::System`]: descriptors, the thread.
pub fn start(plan: &Plan, refusals: Refusals) -> Result<LoopHandle, ServeError> {
    let parts = Parts {
        arrivals: Handed { refusals, share: Share::alone(MOST_OPEN), closed: 0 },
        service: Unavailable,
        settings: plan.settings(),
        read_after_accept: true,
        log: plan.log().map(LoopLog::new),
        board: Board::default(),
        mechanism: Default::default(),
        stop: Stop::new().map_err(system("make an eventfd"))?,
        drain_timeout: plan.config().drain_timeout,
    };
    let (stop, board) = (parts.stop.clone(), parts.board.clone());
    let body = move || readiness::run::<Poll, _, ByPhases, _>(parts);
    start_thread("refusals".to_owned(), &[], stop, board, Vec::new(), body)
}

/// A service that answers every request with 503.
pub struct Unavailable;

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
struct Handed {
    refusals: Refusals,
    share: Share,
    /// Number of closed connections when the reserve was last filled.
    closed: u64,
}

impl Arrivals for Handed {
    fn sources(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.refusals.work())
    }

    fn limit(&self) -> Limit {
        Limit::Infinite
    }

    fn accept(&mut self, _index: usize, now: Nanos, _counts: &mut LoopCounts) -> Accepted {
        if self.refusals.waiting_or_silence() == 0 {
            return Accepted::Empty;
        }
        let Some(slot) = self.share.take() else { return Accepted::NoRoom(Short::Connections) };
        let TurnedAway { socket, peer, admission } =
            self.refusals.next().expect("this loop alone takes them");
        Accepted::Connection(Arrived { socket, peer, at: now, slot, admission })
    }

    fn queue(&self) -> AcceptQueue {
        AcceptQueue { depth: self.refusals.len() as u32, ..AcceptQueue::default() }
    }

    fn close<M: Mechanism>(&mut self, dispatcher: &mut Dispatcher<M>) {
        dispatcher.deregister(self.refusals.work());
    }

    fn asked(&mut self) -> usize {
        self.refusals.take_asked()
    }

    fn take_news(&mut self, news: News, _now: Nanos) -> Option<Nanos> {
        if std::mem::replace(&mut self.closed, news.closed) != news.closed {
            self.refusals.fill_reserve();
        }
        None
    }
}
