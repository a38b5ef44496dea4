//! Socket options and states that `rustix` does not know.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::check;

/// A listener's accept queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Connections established and not yet accepted.
    pub depth: u32,
    /// The most it holds: the backlog, bounded by `somaxconn`.
    pub limit: u32,
    /// Packets and connections this socket has dropped since it was made.
    pub drops: u32,
}

/// Reads a listener's accept queue: depth and limit from TCP_INFO (`tcpi_unacked` and `tcpi_sacked` of
/// a listening socket), drops from SO_MEMINFO.
///
/// # Errors
/// ENOPROTOOPT where it is not a TCP socket.
pub fn accept_queue(listener: BorrowedFd<'_>) -> io::Result<AcceptQueue> {
    let info: libc::tcp_info = get(listener, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    // SK_MEMINFO_DROPS is the ninth of nine counters.
    let memory: [u32; 9] = get(listener, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(AcceptQueue { depth: info.tcpi_unacked, limit: info.tcpi_sacked, drops: memory[8] })
}

/// Lets a later bind to an address choose its port only at connect time, when the whole four-tuple is
/// known: otherwise 28,000 ports an address are all there are (`IP_BIND_ADDRESS_NO_PORT`).
///
/// # Errors
/// ENOPROTOOPT where it is not an IP socket.
pub fn set_bind_address_no_port(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Plain data that the kernel fills in: any bit pattern is a value.
trait Plain: Copy {}
impl Plain for libc::tcp_info {}
impl Plain for [u32; 9] {}

fn get<T: Plain>(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `value`, which is that large.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length)
    })?;
    // SAFETY: zeroed before, and `Plain` says that whatever the kernel wrote is a value.
    Ok(unsafe { value.assume_init() })
}

fn set(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads the size of an int behind the pointer, which lives through the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_accept_queue_shows_what_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let before = accept_queue(listener.as_fd()).unwrap();
        assert_eq!((before.depth, before.drops), (0, 0));
        let _first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _second = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let after = accept_queue(listener.as_fd()).unwrap();
        assert_eq!(after.depth, 2);
        assert!(after.limit >= 2);
    }

    #[test]
    fn a_datagram_socket_has_no_accept_queue() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(accept_queue(socket.as_fd()).is_err());
    }
}
