//! Connections that receive events until they end (server-sent events; HTML standard, section 9.2).
//!
//! ```text
//!   client of the loop ── GET /events ──> stream: head, first event ──> each event, once a second ──> end
//!                                           │ not writable: kept, up to PENDING
//!                                           └── no progress for STALL, or LIFETIME over: closed
//! ```
//!
//! Owns the sockets of the streams and their waiting bytes. Leaves out the right to a stream, and the events.
//!
//! Invariants: streams have places of their own, at most [`STREAMS`], so that they take none of the connections for
//! `/status`. Sending never blocks. A client that does not read holds at most [`PENDING`] bytes, for [`STALL`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use base::Nanos;
use http_semantics::HttpDate;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sys::errno::{Failure, classify};

/// The most open streams: some windows of an operator.
pub const STREAMS: usize = 8;
/// The most bytes that wait for a client: twice the samples of five minutes.
const PENDING: usize = 256 * 1024;
/// The longest time without progress while bytes wait.
const STALL: Nanos = Nanos::from_secs(5);
/// The lifetime of a stream, which also ends streams of vanished clients. A page then begins another.
const LIFETIME: Nanos = Nanos::from_secs(600);

/// The head of a response of unknown length: its end is the connection's (RFC 9112, section 6.3).
const FIELDS: &str = "\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
                    X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\nretry: 2000\n\n";

struct Stream {
    socket: OwnedFd,
    pending: Vec<u8>,
    /// The deadline for some of `pending` to be taken.
    progress_by: Nanos,
    ends_at: Nanos,
}

/// The fate of a stream after a look at it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Goes,
    Ended,
    /// Its client does not read.
    Cut,
}

/// The streams of a loop.
#[derive(Default)]
pub struct Streams {
    streams: Vec<Stream>,
    /// Streams closed because their clients did not read.
    pub cut: u64,
}

impl Streams {
    /// Returns the number of free places for streams, while so many places are promised to streams that have not begun.
    pub fn room(&self, promised: usize) -> usize {
        STREAMS.saturating_sub(self.streams.len() + promised)
    }

    /// Begins a stream on a connection that asked for one. The caller has promised it a place.
    pub fn begin(&mut self, socket: OwnedFd, first: &str, date: &HttpDate, now: Nanos) {
        let mut stream = Stream {
            socket,
            pending: [b"HTTP/1.1 200 OK\r\nDate: ", date.value(), FIELDS.as_bytes(), first.as_bytes()]
                .concat(),
            progress_by: now.saturating_add(STALL),
            ends_at: now.saturating_add(LIFETIME),
        };
        if stream.flush(now) == Fate::Goes {
            self.streams.push(stream);
        }
    }

    /// Sends an event to all streams.
    pub fn send(&mut self, event: &str, now: Nanos) {
        self.keep(|stream| stream.add(event, now));
    }

    /// Iterates over the polled descriptors, in the order in which [`ready`](Self::ready) takes their events.
    pub fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.streams.iter().map(|stream| {
            let interest = if stream.pending.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            PollFd::new(&stream.socket, interest)
        })
    }

    /// Continues the streams that have events, and ends those whose time is over.
    pub fn ready(&mut self, events: &[PollFlags], now: Nanos, scratch: &mut [u8]) {
        let mut events = events.iter().copied();
        self.keep(|stream| stream.ready(events.next().unwrap_or(PollFlags::empty()), now, scratch));
    }

    /// Returns the time when the next stream ends, if nothing happens.
    pub fn deadline(&self) -> Nanos {
        self.streams.iter().map(Stream::deadline).min().unwrap_or(Nanos::MAX)
    }

    /// Closes the oldest stream. Returns false if there is none.
    pub fn close_oldest(&mut self) -> bool {
        let any = !self.streams.is_empty();
        if any {
            self.streams.remove(0);
        }
        any
    }

    /// Gives each stream its turn, and closes those that it ends.
    fn keep(&mut self, mut turn: impl FnMut(&mut Stream) -> Fate) {
        self.streams.retain_mut(|stream| {
            let fate = turn(stream);
            self.cut += u64::from(fate == Fate::Cut);
            fate == Fate::Goes
        });
    }
}

impl Stream {
    fn deadline(&self) -> Nanos {
        if self.pending.is_empty() { self.ends_at } else { self.progress_by.min(self.ends_at) }
    }

    fn add(&mut self, event: &str, now: Nanos) -> Fate {
        if self.pending.len() + event.len() > PENDING {
            return Fate::Cut;
        }
        if self.pending.is_empty() {
            self.progress_by = now.saturating_add(STALL);
        }
        self.pending.extend_from_slice(event.as_bytes());
        self.flush(now)
    }

