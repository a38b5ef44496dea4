//! Moves bytes between a nonblocking socket and the protocol machine, for all drivers.
//!
//! Plain responses leave by send(2) and sendfile(2). Under TLS they become records first (`enciphered`).
//!
//! Invariant: one connection does a bounded amount of work a turn: bytes sent, requests answered, reads.

mod enciphered;

use std::os::fd::BorrowedFd;

use dispatch::Trigger;
use http_semantics::server::Wants;
use http1::server::Transmit;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use sys::errno::{Failure, classify};

use crate::machine::http::Http;
use crate::machine::{Lent, Machine, Tls};
use crate::socket_service::SocketService;

/// The most bytes sent to one connection a turn. With more, a few large files would delay every other connection.
const TURN_BYTES: u64 = 512 * 1024;
/// The most requests of one connection answered a turn; the other answers wait for the next turn. A thousand pipelined
/// requests would delay every other connection too.
const REQUESTS_PER_TURN: u64 = 64;
/// The most reads from one connection a turn, if the mechanism wants the socket drained.
const RECEIVES_PER_TURN: usize = 4;

/// The most output that is copied for an operation: several pipelined responses.
const COPIED_BYTES: usize = 32 * 1024;

/// The result of moving bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The socket would block, or there is nothing more to move.
    AsFarAsPossible,
    /// The turn's allowance is used up.
    TurnOver,
    /// The kernel is short of memory for a moment. Nothing is lost, and no event will report that memory is available.
    NoMemory,
    /// The connection is gone.
    Broken,
}

/// Sends pending output, receives if the socket is `readable`, and sends the answers. Under [`Trigger::Level`] it
/// receives once: the mechanism reports remaining bytes again, or the caller comes back. Under [`Trigger::Edge`] it
/// also receives after sending the output that kept it from receiving.
pub fn move_bytes<S: SocketService>(
    socket: BorrowedFd<'_>,
    machine: &mut Machine,
    lent: &mut Lent<'_, S>,
    readable: bool,
    trigger: Trigger,
) -> Moved {
    // The machine receives nothing while output waits, so an edge that came then has been used up. Some mechanisms
    // report room to send without reporting again that bytes can be read.
    let sends = matches!(machine.wants(), Wants::Transmit);
    let unread = sends && (trigger == Trigger::Edge || machine.may_receive(lent.context.settings));
    let mut moved = send(socket, machine, lent);
    if !(readable || unread) || !may_go_on(moved, machine, lent) {
        return moved;
    }
    for _ in 0..RECEIVES_PER_TURN {
        if !machine.may_receive(lent.context.settings) {
            return moved;
        }
        let received = match receive(socket, lent.scratch) {
            Ok(0) => {
                let (mut http, _, counts) = lent.parts();
                machine.receive_end(&mut http, counts);
                return send(socket, machine, lent);
            }
            Ok(count) => count,
            Err(Moved::AsFarAsPossible) => return moved,
            Err(ended) => return ended,
        };
        let (mut http, scratch, counts) = lent.parts();
        machine.receive(&scratch[..received], &mut http, counts);
        moved = send(socket, machine, lent);
        // Under level triggering the mechanism reports remaining bytes again. Under edges only a read that would block
        // shows that nothing is left: the end of the stream may have come in the same event.
        if !matches!(moved, Moved::AsFarAsPossible) || trigger == Trigger::Level {
            return moved;
        }
    }
    Moved::TurnOver
}

/// Returns true if receiving follows: no more output can leave now, or HTTP/2 receives while output waits.
fn may_go_on<S: SocketService>(moved: Moved, machine: &Machine, lent: &Lent<'_, S>) -> bool {
    match moved {
        Moved::AsFarAsPossible => true,
        Moved::TurnOver => machine.may_receive(lent.context.settings),
        Moved::NoMemory | Moved::Broken => false,
    }
}

/// Receives into `scratch`. Returns the number of bytes, 0 at the end of the stream, or an error that ends moving
/// bytes.
pub fn receive(socket: BorrowedFd<'_>, scratch: &mut [u8]) -> Result<usize, Moved> {
    loop {
        match rustix::net::recv(socket, &mut *scratch, RecvFlags::empty()) {
            Ok((_, count)) => return Ok(count),
            Err(errno) => ended_by(errno).map_or(Ok(()), Err)?,
        }
    }
}

/// Returns the result of moving bytes after a failed call; `None` if the call must be repeated.
fn ended_by(errno: Errno) -> Option<Moved> {
    match classify(&errno.into()) {
        Failure::Retry => None,
        Failure::WouldBlock => Some(Moved::AsFarAsPossible),
        Failure::NoMemory => Some(Moved::NoMemory),
        Failure::PeerGone | Failure::NoDescriptor | Failure::NoPort | Failure::Other => Some(Moved::Broken),
    }
}

