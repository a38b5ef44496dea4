//! Opens kernel sockets from source addresses in turn.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::plan::Plan;
use crate::plan::config::Close;
use crate::plan::source_addresses::SourceRange;

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
    pub(crate) fn connect(&mut self, target: SocketAddr) -> io::Result<OwnedFd> {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        if let Some(range) = self.range {
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
pub(crate) fn connect_again(socket: &OwnedFd, target: SocketAddr) -> io::Result<()> {
    rustix::net::connect_unspec(socket)?;
    begin(socket, target)
}

fn begin(socket: &OwnedFd, target: SocketAddr) -> io::Result<()> {
    match rustix::net::connect(socket, &target) {
        // After EINTR the connect goes on, as after EINPROGRESS.
        Ok(()) | Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
