//! The order in which a loop accepts and works: the two disciplines that Brecht 2004 compares.
//!
//! ```text
//!   ByPhases (userver, 3.1)                     UntilEmpty (TUX, 3.3)
//!
//!   get events                                  get events ──> head
//!   accept: they wait for the next round        accept, if nothing is pending ──> head
//!   work: what *this* get-events reported       work: a batch from the head of
//!   again                                             the work-pending list; again
//! ```
//!
//! Under `UntilEmpty`, a get-events that does not wait comes between two batches. So the loop works on new arrivals
//! before older items. It accepts only when nothing is pending and the last get-events reported no connection.
//!
//! Invariant: the work-pending list has a connection at most once, and the notes of a live connection say whether it is
//! there.

use connection::SocketService;
use dispatch::{Mechanism, Token};

use super::ReadinessLoop;
use crate::driver::event_loop::Arrivals;

/// The fewest connections worked on between two get-events. The kernel's callbacks tell TUX of each event as it
/// happens. Here a system call after each item would add a third to the cost of serving it from memory.
const ITEMS_PER_BATCH: usize = 16;

/// The order of accepting and working, chosen at compile time.
pub trait Discipline: Default {
    /// Examines the reports of the last get-events. Returns true if this turn accepts.
    fn before_accepting<M: Mechanism, S: SocketService, A: Arrivals>(
        this: &mut ReadinessLoop<M, S, Self, A>,
    ) -> bool;

    /// Notes an accepted connection.
    fn admitted<M: Mechanism, S: SocketService, A: Arrivals>(
        this: &mut ReadinessLoop<M, S, Self, A>,
        token: Token,
    );

    /// Works on connections.
    fn work<M: Mechanism, S: SocketService, A: Arrivals>(this: &mut ReadinessLoop<M, S, Self, A>);

    /// Returns true if there is work without another event.
    fn has_work(&self) -> bool {
        false
    }
}

/// Accept, then work on what the last get-events reported.
#[derive(Default)]
pub struct ByPhases;

impl Discipline for ByPhases {
    fn before_accepting<M: Mechanism, S: SocketService, A: Arrivals>(
        _this: &mut ReadinessLoop<M, S, Self, A>,
    ) -> bool {
        true
    }

    fn admitted<M: Mechanism, S: SocketService, A: Arrivals>(
        this: &mut ReadinessLoop<M, S, Self, A>,
        token: Token,
    ) {
        if this.read_after_accept {
            this.turn_of(token, true);
        }
    }

    fn work<M: Mechanism, S: SocketService, A: Arrivals>(this: &mut ReadinessLoop<M, S, Self, A>) {
        this.work_on_reported();
    }
}

/// Accept, then work until nothing is pending.
#[derive(Default)]
pub struct UntilEmpty {
    /// The work-pending list, its head at the end.
    pending: Vec<Token>,
}

impl Discipline for UntilEmpty {
    /// Accepts if nothing is pending, including what the last get-events reported.
    fn before_accepting<M: Mechanism, S: SocketService, A: Arrivals>(
        this: &mut ReadinessLoop<M, S, Self, A>,
    ) -> bool {
        for token in this.take_unfinished() {
            pend(this, token);
        }
        for index in 0..this.events.len() {
            pend(this, this.events[index].token);
        }
        this.discipline.pending.is_empty()
    }

    fn admitted<M: Mechanism, S: SocketService, A: Arrivals>(
        this: &mut ReadinessLoop<M, S, Self, A>,
        token: Token,
    ) {
        pend(this, token);
    }

    /// Works on a batch from the head of the list. The longer the list, the larger the batch: under level triggering a
    /// get-events reports every pending connection once more.
    fn work<M: Mechanism, S: SocketService, A: Arrivals>(this: &mut ReadinessLoop<M, S, Self, A>) {
        let batch = ITEMS_PER_BATCH.max(this.discipline.pending.len() / 4);
        for _ in 0..batch {
            let Some(token) = this.discipline.pending.pop() else { return };
            // A deadline may have ended it while it was pending.
            let Some(peer) = this.state.peers.get_mut(token) else { continue };
            peer.own.is_pending = false;
            this.turn_of(token, true);
        }
    }

