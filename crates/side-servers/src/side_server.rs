//! The event loop of a small server: a few connections on poll(2).
//!
//! It has deadlines and a connection limit of its own. If the limit is reached or descriptors run out, a new
//! connection replaces the one that has been silent longest. So silent connections delay no request.
//!
//! A connection whose request is for events leaves the others for the [`Streams`], which have places of their own.
//!
//! Invariant: a new connection whose request has arrived is answered before another one can take its place, and before the
//! loop ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use base::{Bytes, Clock, Nanos, RealClock};
use connection::transfer::{Moved, end, move_bytes, send, shut_down};
use connection::{Lent, Machine, PeerCounts};
use dispatch::Trigger;
use http_semantics::HttpDate;
use http_semantics::server::{Buffers, Context, Counts, Settings, Timeouts, Wants};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use sys::errno::{Failure, classify};
use sys::readiness::poll::{is_readable, timespec};
use sys::thread::stop::Stop;

use crate::access::AdminListener;
use crate::guard::{Guard, Guarded};
use crate::service::SmallService;
use crate::streams::{STREAMS, Streams};
use crate::totals::Totals;

/// The most open connections: an operator, a Prometheus server or two, and their spares.
const CONNECTIONS: usize = 64;
/// The longest content that is read: an accept-limit.
const BODY: Bytes = Bytes(64);
/// The time that a new connection has for its request after the stop.
const FAREWELL: Nanos = Nanos::from_millis(100);
/// The pause after an accept failed for a shortage that no connection of this loop causes.
const PAUSE: Nanos = Nanos::from_millis(100);
const SCRATCH_BYTES: usize = 16 * 1024;

/// Short timeouts, because a request to this interface fits one packet. Between requests a client has the idle
/// timeout.
const TIMEOUTS: Timeouts = Timeouts {
    header: Nanos::from_secs(5),
    idle: Nanos::from_secs(60),
    body: Nanos::from_secs(5),
    write_stall: Nanos::from_secs(5),
    linger: Nanos::from_secs(1),
};

struct Client {
    socket: OwnedFd,
    machine: Machine,
    /// The time when bytes last moved in either direction; before that, the time of the accept.
    active: Nanos,
}

/// A small server, which answers while it [runs](SideServer::run).
pub struct SideServer<S> {
    listener: AdminListener,
    service: Guarded<S>,
    stop: Stop,
    totals: Arc<Totals>,
    clients: Vec<Client>,
    streams: Streams,
    paused_until: Nanos,
    /// The time at which the loop ends at the latest; `None` before the stop.
    leaves_at: Option<Nanos>,
    settings: Settings,
    clock: RealClock,
    scratch: Box<[u8]>,
    buffers: Buffers,
    counts: Counts,
    /// The machine requires it, and no code reads it: this loop has no TLS, and counts its own events.
    peers: PeerCounts,
}

/// The events of a wait.
struct Happened {
    /// Connections wait in the accept queue.
    new_ones: bool,
    /// The events of each client, and of each stream behind them.
    ready: Vec<PollFlags>,
}

impl<S: SmallService> SideServer<S> {
    /// Makes a server without connections, which counts in `totals` and ends at `stop`.
    pub fn new(
        listener: AdminListener,
        guard: Guard,
        service: S,
        stop: Stop,
        totals: Arc<Totals>,
    ) -> SideServer<S> {
        let service = Guarded { service, guard, totals: Arc::clone(&totals), room: STREAMS };
        let mut settings = Settings { timeouts: TIMEOUTS, ..Settings::default() };
        settings.limits.keep_body = true;
        settings.limits.body_bytes = BODY.0;
        SideServer {
            listener,
            service,
            stop,
            totals,
            clients: Vec::new(),
            streams: Streams::default(),
            paused_until: Nanos::ZERO,
            leaves_at: None,
            settings,
            clock: RealClock::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            buffers: Buffers::default(),
            counts: Counts::default(),
            peers: PeerCounts::default(),
        }
    }

    /// Answers until the stop, and then who has connected before. Blocks.
    ///
    /// # Errors
    /// A bug of Inrush in a call of poll.
    pub fn run(mut self) -> io::Result<()> {
        while !self.has_left() {
            self.clients.retain(|client| client.machine.wants() != Wants::Close);
            self.begin_streams();
            let Happened { new_ones, ready } = self.wait()?;
            let (of_clients, of_streams) = ready.split_at(self.clients.len().min(ready.len()));
            for (index, events) in of_clients.iter().enumerate() {
                if !events.is_empty() {
                    self.move_bytes(index, !events.contains(PollFlags::OUT));
                }
            }
            self.streams.ready(of_streams, self.clock.now(), &mut self.scratch);
            self.expire();
            self.send_event();
            if new_ones {
                self.accept();
            }
            if self.stop.asked() && self.leaves_at.is_none() {
                self.leaves_at = Some(self.clock.now() + FAREWELL);
            }
        }
        Ok(())
    }

