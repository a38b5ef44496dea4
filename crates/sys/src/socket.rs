//! Socket options and states that `rustix` does not offer, and the first steps of every listening socket.
//!
//! `reuseport` has the programs that choose among the listeners of an address, and `passing` sends descriptors over Unix
//! sockets.

pub mod passing;
pub mod reuseport;

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use base::Nanos;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::check;
use reuseport::{Op, attach_filter, statement};

/// The address that a socket is bound to (`getsockname`).
///
/// # Errors
/// The socket has no internet address.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    let address = rustix::net::getsockname(socket)?;
    address.try_into().map_err(|_| io::Error::other("a TCP socket has an internet address"))
}

/// Makes a non-blocking TCP socket that is bound to an address, with SO_REUSEADDR. A `shared` one has SO_REUSEPORT too.
///
/// # Errors
/// The errors of bind(2): address in use, not an address of this machine, no permission.
pub fn bind_stream(address: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shared)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// A listener's accept queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Connections established and not yet accepted.
    pub depth: u32,
    /// Capacity of the queue: the backlog, bounded by `somaxconn`.
    pub limit: u32,
    /// Packets and connections that this socket has dropped since it was made.
    pub drops: u32,
}

/// Reads a listener's accept queue: depth and limit from TCP_INFO (`tcpi_unacked` and `tcpi_sacked` of
/// a listening socket), drops from SO_MEMINFO.
///
/// # Errors
/// ENOPROTOOPT if the socket is not a TCP socket.
pub fn accept_queue(listener: BorrowedFd<'_>) -> io::Result<AcceptQueue> {
    let info: libc::tcp_info = get(listener, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    // SK_MEMINFO_DROPS is the ninth of nine counters.
    let memory: [u32; 9] = get(listener, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(AcceptQueue { depth: info.tcpi_unacked, limit: info.tcpi_sacked, drops: memory[8] })
}

/// Returns true if the other end has acknowledged data that this TCP connection has sent (`tcpi_bytes_acked` of
/// TCP_INFO, which counts the SYN as a byte).
///
/// # Errors
/// ENOPROTOOPT if the socket is not a TCP socket.
pub fn has_data_acknowledged(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let info: libc::tcp_info = get(socket, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(info.tcpi_bytes_acked > 1)
}

/// Returns the number of segments that a TCP connection has sent again, its SYN among them (`tcpi_total_retrans` of
/// TCP_INFO).
///
/// # Errors
/// ENOPROTOOPT if the socket is not a TCP socket.
pub fn sent_again(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let info: libc::tcp_info = get(socket, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(info.tcpi_total_retrans)
}

/// Returns the time since a TCP connection has received data (`tcpi_last_data_recv` of TCP_INFO), in steps of a tick of the
/// kernel's clock.
///
/// # Errors
/// ENOPROTOOPT if the socket is not a TCP socket.
pub fn since_received(socket: BorrowedFd<'_>) -> io::Result<Nanos> {
    let info: libc::tcp_info = get(socket, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(Nanos::from_millis(info.tcpi_last_data_recv.into()))
}

/// Delays the choice of the port of a later bind to the connect, when the whole four-tuple is known
/// (`IP_BIND_ADDRESS_NO_PORT`). Otherwise an address has only 28,000 ports.
///
/// # Errors
/// ENOPROTOOPT if the socket is not an IP socket.
pub fn set_bind_address_no_port(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Assigns each connection to the accept queue of the processor that receives it
/// (`SO_ATTACH_REUSEPORT_CBPF`). The listeners must share an address by SO_REUSEPORT. Connections that
/// `cpus[k]` receives go to the k-th listener of the group, in the order in which they began to listen. The
/// kernel's hash spreads the connections of other processors. Any listener of the group may be passed, and
/// later ones join it.
///
/// # Errors
/// EINVAL if the socket is not in such a group, or if there are more than 2000 processors; ENOMEM.
pub fn steer_by_cpu(listener: BorrowedFd<'_>, cpus: &[usize]) -> io::Result<()> {
    let mut program = vec![Op::LoadCpu];
    for (queue, cpu) in cpus.iter().enumerate() {
        program.extend([Op::SkipUnless(*cpu as u32, 1), Op::Return(queue as u32)]);
    }
    // No queue has this index, so the kernel uses its hash.
    program.push(Op::Return(u32::MAX));
    reuseport::attach(listener, &program)
}

/// Takes its program from a SO_REUSEPORT group (`SO_DETACH_REUSEPORT_BPF`). From then on the kernel's hash chooses.
///
/// # Errors
/// ENOENT if the group has no program; ENOPROTOOPT before Linux 5.3.
pub fn detach(member: BorrowedFd<'_>) -> io::Result<()> {
    set(member, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0)
}

/// Makes the kernel drop all SYNs that reach a listener from now on (`SO_ATTACH_FILTER`). Handshakes under
/// way continue, and the accept queue keeps its connections.
///
/// # Errors
/// EPERM if the filter of the socket is locked; ENOMEM.
pub fn drop_new_connections(listener: BorrowedFd<'_>) -> io::Result<()> {
    /// Offset in the TCP header, where the filter of a TCP socket begins to read (RFC 9293, 3.1).
    const FLAGS_OFFSET: u32 = 13;
    const SYN: u32 = 2;
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, FLAGS_OFFSET),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, SYN) },
        statement(libc::BPF_RET | libc::BPF_K, 0),
        statement(libc::BPF_RET | libc::BPF_K, u32::MAX),
    ];
    attach_filter(listener, libc::SO_ATTACH_FILTER, &mut filter)
}

/// Makes the kernel cut a large datagram into datagrams of `length` bytes, of which the last may be shorter
/// (`UDP_SEGMENT`). A call can send at most 64 of them.
///
/// # Errors
/// ENOPROTOOPT if the socket is not a UDP socket.
pub fn set_udp_segment(socket: BorrowedFd<'_>, length: u16) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, libc::c_int::from(length))
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
    // SAFETY: zeroed before, and `Plain` guarantees that any bits from the kernel are a value.
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
    use std::fs;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;

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
    fn dropping_listener_keeps_queued_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut early = TcpStream::connect(address).unwrap();
        drop_new_connections(listener.as_fd()).unwrap();
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        let late =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None)
                .unwrap();
        assert_eq!(rustix::net::connect(&late, &address), Err(rustix::io::Errno::INPROGRESS));
        assert_eq!(accept_queue(listener.as_fd()).unwrap().depth, 1);
        let (mut accepted, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut early, b"x").unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(&mut accepted, &mut byte).unwrap();
        assert_eq!((byte, accept_queue(listener.as_fd()).unwrap().depth), (*b"x", 0));
    }

    #[test]
    fn acknowledged_data_is_told_from_an_acknowledged_syn() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!has_data_acknowledged(client.as_fd()).unwrap());
        std::io::Write::write_all(&mut client, b"request").unwrap();
        // On loopback the acknowledgment may arrive after the call returns; the reply certainly brings it.
        let (mut server, _) = listener.accept().unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(&mut server, &mut [0; 7]).unwrap();
        std::io::Write::write_all(&mut server, b"r").unwrap();
        std::io::Read::read_exact(&mut client, &mut byte).unwrap();
        assert!(has_data_acknowledged(client.as_fd()).unwrap());
    }

    /// Two listeners that share an address.
    fn group() -> [OwnedFd; 2] {
        use rustix::net::{AddressFamily, SocketType, sockopt};
        let mut address = "127.0.0.1:0".parse::<SocketAddr>().unwrap();
        [(); 2].map(|()| {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            sockopt::set_socket_reuseport(&socket, true).unwrap();
            rustix::net::bind(&socket, &address).unwrap();
            rustix::net::listen(&socket, 64).unwrap();
            address = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
            socket
        })
    }

    /// Connects `connections` times on the first processor that this process may use, and returns the depth
    /// of each queue.
    fn depths_after(connections: usize, group: &[OwnedFd; 2]) -> [u32; 2] {
        let address: SocketAddr = rustix::net::getsockname(&group[0]).unwrap().try_into().unwrap();
        let connect = || {
            crate::cpu::pin(&crate::cpu::allowed().unwrap()[..1]).unwrap();
            (0..connections).map(|_| TcpStream::connect(address).unwrap()).collect::<Vec<_>>()
        };
        let clients = std::thread::scope(|scope| scope.spawn(connect).join().unwrap());
        let depths = group.each_ref().map(|listener| accept_queue(listener.as_fd()).unwrap().depth);
        drop(clients);
        depths
    }

    #[test]
    fn connections_go_to_the_queue_of_their_processor() {
        if fs::read_to_string("/sys/class/net/lo/queues/rx-0/rps_cpus")
            .is_ok_and(|cpus| cpus.contains(|digit| "123456789abcdef".contains(digit)))
        {
            println!("skipped: receive work of the loopback interface is steered by this system");
            return;
        }
        let here = crate::cpu::allowed().unwrap()[0];
        let nowhere = 4095;
        for (cpus, expected) in [([here, nowhere], [32, 0]), ([nowhere, here], [0, 32])] {
            let group = group();
            steer_by_cpu(group[1].as_fd(), &cpus).unwrap();
            assert_eq!(depths_after(32, &group), expected, "{cpus:?}");
        }
        let group = group();
        steer_by_cpu(group[0].as_fd(), &[nowhere, nowhere]).unwrap();
        let depths = depths_after(32, &group);
        assert!(depths[0] + depths[1] == 32 && depths.iter().all(|depth| *depth > 0), "hashed: {depths:?}");
    }

    #[test]
    fn only_a_group_can_be_steered() {
        let alone = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(steer_by_cpu(alone.as_fd(), &[0]).is_err());
        assert!(steer_by_cpu(group()[0].as_fd(), &vec![0; 40_000]).is_err());
    }

    #[test]
    fn a_datagram_socket_has_no_accept_queue() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(accept_queue(socket.as_fd()).is_err());
    }
}