/// Sends until the machine has nothing more, the socket takes no more, or the turn is over.
pub fn send<S: SocketService>(
    socket: BorrowedFd<'_>,
    machine: &mut Machine,
    lent: &mut Lent<'_, S>,
) -> Moved {
    match &machine.tls {
        Tls::Plain | Tls::Awaited(_) => send_plain(socket, machine, lent),
        // HTTP was cut off, so it counts no more output, and the records that wait are of no use.
        Tls::Layer(layer) if layer.owed > 0 && machine.http.wants() == Wants::Close => Moved::AsFarAsPossible,
        Tls::Layer(_) => enciphered::send(socket, machine, lent),
    }
}

/// The first output that leaves by one send: plain bytes, few enough to be copied. HTTP/2 reads parts of files for it.
pub fn plain_output<'a, S: SocketService>(
    machine: &'a mut Machine,
    lent: &mut Lent<'_, S>,
) -> Option<&'a [u8]> {
    if !matches!(machine.tls, Tls::Plain) {
        return None;
    }
    fill(machine, lent);
    let http = &machine.http;
    match http.transmit() {
        Transmit::Bytes { bytes, more: false } if bytes.len() <= COPIED_BYTES => Some(bytes),
        Transmit::Bytes { bytes, .. } if matches!(http, Http::Two(_)) => Some(&bytes[..COPIED_BYTES]),
        _ => None,
    }
}

/// The first `count` bytes of [`plain_output`] have been sent.
pub fn sent<S: SocketService>(machine: &mut Machine, count: u64, lent: &mut Lent<'_, S>) {
    machine.http.transmitted(count, &mut lent.http());
}

/// Shuts down the sending side of a connection that wants [`Wants::ShutdownThenReceive`].
pub fn shut_down(socket: BorrowedFd<'_>, machine: &mut Machine) {
    // A failure means that the peer may have gone; the next read reports that.
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
    machine.http.shut_down();
}

/// Prepares a connection for its close: releases what HTTP holds. Under TLS it sends the peer `close_notify` if the
/// socket has room for it.
pub fn end<S: SocketService>(socket: BorrowedFd<'_>, machine: &mut Machine, lent: &mut Lent<'_, S>) {
    machine.end(lent);
    if machine.say_goodbye() {
        // The driver does not wait for its arrival.
        let _ = enciphered::send(socket, machine, lent);
    }
}

/// Reads parts of files into HTTP/2's output, while it has room and `sendable` promises no wait for a disk.
fn fill<S: SocketService>(machine: &mut Machine, lent: &mut Lent<'_, S>) {
    while let Some(range) = machine.http.file_part() {
        let most = range.length.min(lent.scratch.len() as u64);
        let count = lent.context.service.sendable(&range, most) as usize;
        if count == 0 {
            return;
        }
        // A file that cannot be read is as good as one that has become shorter.
        let into = &mut lent.scratch[..count];
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&*range.file, &mut *into, range.offset));
        let count = read.unwrap_or(0);
        let (mut http, scratch, _) = lent.parts();
        machine.http.supply(&scratch[..count], &mut http);
    }
}

