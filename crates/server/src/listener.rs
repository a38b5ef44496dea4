//! Listening sockets.
//!
//! A server has one accept queue, or one for each loop. With several queues, or with overload control, listeners and
//! sinks of an address form a SO_REUSEPORT group. SO_REUSEPORT would also let a second server of the same user share
//! the port silently. So a given port is first bound without SO_REUSEPORT, which fails if another server listens
//! there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use base::Nanos;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, ipproto, sockopt};
use sys::poll::{self, PollFd, bits};
use sys::socket::{AcceptQueue, accept_queue, drop_new_connections};

/// A socket that accepts connections.
#[derive(Debug)]
pub struct Listener {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// The address it is bound to, the port never 0.
    pub address: SocketAddr,
}

impl Listener {
    /// Takes over a listener that another process has made.
    ///
    /// # Errors
    /// The descriptor is no socket with an internet address.
    pub fn inherited(socket: OwnedFd) -> io::Result<Listener> {
        let address = local_address(&socket)?;
        Ok(Listener { socket, address })
    }

    /// Begins to listen, or listens again after [`Listener::hand_over`].
    ///
    /// # Errors
    /// EADDRINUSE if another server listens at the address.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        Ok(rustix::net::listen(&self.socket, i32::try_from(backlog).unwrap_or(i32::MAX))?)
    }

    /// Stops listening. In a group whose program migrates, the kernel moves the connections of the accept queue to
    /// other listeners of the group; elsewhere it resets them.
    pub fn hand_over(&self) {
        // A socket that does not listen has nothing to hand over.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Tells whether a connection waits in the accept queue.
    pub fn somebody_waits(&self) -> bool {
        somebody_waits(self.socket.as_fd())
    }

    /// Lets no more connections into the accept queue. Their clients try again, and are refused once the listener is
    /// closed. Otherwise the close would reset the connections that arrive after the last accept.
    pub fn seal(&self) {
        // If the kernel cannot do it, that gap of some microseconds stays.
        let _ = drop_new_connections(self.socket.as_fd());
    }

    /// Returns the depth, limit and drops of these listeners' accept queues together; zeros if the kernel does not
    /// report them.
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

/// Tells whether a connection waits in the accept queue of a listening socket.
pub fn somebody_waits(listener: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::new(listener.as_raw_fd(), bits::IN)];
    matches!(poll::wait(&mut set, Some(Nanos::ZERO)), Ok(1))
}

/// Binds and listens: `queues` sockets for the same address, each with its own accept queue. Sinks can join a
/// `group`; several queues always form one. Accepted connections inherit TCP_NODELAY.
///
/// # Errors
/// The errors of bind(2) and listen(2): address in use, not an address of this machine, no permission.
pub fn listen(address: SocketAddr, backlog: u32, queues: usize, group: bool) -> io::Result<Vec<Listener>> {
    let group = group || queues > 1;
    // The kernel chooses an unused port, but lets a server of the same user share a given one.
    if group && address.port() != 0 {
        drop(bind(address, false)?);
    }
    let first = listen_one(address, backlog, group)?;
    let address = first.address;
    let others = (1..queues).map(|_| listen_one(address, backlog, group));
    std::iter::once(Ok(first)).chain(others).collect()
}

fn listen_one(address: SocketAddr, backlog: u32, shared: bool) -> io::Result<Listener> {
    let socket = bind(address, shared)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    let address = local_address(&socket)?;
    let listener = Listener { socket, address };
    listener.listen(backlog)?;
    Ok(listener)
}

/// Binds `count` sockets of a group to an address. None of them listens yet. Each keeps the port while it is open,
/// listening or not. Accepted connections inherit TCP_NODELAY.
///
/// # Errors
/// The errors of bind(2): address in use, not an address of this machine, no permission.
pub fn bind_group(address: SocketAddr, count: usize) -> io::Result<Vec<Listener>> {
    if address.port() != 0 {
        drop(bind(address, false)?);
    }
    // A listener that stops loses a port that the kernel chose. So the other sockets name the port.
    let chooses = bind(address, true)?;
    let address = local_address(&chooses)?;
    let bound = (0..count).map(|_| {
        let socket = bind(address, true)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        Ok(Listener { socket, address })
    });
    bound.collect()
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
    fn a_group_listens_stops_and_listens_again_at_one_port() {
        let group = bind_group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let address = group[0].address;
        let connects = || std::net::TcpStream::connect(address).is_ok();
        assert!(address.port() != 0 && group[1].address == address && !connects());
        for _ in 0..2 {
            group[0].listen(16).unwrap();
            assert!(connects() && group[0].somebody_waits());
            group[0].hand_over();
            assert!(!connects());
        }
        group[1].listen(16).unwrap();
        assert_eq!(bind_group(address, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn several_queues_share_one_port_and_nobody_else_joins() {
        let first = listen("127.0.0.1:0".parse().unwrap(), 16, 3, false).unwrap();
        assert_eq!(first.len(), 3);
        assert!(first.iter().all(|listener| listener.address == first[0].address));
        for (queues, group) in [(2, true), (1, true), (1, false)] {
            let error = listen(first[0].address, 16, queues, group).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }
}