    /// Tells whether the stop came, and no new connection is owed an answer any more.
    fn has_left(&self) -> bool {
        let is_owed = |client: &Client| client.machine.is_new();
        self.leaves_at.is_some_and(|at| self.clock.now() >= at || !self.clients.iter().any(is_owed))
    }

    /// Takes over the connections that asked for events and have received all earlier responses. Those that have not keep
    /// the places that they were promised.
    fn begin_streams(&mut self) {
        let (now, date) = (self.clock.now(), HttpDate::new(self.clock.wall()));
        for client in self.clients.extract_if(.., |client| client.machine.wants() == Wants::Resume) {
            self.streams.begin(client.socket, &self.service.service.first_event(), &date, now);
        }
        let promised = self.clients.iter().filter(|client| client.machine.is_deferred()).count();
        self.service.room = self.streams.room(promised);
        self.totals.set_cut_streams(self.streams.cut);
    }

    /// Sends the event that is due.
    fn send_event(&mut self) {
        let now = self.clock.now();
        if now >= self.service.service.event_due() {
            let event = self.service.service.event(now);
            self.streams.send(&event, now);
        }
    }

    /// Waits for events or a deadline.
    fn wait(&self) -> io::Result<Happened> {
        let now = self.clock.now();
        let reading_if = |condition| if condition { PollFlags::IN } else { PollFlags::empty() };
        let (leaves, pauses) = (self.leaves_at.is_some(), now < self.paused_until);
        let stop = self.stop.descriptor();
        let mut polled = vec![PollFd::new(&stop, reading_if(!leaves))];
        polled.push(PollFd::from_borrowed_fd(self.listener.socket(), reading_if(!leaves && !pauses)));
        polled.extend(self.clients.iter().map(|client| {
            let interest =
                if client.machine.wants() == Wants::Transmit { PollFlags::OUT } else { PollFlags::IN };
            PollFd::new(&client.socket, interest)
        }));
        polled.extend(self.streams.polled());
        let deadlines = self.clients.iter().map(|client| client.machine.deadline());
        let others = [self.streams.deadline(), self.service.service.event_due()];
        let paused = pauses.then_some(self.paused_until);
        let next = deadlines.chain(others).chain(paused).chain(self.leaves_at).min().unwrap_or(Nanos::MAX);
        match poll(&mut polled, Some(&timespec(next.saturating_sub(now)))) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Happened { new_ones: false, ready: Vec::new() }),
            Err(errno) => return Err(errno.into()),
        }
        let new_ones = !polled[1].revents().is_empty();
        Ok(Happened { new_ones, ready: polled[2..].iter().map(PollFd::revents).collect() })
    }

    /// Accepts waiting connections, but no more than the loop has places. Then the open ones have their turn.
    fn accept(&mut self) {
        for _ in 0..CONNECTIONS {
            match accept_with(self.listener.socket(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.admit(socket),
                Err(errno) => match classify(&errno.into()) {
                    Failure::WouldBlock => return,
                    Failure::Retry | Failure::PeerGone => {}
                    // The kernel asks for a descriptor before it looks into the queue.
                    Failure::NoDescriptor if !is_readable(self.listener.socket()) => return,
                    Failure::NoDescriptor if !self.clients.is_empty() => self.evict(),
                    Failure::NoDescriptor if self.streams.close_oldest() => self.totals.count_eviction(),
                    _ => {
                        self.paused_until = self.clock.now() + PAUSE;
                        return;
                    }
                },
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        if self.clients.len() == CONNECTIONS {
            self.evict();
        }
        let active = self.clock.now();
        let machine = Machine::plain(active, &self.settings);
        self.clients.push(Client { socket, machine, active });
        self.move_bytes(self.clients.len() - 1, true);
    }

    /// Closes the connection that has been silent longest.
    fn evict(&mut self) {
        let silent = self.clients.iter().enumerate().min_by_key(|(_, client)| client.active);
        if let Some(index) = silent.map(|(index, _)| index) {
            self.clients.remove(index);
            self.totals.count_eviction();
        }
    }

    /// Lets a client's machine and socket work, and then acts on the machine's wants.
    fn turn(
        &mut self,
        index: usize,
        work: impl FnOnce(BorrowedFd<'_>, &mut Machine, &mut Lent<'_, Guarded<S>>) -> Moved,
    ) {
        let Client { socket, machine, active } = &mut self.clients[index];
        let before = self.counts.received_bytes + self.counts.sent_bytes;
        let context = Context {
            service: &mut self.service,
            settings: &self.settings,
            buffers: &mut self.buffers,
            date: &HttpDate::new(self.clock.wall()),
            counts: &mut self.counts,
            log: None,
            client: None,
            now: self.clock.now(),
        };
        let mut lent = Lent {
            context,
            scratch: &mut self.scratch,
            counts: &mut self.peers,
            http2: &mut http2::Counts::default(),
            custody: self.listener.custody(),
        };
        let moved = work(socket.as_fd(), machine, &mut lent);
        if moved == Moved::Broken {
            end(socket.as_fd(), machine, &mut lent);
        }
        if machine.wants() == Wants::ShutdownThenReceive {
            shut_down(socket.as_fd(), machine);
        }
        let Context { counts, now, .. } = lent.context;
        if counts.received_bytes + counts.sent_bytes != before {
            *active = now;
        }
    }

    fn move_bytes(&mut self, index: usize, readable: bool) {
        self.turn(index, |socket, machine, lent| move_bytes(socket, machine, lent, readable, Trigger::Level));
    }

    fn expire(&mut self) {
        let now = self.clock.now();
        for index in 0..self.clients.len() {
            if self.clients[index].machine.deadline() <= now {
                self.turn(index, |socket, machine, lent| {
                    machine.expire(lent);
                    send(socket, machine, lent)
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use http_semantics::{Request, Response, Service, Status};
    use http1::server::COPIED_BODY_BYTES;
    use rustix::net::sockopt;

    use super::*;
    use crate::access::AdminAddress;
    use crate::service::answer;

    /// The first has a response that the loop queues with the next one, and that a small socket does not take at once.
    const REQUESTS: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /events HTTP/1.1\r\nHost: a\r\n\r\n";

    struct Large;

    impl Service for Large {
        type File = Arc<OwnedFd>;

        fn respond(&mut self, _request: &Request<'_>, _now: Nanos) -> Response<Arc<OwnedFd>> {
            answer(Status::OK, "text/plain", "x".repeat(COPIED_BODY_BYTES))
        }
    }

    impl SmallService for Large {
        fn asks_for_events(&self, request: &Request<'_>) -> bool {
            request.path() == "/events"
        }
    }

    fn idle_loop(totals: &Arc<Totals>) -> SideServer<Large> {
        let address = AdminAddress::Internet("127.0.0.1:0".parse().unwrap());
        let (listener, stop) = (AdminListener::open(&address).unwrap(), Stop::new().unwrap());
        SideServer::new(listener, Guard::of_file(None), Large, stop, Arc::clone(totals))
    }

    #[test]
    fn what_has_arrived_is_answered_after_the_stop() {
        let mut side = idle_loop(&Arc::default());
        let [mut there, _silent] = [(); 2].map(|()| {
            let (here, there) = UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            side.admit(here.into());
            there
        });
        there.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        side.stop.ask();
        side.run().unwrap();
        let mut reply = String::new();
        there.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply}");
    }

    #[test]
    fn a_stream_has_its_place_while_earlier_output_waits() {
        let totals = Arc::default();
        let mut side = idle_loop(&totals);
        let admit = |_| {
            let (here, mut there) = UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            there.set_nonblocking(true).unwrap();
            sockopt::set_socket_send_buffer_size(&here, 1).unwrap();
            there.write_all(REQUESTS).unwrap();
            side.begin_streams();
            side.admit(here.into());
            there
        };
        let mut peers: Vec<UnixStream> = (0..=STREAMS).map(admit).collect();
        assert!(side.clients.iter().all(|client| client.machine.wants() == Wants::Transmit));
        while side.clients.iter().any(|client| client.machine.wants() == Wants::Transmit) {
            for peer in &mut peers {
                while peer.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
            }
            (0..side.clients.len()).for_each(|index| side.move_bytes(index, false));
        }
        side.begin_streams();
        assert_eq!((side.clients.len(), side.service.room, totals.streams_refused()), (1, 0, 1));
    }
}