    fn has_work(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Puts a connection at the head of the work-pending list, unless the list has it.
fn pend<M: Mechanism, S: SocketService, A: Arrivals>(
    this: &mut ReadinessLoop<M, S, UntilEmpty, A>,
    token: Token,
) {
    match this.state.peers.get_mut(token) {
        Some(peer) if !peer.own.is_pending => {
            peer.own.is_pending = true;
            this.discipline.pending.push(token);
        }
        Some(_) => {}
        None => this.state.lender.counts.stale_events += 1,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::io::Write;
    use std::net::TcpStream;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::rc::Rc;
    use std::sync::Arc;

    use base::{Key, Limit, Nanos};
    use connection::LiveSettings;
    use connection::transfer::Moved;
    use dispatch::mechanism::{Epoll, EpollEdge};
    use dispatch::{Dispatcher, Interest};
    use http_semantics::server::Settings;
    use http_semantics::{Request, Response, Service, Status};
    use sys::socket::AcceptQueue;
    use sys::thread::stop::Stop;

    use super::*;
    use crate::connections::accept::{AcceptLimit, Accepted, Acceptor, Arrived, LiveLimit};
    use crate::connections::overload_control::ControlledQueue;
    use crate::connections::slots::Share;
    use crate::driver::event_loop::{EventLoop, Listeners, Parts, Unasked};
    use crate::ground::counters::{Board, LoopCounts};
    use crate::ground::listener::listen;

    /// Records the paths of its requests, and refuses requests that are late.
    #[derive(Clone, Default)]
    struct Asked {
        paths: Rc<RefCell<Vec<String>>>,
        refuses: bool,
        refused: u64,
        /// Every connection has had an answer just now.
        answered_elsewhere: Rc<Cell<bool>>,
    }

    impl Service for Asked {
        type File = Arc<OwnedFd>;

        fn respond(&mut self, request: &Request<'_>, _now: Nanos) -> Response<Arc<OwnedFd>> {
            let target = if self.refuses { "refused" } else { request.target };
            self.paths.borrow_mut().push(target.to_owned());
            Response::error(Status::NOT_FOUND)
        }
    }

    impl SocketService for Asked {
        fn counts(&self) -> Vec<(&'static str, u64)> {
            Vec::new()
        }

        fn refuse(&mut self, refuses: bool) {
            self.refuses = refuses;
        }

        fn take_refused(&mut self) -> u64 {
            std::mem::take(&mut self.refused)
        }

        fn idle_for(&self, _socket: BorrowedFd<'_>) -> Option<Nanos> {
            self.answered_elsewhere.get().then_some(Nanos::ZERO)
        }
    }

    /// Listeners whose first `dead` batches contain only dead connections.
    struct Dying {
        listeners: Listeners,
        dead: u32,
        late_connections: u64,
    }

    impl Arrivals for Dying {
        fn sources(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
            self.listeners.sources()
        }

        fn limit(&self) -> Limit {
            self.listeners.limit()
        }

        fn accept(&mut self, index: usize, now: Nanos, counts: &mut LoopCounts) -> Accepted {
            match self.dead.checked_sub(1) {
                Some(left) => {
                    self.dead = left;
                    Accepted::Dead
                }
                None => self.listeners.accept(index, now, counts),
            }
        }

        fn last_newcomer(&mut self, now: Nanos) -> Option<Arrived> {
            self.listeners.last_newcomer(now)
        }

        fn late_connections(&mut self, so_far: u64) {
            self.late_connections = so_far;
        }

        fn queue(&self) -> AcceptQueue {
            self.listeners.queue()
        }

        fn close<M: Mechanism>(&mut self, dispatcher: &mut Dispatcher<M>) {
            self.listeners.close(dispatcher);
        }
    }

    /// A loop under one discipline, whose phases the test runs by hand. Its clients have requested /0, /1, ... and wait
    /// in the accept queue.
    struct Bench<M, D> {
        under_test: ReadinessLoop<M, Asked, D, Dying>,
        asked: Asked,
        clients: Vec<TcpStream>,
    }

    impl<M: Mechanism, D: Discipline> Bench<M, D> {
        fn new(limit: u32, clients: usize) -> Bench<M, D> {
            Bench::within(Share::alone(100), limit, clients)
        }

        fn within(share: Share, limit: u32, clients: usize) -> Bench<M, D> {
            let asked = Asked::default();
            let listeners = listen("127.0.0.1:0".parse().unwrap(), 64, 1, false).unwrap();
            let acceptor =
                Acceptor::new(LiveLimit::new(AcceptLimit::Fixed(Limit::AtMost(limit))), share, None);
            let listeners = Listeners::new(ControlledQueue { listeners, control: None }, acceptor);
            let under_test = ReadinessLoop::new(Parts {
                arrivals: Dying { listeners, dead: 0, late_connections: 0 },
                service: asked.clone(),
                settings: LiveSettings::new(Settings::default()),
                read_after_accept: false,
                mechanism: Default::default(),
                log: None,
                board: Board::default(),
                stop: Stop::new().unwrap(),
                drain_timeout: Nanos::ZERO,
            });
            let mut bench = Bench { under_test: under_test.unwrap(), asked, clients: Vec::new() };
            (0..clients).for_each(|_| bench.connect());
            bench
        }

        fn connect(&mut self) {
            let listener = &self.under_test.state.accepting.arrivals.listeners.listeners[0];
            let mut client = TcpStream::connect(listener.address).unwrap();
            let number = self.clients.len();
            client.write_all(format!("GET /{number} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
            self.clients.push(client);
        }

        /// Runs one round of the loop. Returns the number of accepted connections, and the requests worked on.
        fn round(&mut self) -> (u64, Vec<String>) {
            let before = self.under_test.state.lender.counts.accepts;
            self.under_test.get_events().unwrap();
            self.under_test.accept();
            self.under_test.work();
            (self.under_test.state.lender.counts.accepts - before, self.asked.paths.take())
        }
    }

    #[test]
    fn by_phases_accepted_connection_waits_a_round() {
        let mut bench = Bench::<Epoll, ByPhases>::new(2, 3);
        assert_eq!(bench.round(), (2, vec![]));
        let (accepted, mut worked_on) = bench.round();
        worked_on.sort();
        assert_eq!((accepted, worked_on), (1, vec!["/0".to_owned(), "/1".to_owned()]));
        assert_eq!(bench.round(), (0, vec!["/2".to_owned()]));
    }

    #[test]
    fn connection_answered_elsewhere_is_recently_idle() {
        let mut bench = Bench::<Epoll, ByPhases>::new(1, 2);
        let mut answered = 0;
        while answered < 2 {
            answered += bench.round().1.len();
        }
        let longest = bench.under_test.state.peers.idle_from();
        bench.asked.answered_elsewhere.set(true);
        assert!(!bench.under_test.reclaim_idle_since(longest, Unasked::Keep));
        assert_eq!(bench.under_test.state.lender.counts.reclaimed, 0);
        let now = bench.under_test.state.lender.now();
        assert!(bench.under_test.reclaim_idle_since(now, Unasked::Close));
        assert_eq!(bench.under_test.state.lender.counts.reclaimed, 1);
    }

    #[test]
    fn edge_unfinished_work_is_continued_once() {
        const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
        let mut bench = Bench::<EpollEdge, ByPhases>::new(1, 1);
        bench.clients[0].write_all(&REQUEST.repeat(1000)).unwrap();
        assert_eq!(bench.round().0, 1);
        for _ in 0..5 {
            // More arrives, so that it is reported as well.
            bench.clients[0].write_all(REQUEST).unwrap();
            assert!(!bench.round().1.is_empty());
            assert_eq!(bench.under_test.unfinished.len(), 1);
        }
    }

    #[test]
    fn edge_connection_behind_dead_ones_is_accepted() {
        let mut bench = Bench::<EpollEdge, ByPhases>::new(1, 1);
        bench.under_test.state.accepting.arrivals.dead = 2;
        assert_eq!(bench.round().0, 0);
        assert_eq!(bench.round().0, 0);
        assert_eq!(bench.round().0, 1);
        assert_eq!(
            bench.under_test.state.lender.counts.accept_phases, 1,
            "a phase that took nothing is none"
        );
    }

    #[test]
    fn edge_memory_shortage_gets_another_turn() {
        let mut bench = Bench::<EpollEdge, ByPhases>::new(1, 1);
        assert_eq!(bench.round(), (1, vec![]));
        assert_eq!(bench.round().1, ["/0"]);
        let token = bench.under_test.state.peers.tokens()[0];
        bench.under_test.register_or_close(token, Moved::NoMemory);
        assert_eq!(bench.under_test.time_to_wait(), Some(Nanos::ZERO));
        bench.round();
        assert_eq!(
            (bench.under_test.state.lender.counts.peers.no_memory, bench.under_test.unfinished.len()),
            (1, 0)
        );
    }

    #[test]
    fn drain_serves_waiting_connection_as_punctual() {
        let mut bench = Bench::<Epoll, ByPhases>::within(Share::alone(1), 2, 2);
        assert_eq!(bench.round(), (1, vec![]), "there is no room for the other");
        bench.under_test.state.lender.service.refuse(true);
        bench.under_test.go_down();
        let mut served = bench.asked.paths.take();
        served.sort();
        assert_eq!(served, ["/0", "/1"]);
        assert_eq!(bench.under_test.state.lender.counts.accepts, 2);
    }

    #[test]
    fn late_connections_reach_control_before_accept() {
        let mut bench = Bench::<Epoll, ByPhases>::new(1, 1);
        assert_eq!([bench.round().1.len(), bench.round().1.len()], [0, 1]);
        let told = |bench: &mut Bench<Epoll, ByPhases>, refused| {
            bench.under_test.state.lender.service.refused = refused;
            bench.under_test.state.publish();
            bench.under_test.accept();
            bench.under_test.state.accepting.arrivals.late_connections
        };
        assert_eq!([told(&mut bench, 1), told(&mut bench, 0)], [1, 1]);
        bench.clients[0].write_all(b"GET /next HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        assert_eq!(bench.round().1, ["/next"]);
        assert_eq!(told(&mut bench, 1), 1, "a request of a session takes no place in the accept queue");
    }

    #[test]
    fn truncated_reports_may_hide_a_ready_listener() {
        let mut bench = Bench::<Epoll, ByPhases>::new(1, 1);
        let (reader, _writer) = std::os::unix::net::UnixStream::pair().unwrap();
        reader.shutdown(std::net::Shutdown::Both).unwrap();
        // One event more than epoll reports at once.
        let ready: Vec<_> = (0..512).map(|_| reader.try_clone().unwrap()).collect();
        for fd in &ready {
            bench.under_test.dispatcher.register(
                fd.as_fd(),
                Key { index: 0, generation: 1 }.into(),
                Interest::Read,
            );
        }
        bench.under_test.get_events().unwrap();
        assert!(bench.under_test.may_have_more());
        ready.iter().for_each(|fd| bench.under_test.dispatcher.closing(fd.as_fd()));
        drop((ready, reader));
        bench.under_test.get_events().unwrap();
        assert!(!bench.under_test.may_have_more(), "all reports have come");
    }

    #[test]
    fn until_empty_the_latest_is_first_and_accepting_last() {
        let mut bench = Bench::<Epoll, UntilEmpty>::new(20, 20);
        let names = |numbers: std::ops::Range<usize>| -> Vec<String> {
            numbers.rev().map(|number| format!("/{number}")).collect()
        };
        assert_eq!(bench.round(), (20, names(4..20)), "accepted, and worked on in the same round");
        bench.connect();
        assert_eq!(bench.round(), (0, names(0..4)), "something was pending");
        assert_eq!(bench.round(), (1, names(20..21)));
    }

    #[test]
    fn until_empty_serves_requests_before_accepting() {
        let mut bench = Bench::<Epoll, UntilEmpty>::new(1, 1);
        assert_eq!(bench.round(), (1, vec!["/0".to_owned()]), "nothing is pending now");
        bench.clients[0].write_all(b"GET /again HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        bench.connect();
        assert_eq!(bench.round(), (0, vec!["/again".to_owned()]));
        assert_eq!(bench.round(), (1, vec!["/1".to_owned()]));
    }
}
