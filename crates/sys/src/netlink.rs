//! The few netlink requests an experiment needs: links, addresses, and the queues of listeners.
//!
//! Owns building and reading the messages of rtnetlink (rtnetlink(7)) and of sock_diag (sock_diag(7)).
//! It is no general netlink library: it knows these requests, IPv4, and nothing else. Messages are
//! built and taken apart as bytes, so there is no unsafe code here.
//!
//! Invariants: a socket speaks for the network namespace of the thread that opened it, whoever uses it
//! later. Requests on a socket are answered one at a time, in order. An answer that is shorter than its
//! header says is an error, never a panic.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, netlink};

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER_LENGTH: usize = 16;
/// `struct ifinfomsg`.
const LINK_LENGTH: usize = 16;
/// `struct inet_diag_msg` up to and including `idiag_wqueue`.
const DIAG_LENGTH: usize = 64;
/// The kernel never puts more than this into one datagram of an answer (`NLMSG_GOODSIZE` at its largest).
const DATAGRAM_LENGTH: usize = 32 * 1024;

// From <linux/veth.h>, <linux/sock_diag.h> and <net/tcp_states.h>; libc has none of the three.
const VETH_INFO_PEER: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP_LISTEN: u32 = 10;

/// A request under construction. Lengths are filled in at the end; attributes are padded to 4 bytes.
struct Request {
    bytes: Vec<u8>,
}

impl Request {
    fn new(kind: u16, flags: libc::c_int) -> Request {
        let mut request = Request { bytes: Vec::with_capacity(256) };
        request.put(&0_u32.to_ne_bytes());
        request.put(&kind.to_ne_bytes());
        request.put(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        request.put(&[0; 8]);
        request
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// `struct ifinfomsg` that names a link by number, and the flags to change in it.
    fn put_link(&mut self, index: u32, flags: u32, change: u32) {
        self.put(&[0; 4]);
        self.put(&index.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&change.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |request| request.put(value));
    }

    fn name(&mut self, name: &str) {
        self.attribute(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    }

    /// An attribute whose value is whatever `fill` puts.
    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Request)) {
        let start = self.bytes.len();
        self.put(&0_u16.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// One message of an answer.
struct Message<'a> {
    kind: u16,
    sequence: u32,
    payload: &'a [u8],
}

/// Takes the first message off a datagram.
fn split_message(datagram: &[u8]) -> io::Result<(Message<'_>, &[u8])> {
    let length = u32_at(datagram, 0)? as usize;
    if length < HEADER_LENGTH || length > datagram.len() {
        return Err(too_short());
    }
    let message = Message {
        kind: u16_at(datagram, 4)?,
        sequence: u32_at(datagram, 8)?,
        payload: &datagram[HEADER_LENGTH..length],
    };
    Ok((message, &datagram[length.next_multiple_of(4).min(datagram.len())..]))
}

fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    let field = bytes.get(at..at + 2).ok_or_else(too_short)?;
    Ok(u16::from_ne_bytes([field[0], field[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let field = bytes.get(at..at + 4).ok_or_else(too_short)?;
    Ok(u32::from_ne_bytes([field[0], field[1], field[2], field[3]]))
}

fn too_short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a netlink message shorter than it says")
}

/// A netlink socket of one protocol, and the number of the last request.
struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    fn open(protocol: Option<Protocol>) -> io::Result<Socket> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        rustix::net::bind(&fd, &netlink::SocketAddrNetlink::new(0, 0))?;
        Ok(Socket { fd, sequence: 0 })
    }

    /// Sends one request and hands the answer's payloads to `on_message` until the kernel says that
    /// it was the last, or that there is an error; `operation` names it then. Waits only for the
    /// kernel, which answers at once.
    fn ask(
        &mut self,
        operation: &str,
        request: Request,
        mut on_message: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{operation}: {error}"));
        self.sequence += 1;
        rustix::io::write(&self.fd, &request.finish(self.sequence)).map_err(|errno| named(errno.into()))?;
        let mut buffer = vec![0; DATAGRAM_LENGTH];
        loop {
            let length = rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut *buffer))
                .map_err(|errno| named(errno.into()))?;
            let mut datagram = &buffer[..length];
            while !datagram.is_empty() {
                let (message, rest) = split_message(datagram).map_err(named)?;
                datagram = rest;
                if message.sequence != self.sequence {
                    continue;
                }
                match libc::c_int::from(message.kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        return match u32_at(message.payload, 0).map_err(named)? as i32 {
                            0 => Ok(()),
                            negative => Err(named(io::Error::from_raw_os_error(-negative))),
                        };
                    }
                    _ => on_message(message.payload).map_err(named)?,
                }
            }
        }
    }
}

/// Links and addresses of one network namespace.
pub struct Route {
    socket: Socket,
}

impl Route {
    /// A socket for the network namespace of the calling thread.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2).
    pub fn open() -> io::Result<Route> {
        Ok(Route { socket: Socket::open(None)? })
    }