    fn ready(&mut self, events: PollFlags, now: Nanos, scratch: &mut [u8]) -> Fate {
        if now >= self.ends_at {
            return Fate::Ended;
        }
        if now >= self.deadline() {
            return Fate::Cut;
        }
        if events.is_empty() {
            return Fate::Goes;
        }
        if events.contains(PollFlags::OUT) {
            return self.flush(now);
        }
        // The client gets nothing but events, so its further bytes are discarded.
        match received(self.socket.as_fd(), scratch) {
            Ok(0) => Fate::Ended,
            Ok(_) => Fate::Goes,
            Err(error) => fate(&error),
        }
    }

    fn flush(&mut self, now: Nanos) -> Fate {
        while !self.pending.is_empty() {
            match send(&self.socket, &self.pending, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => {
                    self.pending.drain(..sent);
                    self.progress_by = now.saturating_add(STALL);
                }
                Err(errno) => return fate(&errno.into()),
            }
        }
        // An idle stream releases the room that a slow moment needed.
        self.pending.shrink_to(4096);
        Fate::Goes
    }
}

fn received(socket: BorrowedFd<'_>, scratch: &mut [u8]) -> io::Result<usize> {
    Ok(recv(socket, scratch, RecvFlags::DONTWAIT)?.0)
}

fn fate(error: &io::Error) -> Fate {
    match classify(error) {
        Failure::Retry | Failure::WouldBlock | Failure::NoMemory => Fate::Goes,
        _ => Fate::Ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::WallTime;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    const NOW: Nanos = Nanos::from_secs(100);

    fn begin(streams: &mut Streams) -> UnixStream {
        let (here, there) = UnixStream::pair().unwrap();
        streams.begin(here.into(), "data: first\n\n", &HttpDate::new(WallTime::default()), NOW);
        there
    }

    /// Looks at all streams as if each had these events.
    fn look_at_all(streams: &mut Streams, events: PollFlags, now: Nanos) -> usize {
        streams.ready(&[events; STREAMS], now, &mut [0; 100]);
        STREAMS - streams.room(0)
    }

    #[test]
    fn a_stream_begins_with_its_head_and_gets_every_event() {
        let mut streams = Streams::default();
        let mut client = begin(&mut streams);
        streams.send("data: second\n\n", NOW);
        assert!(streams.close_oldest() && !streams.close_oldest());
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        let (head, events) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" GMT\r\nContent-Type: text/event-stream\r\n"), "{head}");
        assert!(head.ends_with("\r\nConnection: close"), "{head}");
        assert_eq!(events, "retry: 2000\n\ndata: first\n\ndata: second\n\n");
    }

    #[test]
    fn unread_stream_is_cut_and_others_go_on() {
        let mut streams = Streams::default();
        let (_silent, mut reading) = (begin(&mut streams), begin(&mut streams));
        let event = format!("data: {}\n\n", "x".repeat(50_000));
        let mut buffer = vec![0; 1 << 20];
        reading.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while streams.cut == 0 {
            streams.send(&event, NOW);
            sent += 1;
            while reading.read(&mut buffer).is_ok_and(|read| read > 0) {
                look_at_all(&mut streams, PollFlags::OUT, NOW);
            }
            assert!(sent < 1000, "the kernel's buffer and ours are bounded");
        }
        assert_eq!((streams.room(0), streams.cut), (STREAMS - 1, 1));
    }

    #[test]
    fn stalled_stream_is_cut_and_old_stream_ends() {
        let mut streams = Streams::default();
        let client = begin(&mut streams);
        assert_eq!(streams.deadline(), NOW + LIFETIME);
        let event = "x".repeat(20_000);
        while streams.deadline() == NOW + LIFETIME {
            streams.send(&event, NOW);
        }
        assert_eq!(streams.deadline(), NOW + STALL);
        assert_eq!(look_at_all(&mut streams, PollFlags::empty(), NOW + STALL - Nanos(1)), 1);
        assert_eq!((look_at_all(&mut streams, PollFlags::empty(), NOW + STALL), streams.cut), (0, 1));
        drop(client);
        let _client = begin(&mut streams);
        assert_eq!((look_at_all(&mut streams, PollFlags::empty(), NOW + LIFETIME), streams.cut), (0, 1));
        drop(begin(&mut streams));
        assert_eq!((look_at_all(&mut streams, PollFlags::IN, NOW), streams.cut), (0, 1));
    }
}
