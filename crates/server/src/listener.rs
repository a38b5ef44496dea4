//! Listening sockets.
//!
//! One queue, or one a loop with SO_REUSEPORT. SO_REUSEPORT would also let a second server of the same
//! user share the port without a word, so an address is first bound without it, which fails where
//! anybody else listens.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use base::Nanos;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use sys::poll::{self, PollFd, bits};
use sys::socket::{AcceptQueue, accept_queue, drop_new_connections};

/// A socket that connections can be accepted from.
#[derive(Debug)]
pub struct Listener {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// The address it is bound to, the port never 0.
    pub address: SocketAddr,
}

impl Listener {
    /// A listener that another process has made.
    ///
    /// # Errors
    /// Not a socket with an internet address.
    pub fn inherited(socket: OwnedFd) -> io::Result<Listener> {
        let address = local_address(&socket)?;
        Ok(Listener { socket, address })
    }

    /// Whether a connection waits in the accept queue.
    pub fn somebody_waits(&self) -> bool {
        let mut set = [PollFd::new(self.socket.as_raw_fd(), bits::IN)];
        matches!(poll::wait(&mut set, Some(Nanos::ZERO)), Ok(1))
    }

    /// Lets no more connections into the accept queue. Their clients try again, and are refused once the listener is
    /// closed. Without it, those that come between the last accept and the close would be reset.
    pub fn seal(&self) {
        // Where the kernel does not do it, that gap stays: some microseconds.
        let _ = drop_new_connections(self.socket.as_fd());
    }

    /// Depth, limit and drops of these listeners' accept queues together; zeros where the kernel does not say.
    pub fn queues(listeners: &[Listener]) -> AcceptQueue {
        let queues =
            listeners.iter().map(|listener| accept_queue(listener.socket.as_fd()).unwrap_or_default());
        queues.fold(AcceptQueue::default(), |sum, queue| AcceptQueue {
            depth: sum.depth + queue.depth,
            limit: sum.limit + queue.limit,
            drops: sum.drops + queue.drops,
        })
    }
}

/// Binds and listens: `queues` sockets for the same address, each with its own accept queue. Accepted
/// connections inherit TCP_NODELAY.
///
/// # Errors
/// As bind(2) and listen(2): in use, not an address of this machine, no permission.
pub fn listen(address: SocketAddr, backlog: u32, queues: usize) -> io::Result<Vec<Listener>> {
    if queues == 1 {
        return Ok(vec![listen_one(address, backlog, false)?]);
    }
    let alone = bind(address, false)?;
    let address = local_address(&alone)?;
    drop(alone);
    (0..queues).map(|_| listen_one(address, backlog, true)).collect()
}

fn listen_one(address: SocketAddr, backlog: u32, shared: bool) -> io::Result<Listener> {
    let socket = bind(address, shared)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    let address = local_address(&socket)?;
    Ok(Listener { socket, address })
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shared)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    let address = rustix::net::getsockname(socket)?;
    address.try_into().map_err(|_| io::Error::other("a TCP socket has an internet address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_queues_share_one_port_and_nobody_else_joins() {
        let first = listen("127.0.0.1:0".parse().unwrap(), 16, 3).unwrap();
        assert_eq!(first.len(), 3);
        assert!(first.iter().all(|listener| listener.address == first[0].address));
        let error = listen(first[0].address, 16, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(listen(first[0].address, 16, 1).is_err());
    }
}
