//! Kernel sockets, and two interest sets for them.
//!
//! The set of connecting sockets is edge-triggered. Each socket is registered once and stays registered
//! unless it is given to another process. The set of established sockets contains the *whole* first set as
//! one descriptor. A turn that only reads replies then makes one call for all sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use base::{Key, Nanos};
use dispatch::mechanism::{Epoll, EpollEdge};
use dispatch::{Dispatcher, Interest, Token};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::{Event, Transport};
use crate::engine::wire::transport::sources::{Destinations, Sources, connect_again};
use crate::error::LoadError;
use crate::plan::terms::target::addressing::Target;

/// The token of the connecting set inside the other set. No connection has this token: the generations of
/// living slab places are odd, and the places end far below.
const CONNECTING_SET: Token = Token(u64::MAX - (1 << 32));

/// The token of the socket to the other half of a pair; like [`CONNECTING_SET`], no connection has it.
const OTHER_HALF: Token = Token(CONNECTING_SET.0 - 1);

/// Connections over kernel sockets.
pub(crate) struct KernelSockets {
    destinations: Destinations,
    sources: Sources,
    connecting: Dispatcher<EpollEdge>,
    /// True when the connecting set needs a wait: the other set reported it, or sockets are to be registered.
    connecting_waits: bool,
    established: Dispatcher<Epoll>,
    /// Connections that another process has taken over and that are still open here.
    given_away: Vec<OwnedFd>,
    /// The events of one wait, all of one set. `told` is the number already returned; `of_connecting_set`
    /// names the set.
    events: Vec<dispatch::Event>,
    told: usize,
    of_connecting_set: bool,
}

impl KernelSockets {
    /// Sockets to `target`, from these sources.
    ///
    /// # Errors
    /// No descriptor or memory for an interest set; a socket file whose path is too long for the kernel.
    pub fn new(target: &Target, sources: Sources) -> Result<KernelSockets, LoadError> {
        let destinations = Destinations::new(target).map_err(LoadError::system("naming the socket file"))?;
        let make = "an interest set for connections";
        let connecting = Dispatcher::<EpollEdge>::new().map_err(LoadError::system(make))?;
        let mut established = Dispatcher::<Epoll>::new().map_err(LoadError::system(make))?;
        established.register(connecting.as_fd(), CONNECTING_SET, Interest::Read);
        Ok(KernelSockets {
            destinations,
            sources,
            connecting,
            connecting_waits: false,
            established,
            given_away: Vec::new(),
            events: Vec::new(),
            told: 0,
            of_connecting_set: false,
        })
    }
}

impl Transport for KernelSockets {
    type Socket = OwnedFd;

    fn connect(&mut self, key: Key) -> io::Result<OwnedFd> {
        let socket = self.sources.connect(self.destinations.next())?;
        self.connecting.register(socket.as_fd(), key.into(), Interest::Write);
        self.connecting_waits = true;
        Ok(socket)
    }

    /// The key stays. No event of the abandoned attempt can be on its way: the kernel looks at the socket
    /// when it reports an event, not when it queues one.
    fn connect_again(&mut self, socket: &mut OwnedFd, _key: Key) -> io::Result<()> {
        connect_again(socket, self.destinations.next())
    }

    fn established(&mut self, socket: &OwnedFd) -> io::Result<()> {
        // Sends nothing, but fails for a socket that is not connected.
        self.send(socket, &[])?;
        // A socket that is not TCP has no such delay.
        let _ = rustix::net::sockopt::set_tcp_nodelay(socket, true);
        Ok(())
    }

    fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    fn receive<'b>(&'b mut self, socket: &OwnedFd, scratch: &'b mut [u8]) -> io::Result<&'b [u8]> {
        loop {
            match rustix::net::recv(socket, &mut *scratch, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                received => {
                    let (length, _) = received?;
                    return Ok(&scratch[..length]);
                }
            }
        }
    }

    fn watch(&mut self, socket: &OwnedFd, key: Key, is_sending: bool) {
        let interest = if is_sending { Interest::Both } else { Interest::Read };
        self.established.register(socket.as_fd(), key.into(), interest);
    }

    fn unwatch(&mut self, socket: &OwnedFd) {
        self.established.deregister(socket.as_fd());
    }

    fn is_acknowledged(&mut self, socket: &OwnedFd) -> bool {
        sys::socket::has_data_acknowledged(socket.as_fd()).unwrap_or(true)
    }

    fn close(&mut self, socket: OwnedFd) {
        self.connecting.closing(socket.as_fd());
        self.established.closing(socket.as_fd());
    }

    fn poll_connects(&mut self, _now: Nanos) -> io::Result<bool> {
        if !std::mem::take(&mut self.connecting_waits) {
            return Ok(false);
        }
        self.events.clear();
        (self.told, self.of_connecting_set) = (0, true);
        self.connecting.wait(&mut self.events, Some(Nanos::ZERO))?;
        self.given_away.clear();
        Ok(true)
    }

    fn wait(&mut self, _now: Nanos, timeout: Nanos) -> io::Result<()> {
        self.events.clear();
        (self.told, self.of_connecting_set) = (0, false);
        self.established.wait(&mut self.events, Some(timeout)).map(drop)
    }

    fn next(&mut self, _now: Nanos) -> io::Result<Option<Event>> {
        while let Some(event) = self.events.get(self.told) {
            self.told += 1;
            return Ok(Some(match event.token {
                token if self.of_connecting_set => Event::Connect(token.into()),
                CONNECTING_SET => {
                    self.connecting_waits = true;
                    continue;
                }
                OTHER_HALF => Event::OtherHalf,
                token => Event::Ready(token.into()),
            }));
        }
        Ok(None)
    }

    fn descriptor(socket: &OwnedFd) -> Option<BorrowedFd<'_>> {
        Some(socket.as_fd())
    }

    fn adopt(&mut self, descriptor: OwnedFd) -> Option<OwnedFd> {
        Some(descriptor)
    }

    fn give_away(&mut self, socket: OwnedFd) {
        self.connecting.deregister(socket.as_fd());
        self.connecting_waits = true;
        self.given_away.push(socket);
    }

    fn watch_half(&mut self, half: BorrowedFd<'_>, interest: Interest) {
        self.established.register(half, OTHER_HALF, interest);
    }

    fn unwatch_half(&mut self, half: BorrowedFd<'_>) {
        self.established.deregister(half);
    }
}