    /// Creates a veth pair: `name` here, and `peer_name` in the network namespace behind `peer`.
    /// A name has at most 15 bytes.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN in both namespaces; `AlreadyExists` when there is a
    /// link of that name; `Unsupported` or `InvalidInput` from a kernel without veth.
    pub fn create_veth(&mut self, name: &str, peer: BorrowedFd<'_>, peer_name: &str) -> io::Result<()> {
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWLINK, flags);
        request.put_link(0, 0, 0);
        request.name(name);
        request.nested(libc::IFLA_LINKINFO, |request| {
            request.attribute(libc::IFLA_INFO_KIND, b"veth");
            request.nested(libc::IFLA_INFO_DATA, |request| {
                request.nested(VETH_INFO_PEER, |request| {
                    request.put_link(0, 0, 0);
                    request.name(peer_name);
                    request.attribute(libc::IFLA_NET_NS_FD, &peer.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.socket.ask(&format!("create the veth pair {name}"), request, |_| Ok(()))
    }

    /// The number of a link.
    ///
    /// # Errors
    /// `ENODEV` when there is none of that name.
    pub fn link_index(&mut self, name: &str) -> io::Result<u32> {
        let mut request = Request::new(libc::RTM_GETLINK, libc::NLM_F_ACK);
        request.put_link(0, 0, 0);
        request.name(name);
        let mut index = None;
        self.socket.ask(&format!("find the link {name}"), request, |payload| {
            if payload.len() < LINK_LENGTH {
                return Err(too_short());
            }
            index = Some(u32_at(payload, 4)?);
            Ok(())
        })?;
        index.ok_or_else(too_short)
    }

    /// Brings a link up.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `ENODEV` when there is no such link.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK);
        request.put_link(index, libc::IFF_UP as u32, libc::IFF_UP as u32);
        self.socket.ask(&format!("bring link {index} up"), request, |_| Ok(()))
    }

    /// Gives a link an IPv4 address; the kernel adds the route to its network.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `AlreadyExists` when the link has that address.
    pub fn add_address(&mut self, index: u32, address: Ipv4Addr, prefix_length: u8) -> io::Result<()> {
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWADDR, flags);
        // `struct ifaddrmsg`: family, prefix length, flags, scope, link.
        request.put(&[libc::AF_INET as u8, prefix_length, 0, libc::RT_SCOPE_UNIVERSE]);
        request.put(&index.to_ne_bytes());
        request.attribute(libc::IFA_LOCAL, &address.octets());
        request.attribute(libc::IFA_ADDRESS, &address.octets());
        self.socket.ask(&format!("give link {index} the address {address}"), request, |_| Ok(()))
    }
}

/// What waits at the listeners of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Connections established and not yet accepted.
    pub depth: u32,
    /// How many the queue holds: the backlog, bounded by `net.core.somaxconn`.
    pub limit: u32,
}

/// Looks at sockets of one network namespace, without privileges, whichever process has them.
pub struct SocketDiagnostics {
    socket: Socket,
}

impl SocketDiagnostics {
    /// A socket for the network namespace of the calling thread.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2); `EPROTONOSUPPORT` from a kernel without sock_diag.
    pub fn open() -> io::Result<SocketDiagnostics> {
        Ok(SocketDiagnostics { socket: Socket::open(Some(netlink::SOCK_DIAG))? })
    }

    /// The accept queue of the IPv4 TCP listeners of `port`, the sum over them where SO_REUSEPORT gives
    /// it several; nothing when nobody listens. Costs one walk over the listeners of the namespace.
    ///
    /// # Errors
    /// `ENOENT` from a kernel without inet_diag.
    pub fn accept_queue(&mut self, port: u16) -> io::Result<Option<AcceptQueue>> {
        let mut request = Request::new(SOCK_DIAG_BY_FAMILY, libc::NLM_F_DUMP);
        // `struct inet_diag_req_v2`: family, protocol, extensions, padding, states, then the socket's
        // identity, of which only the source port is set.
        request.put(&[libc::AF_INET as u8, libc::IPPROTO_TCP as u8, 0, 0]);
        request.put(&(1_u32 << TCP_LISTEN).to_ne_bytes());
        request.put(&port.to_be_bytes());
        request.put(&[0; 46]);
        let mut found = None;
        self.socket.ask("look at the accept queue", request, |payload| {
            if payload.len() < DIAG_LENGTH {
                return Err(too_short());
            }
            let queue = found.get_or_insert(AcceptQueue::default());
            queue.depth += u32_at(payload, 56)?;
            queue.limit += u32_at(payload, 60)?;
            Ok(())
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn attributes_nest_and_are_padded() {
        let mut request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK);
        request.nested(7, |request| request.name("ab"));
        let bytes = request.finish(3);
        assert_eq!(bytes.len(), HEADER_LENGTH + 12);
        assert_eq!(u32_at(&bytes, 0).unwrap() as usize, bytes.len());
        assert_eq!(u16_at(&bytes, 16).unwrap(), 12, "the outer attribute holds the padded inner one");
        assert_eq!(u16_at(&bytes, 20).unwrap(), 7, "the inner length leaves the padding out");
        assert_eq!(&bytes[24..], b"ab\0\0");
    }

    #[test]
    fn a_broken_answer_is_an_error() {
        for bytes in [&[][..], &[0; 15], &[0; 16], &[255; 16]] {
            assert!(split_message(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_loopback_link_is_found_and_an_absent_one_is_named() {
        let mut route = Route::open().unwrap();
        assert_eq!(route.link_index("lo").unwrap(), 1);
        let error = route.link_index("no-such-link").unwrap_err().to_string();
        assert!(error.starts_with("find the link no-such-link: "), "{error}");
    }

    #[test]
    fn connections_nobody_accepts_are_seen_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut diagnostics = match SocketDiagnostics::open() {
            Ok(diagnostics) => diagnostics,
            Err(error) => return println!("skipped: no sock_diag here: {error}"),
        };
        let waiting: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        let queue = diagnostics.accept_queue(address.port()).unwrap().unwrap();
        assert_eq!(queue.depth as usize, waiting.len());
        assert!(queue.limit >= 3);
        drop(listener);
        assert_eq!(diagnostics.accept_queue(address.port()).unwrap(), None);
    }
}
