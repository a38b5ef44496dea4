//! Tools for every case: a dispatcher that gathers its reports, and pairs of connected sockets.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use base::Nanos;
use dispatch::{Dispatcher, Event, Interest, Mechanism, Token, Trigger, Waited};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

/// Waits of zero timeout without a report after which every ready descriptor has been reported. The
/// locality-aware mechanism polls its idle set every ninth time.
pub const ROUNDS: usize = 12;
/// Longer than any wait of a test takes.
pub const LONG: Nanos = Nanos::from_secs(20);

/// A dispatcher that gathers its reports.
pub struct Bench<M> {
    pub dispatcher: Dispatcher<M>,
}

impl<M: Mechanism> Bench<M> {
    pub fn new() -> Bench<M> {
        Bench { dispatcher: Dispatcher::new().expect("a dispatcher") }
    }

    pub fn is_edge() -> bool {
        M::CAPABILITIES.trigger == Trigger::Edge
    }

    pub fn register(&mut self, fd: impl AsFd, token: u64, interest: Interest) {
        self.dispatcher.register(fd.as_fd(), Token(token), interest);
    }

    /// All reports at this moment. Several reports of one descriptor are merged.
    pub fn reports(&mut self) -> BTreeMap<u64, Event> {
        let (mut reports, mut events) = (BTreeMap::new(), Vec::new());
        let mut rounds_without_news = 0;
        while rounds_without_news < ROUNDS {
            self.dispatcher.wait(&mut events, Some(Nanos::ZERO)).expect("a wait");
            let before = reports.len();
            merge(&mut reports, &events);
            events.clear();
            rounds_without_news = if reports.len() > before { 0 } else { rounds_without_news + 1 };
        }
        reports
    }

    /// Waits for a report of one descriptor. Fails on a report of another.
    pub fn report_of(&mut self, token: u64) -> Event {
        self.report_where(token, |_| true)
    }

    /// Waits until the reports of one descriptor together satisfy a condition. Fails on a report of another.
    pub fn report_where(&mut self, token: u64, enough: impl Fn(Event) -> bool) -> Event {
        let (mut reports, mut events) = (BTreeMap::new(), Vec::new());
        loop {
            let waited = self.dispatcher.wait(&mut events, Some(LONG)).expect("a wait");
            assert!(!events.is_empty() || waited == Waited::Interrupted, "nothing more: {reports:?}");
            merge(&mut reports, &events);
            events.clear();
            assert!(reports.keys().all(|reported| *reported == token), "of another: {reports:?}");
            if let Some(event) = reports.get(&token).copied().filter(|event| enough(*event)) {
                return event;
            }
        }
    }

    /// Asserts that no descriptor is reported.
    pub fn silent(&mut self) {
        assert_eq!(self.reports(), BTreeMap::new());
    }
}

fn merge(reports: &mut BTreeMap<u64, Event>, events: &[Event]) {
    for event in events {
        let known = reports.entry(event.token.0).or_insert(*event);
        known.readable |= event.readable;
        known.writable |= event.writable;
        known.failed |= event.failed;
    }
}

/// Two connected stream sockets that do not block.
pub fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair")
}

/// A connected TCP pair that does not block: the accepted side first.
pub fn tcp_pair() -> (OwnedFd, OwnedFd) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let connecting = std::net::TcpStream::connect(listener.local_addr().expect("its address"));
    let client = connecting.expect("a connection");
    let (server, _) = listener.accept().expect("a connection");
    for socket in [&server, &client] {
        socket.set_nonblocking(true).expect("to set a flag");
    }
    (server.into(), client.into())
}

pub fn send(fd: impl AsFd, bytes: &[u8]) {
    let sent = rustix::net::send(fd, bytes, SendFlags::NOSIGNAL).expect("room to send");
    assert_eq!(sent, bytes.len());
}

/// The result of reading all available bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Drained {
    WouldBlock,
    End,
    Failed(Errno),
}

pub fn drain(fd: impl AsFd) -> Drained {
    let mut scratch = [0; 4096];
    loop {
        match rustix::io::read(&fd, &mut scratch) {
            Ok(0) => return Drained::End,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Drained::WouldBlock,
            Err(errno) => return Drained::Failed(errno),
        }
    }
}

/// Sends until the socket has no room.
pub fn fill(fd: impl AsFd) {
    loop {
        match rustix::net::send(&fd, &[0; 4096], SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return,
            Err(errno) => panic!("cannot fill: {errno}"),
        }
    }
}

/// Waits for a descriptor without a dispatcher.
pub fn until_readable(fd: impl AsFd) {
    let mut set = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let timeout = rustix::event::Timespec { tv_sec: (LONG.0 / Nanos::SECOND.0) as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut set, Some(&timeout)), Ok(1));
}
