//! Opens kernel sockets from source addresses in turn, to the target's addresses in turn.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType};

use crate::plan::Plan;
use crate::plan::choices::source_addresses::SourceRange;
use crate::plan::config::Close;
use crate::plan::terms::target::addressing::Target;

/// The addresses of the target, all of one family.
pub(crate) struct Destinations {
    addresses: Vec<SocketAddrAny>,
    next: usize,
}

impl Destinations {
    /// # Errors
    /// A socket file whose path is too long.
    pub fn new(target: &Target) -> io::Result<Destinations> {
        let addresses = match target {
            Target::Internet(addresses) => addresses.iter().map(|address| (*address).into()).collect(),
            Target::File(path) => vec![SocketAddrUnix::new(path)?.into()],
        };
        Ok(Destinations { addresses, next: 0 })
    }

    /// The address of the next connect.
    pub fn next(&mut self) -> &SocketAddrAny {
        let address = &self.addresses[self.next];
        self.next = (self.next + 1) % self.addresses.len();
        address
    }
}

/// Opens the sockets of one thread from its source addresses in turn.
pub(crate) struct Sources {
    range: Option<SourceRange>,
    next: u32,
    receive_buffer: Option<usize>,
    close: Close,
}

impl Sources {
    /// The sources of one thread of a plan. Threads begin at different addresses, so that they do not search the same
    /// ports.
    pub(crate) fn of_thread(plan: &Plan, thread: u32) -> Sources {
        Sources::new(plan.sources, thread * 7, plan.config.close)
    }

    /// Sockets from `range`, or from the address that the kernel chooses, that close their connections by
    /// `close`. `offset` makes threads begin at different addresses.
    pub(crate) fn new(range: Option<SourceRange>, offset: u32, close: Close) -> Sources {
        let next = range.map_or(0, |range| offset % range.count());
        Sources { range, next, receive_buffer: None, close }
    }

    /// Sockets that ask the kernel for a receive buffer of about `bytes`, so that slow reading reaches the
    /// server; `None` leaves the size to the kernel.
    pub(crate) fn with_receive_buffer(self, bytes: Option<u32>) -> Sources {
        Sources { receive_buffer: bytes.map(|bytes| bytes as usize), ..self }
    }

    /// Begins a connect without waiting for it: two system calls, four with a source address.
    ///
    /// # Errors
    /// A shortage of descriptors, memory or ports; a refusal known at once.
    pub(crate) fn connect(&mut self, target: &SocketAddrAny) -> io::Result<OwnedFd> {
        let family = target.address_family();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        if let Some(range) = self.range.filter(|_| family != AddressFamily::UNIX) {
            sys::socket::set_bind_address_no_port(socket.as_fd())?;
            rustix::net::bind(&socket, &SocketAddr::new(range.nth(self.next), 0))?;
            self.next = (self.next + 1) % range.count();
        }
        if let Some(bytes) = self.receive_buffer {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        if self.close == Close::Reset {
            // Closing a connection that is not established sends nothing, with or without this option.
            rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        }
        begin(&socket, target)?;
        Ok(socket)
    }
}

/// Abandons a pending connect and begins another from the same socket and source address with a new port. It
/// takes two system calls; close, socket, bind, connect and a new registration take five. Like a close in
/// SYN-SENT it sends nothing for the old attempt.
///
/// # Errors
/// As [`Sources::connect`].
pub(crate) fn connect_again(socket: &OwnedFd, target: &SocketAddrAny) -> io::Result<()> {
    rustix::net::connect_unspec(socket)?;
    begin(socket, target)
}

fn begin(socket: &OwnedFd, target: &SocketAddrAny) -> io::Result<()> {
    match rustix::net::connect(socket, target) {
        // After EINTR the connect goes on, as after EINPROGRESS.
        Ok(()) | Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => Ok(()),
        // The accept queue of a Unix-domain socket is full, and no event would tell of room.
        Err(rustix::io::Errno::AGAIN) if target.address_family() == AddressFamily::UNIX => {
            Err(rustix::io::Errno::CONNREFUSED.into())
        }
        Err(error) => Err(error.into()),
    }
}