/// Sends the output of HTTP as it is.
fn send_plain<S: SocketService>(
    socket: BorrowedFd<'_>,
    machine: &mut Machine,
    lent: &mut Lent<'_, S>,
) -> Moved {
    let mut left = TURN_BYTES;
    let requests = lent.context.counts.requests;
    loop {
        fill(machine, lent);
        let sent = match machine.http.transmit() {
            Transmit::Nothing => return Moved::AsFarAsPossible,
            _ if left == 0 || lent.context.counts.requests - requests >= REQUESTS_PER_TURN => {
                return Moved::TurnOver;
            }
            Transmit::Bytes { bytes, more } => {
                let more = if more { SendFlags::MORE } else { SendFlags::empty() };
                rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | more)
            }
            Transmit::File { range, length, .. } => {
                let mut offset = range.offset;
                let count = lent.context.service.sendable(range, length.min(left)) as usize;
                if count == 0 {
                    return Moved::AsFarAsPossible;
                }
                match rustix::fs::sendfile(socket, &*range.file, Some(&mut offset), count) {
                    Ok(0) => {
                        machine.cut_short(&mut lent.context);
                        return Moved::AsFarAsPossible;
                    }
                    result => result,
                }
            }
        };
        match sent {
            Ok(count) => {
                left = left.saturating_sub(count as u64);
                machine.http.transmitted(count as u64, &mut lent.http());
            }
            Err(errno) => {
                if let Some(ended) = ended_by(errno) {
                    return ended;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use base::{Nanos, WallTime};
    use http_semantics::server::{Buffers, Context, Counts, Settings};
    use http_semantics::{Body, FileRange, HttpDate, Request, Response, Service, Status};
    use tls::Sessions;

    use super::*;
    use crate::clients::Admission;
    use crate::counts::PeerCounts;
    use crate::settings::LiveSettings;
    use crate::simulation::http2_requests;

    /// More than a socket's buffer holds.
    const CONTENT_BYTES: usize = 1 << 20;
    pub(super) const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";

    /// Answers with bytes, and `/cold` with a file that is not in memory.
    pub(super) struct Large;

    impl Service for Large {
        type File = Arc<OwnedFd>;

        fn respond(&mut self, request: &Request<'_>, _now: Nanos) -> Response<Arc<OwnedFd>> {
            let body = if request.target == "/cold" {
                let file = File::open("/dev/null").expect("a descriptor is left");
                Body::File(FileRange { file: Arc::new(file.into()), offset: 0, length: CONTENT_BYTES as u64 })
            } else {
                Body::Bytes(vec![b'x'; CONTENT_BYTES].into())
            };
            Response { body, ..Response::error(Status::OK) }
        }
    }

    impl SocketService for Large {
        fn counts(&self) -> Vec<(&'static str, u64)> {
            Vec::new()
        }

        fn sendable(&mut self, _range: &FileRange<Arc<OwnedFd>>, _most: u64) -> u64 {
            0
        }
    }

    #[test]
    fn a_shortage_of_memory_is_neither_the_end_nor_a_wait() {
        assert_eq!(ended_by(Errno::NOBUFS), Some(Moved::NoMemory));
        assert_eq!(ended_by(Errno::NOMEM), Some(Moved::NoMemory));
        assert_eq!(ended_by(Errno::AGAIN), Some(Moved::AsFarAsPossible));
        assert_eq!(ended_by(Errno::INTR), None);
        assert_eq!(ended_by(Errno::CONNRESET), Some(Moved::Broken));
    }

    /// A connection whose client, turns and time are the test's.
    pub(super) struct Bench {
        pub(super) client: UnixStream,
        server: UnixStream,
        pub(super) machine: Machine,
        settings: LiveSettings,
        counts: Counts,
        scratch: Vec<u8>,
        pub(super) now: Nanos,
    }

    impl Bench {
        fn new() -> Bench {
            Bench::with_tls(None)
        }

        pub(super) fn with_tls(sessions: Option<Sessions>) -> Bench {
            let (client, server) = UnixStream::pair().unwrap();
            client.set_nonblocking(true).unwrap();
            server.set_nonblocking(true).unwrap();
            let settings = LiveSettings::new(Settings::default()).with_tls(sessions, &[]);
            let socket = server.try_clone().unwrap().into();
            let (now, counts) = (Nanos::ZERO, Counts::default());
            let machine = Machine::new(&socket, None, now, Admission::Free, &settings);
            Bench { client, server, machine, settings, counts, scratch: vec![0; 4096], now }
        }

        /// A turn under edges.
        pub(super) fn turn(&mut self, readable: bool) -> Moved {
            self.lending(|socket, machine, lent| move_bytes(socket, machine, lent, readable, Trigger::Edge))
        }

        /// Lends the machine what it borrows for a turn.
        pub(super) fn lending<R>(
            &mut self,
            act: impl FnOnce(BorrowedFd<'_>, &mut Machine, &mut Lent<'_, Large>) -> R,
        ) -> R {
            let context = Context {
                service: &mut Large,
                settings: &self.settings,
                buffers: &mut Buffers::default(),
                date: &HttpDate::new(WallTime::default()),
                counts: &mut self.counts,
                log: None,
                client: None,
                now: self.now,
            };
            let (counts, http2) = (&mut PeerCounts::default(), &mut http2::Counts::default());
            let custody = self.settings.custody();
            let mut lent = Lent { context, scratch: &mut self.scratch, counts, http2, custody };
            act(self.server.as_fd(), &mut self.machine, &mut lent)
        }
    }

    #[test]
    fn edge_request_behind_stuck_response_is_received() {
        let mut bench = Bench::new();
        bench.client.write_all(REQUEST).unwrap();
        assert!(matches!(bench.turn(true), Moved::AsFarAsPossible));
        bench.client.write_all(REQUEST).unwrap();
        assert!(matches!(bench.turn(true), Moved::AsFarAsPossible), "its edge comes while output waits");
        let (mut received, mut buffer) = (0, vec![0; 2 * CONTENT_BYTES]);
        while let Ok(count) = bench.client.read(&mut buffer) {
            received += count;
            assert!(matches!(bench.turn(false), Moved::AsFarAsPossible), "told of room alone");
        }
        assert_eq!(bench.counts.requests, 2);
        assert!(received > 2 * CONTENT_BYTES);
    }

    #[test]
    fn stream_rest_waits_for_room_while_a_file_is_missing() {
        let mut bench = Bench::new();
        bench.client.write_all(&http2_requests(&["/", "/cold"])).unwrap();
        bench.turn(true);
        let mut buffer = vec![0; 16 * 1024];
        while bench.machine.http.file_part().is_none() {
            assert!(bench.client.read(&mut buffer).unwrap() > 0);
            bench.turn(false);
        }
        assert!(bench.machine.has_bytes(), "the socket is full");
        while bench.client.read(&mut buffer).is_ok() {
            bench.turn(false);
        }
        assert_eq!((bench.machine.wants(), bench.machine.has_bytes()), (Wants::Transmit, false));
    }
}
