//! The few netlink requests of servers and experiments: links, addresses, routes, and existing sockets.
//!
//! Owns building and reading the messages of rtnetlink (rtnetlink(7)) and of sock_diag (sock_diag(7)). This
//! is not a general netlink library: it knows these requests and nothing else. Messages are built and parsed as
//! bytes, so there is no unsafe code here.
//!
//! Invariants: a socket speaks for the network namespace of the thread that opened it, even if another thread
//! uses it later. Requests on a socket are answered one at a time, in order. An answer that is shorter than
//! its header says is an error, never a panic.
//!
//! The modules: `inventory` lists links and addresses, `routes` has routes and devices, and `listeners` lists TCP listeners.

mod inventory;
mod listeners;
mod routes;

pub use inventory::{Link, LinkAddress};
pub use listeners::Listener;
pub use routes::{Destination, Device};

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, netlink};

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER_LENGTH: usize = 16;
/// `struct ifinfomsg`.
const LINK_LENGTH: usize = 16;
/// `struct inet_diag_msg` up to and including `idiag_wqueue`.
const DIAG_LENGTH: usize = 64;
/// Maximum bytes of one datagram of an answer (`NLMSG_GOODSIZE` at its largest).
const DATAGRAM_LENGTH: usize = 32 * 1024;
/// Maximum number of requests for a list that changes while the kernel reads it.
const LIST_TRIES: u32 = 8;

// From <linux/veth.h>, <linux/sock_diag.h> and <net/tcp_states.h>; libc has none of the three.
const VETH_INFO_PEER: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP_LISTEN: u32 = 10;
/// `TCP_CLOSE`, which is the state of a UDP socket without a peer.
const UDP_UNCONNECTED: u32 = 7;

/// A request under construction. Lengths are filled in at the end; attributes are padded to 4 bytes.
#[derive(Clone)]
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

    /// Appends a `struct ifinfomsg` that names a link by number, with the flags to change.
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

    /// Appends an attribute whose value `fill` writes.
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
    flags: u16,
    sequence: u32,
    payload: &'a [u8],
}

/// Splits the first message off a datagram.
fn split_message(datagram: &[u8]) -> io::Result<(Message<'_>, &[u8])> {
    let length = u32_at(datagram, 0)? as usize;
    if length < HEADER_LENGTH || length > datagram.len() {
        return Err(too_short());
    }
    let message = Message {
        kind: u16_at(datagram, 4)?,
        flags: u16_at(datagram, 6)?,
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

fn u64_at(bytes: &[u8], at: usize) -> io::Result<u64> {
    let field = bytes.get(at..at + 8).ok_or_else(too_short)?;
    Ok(u64::from_ne_bytes(field.try_into().expect("eight bytes were taken")))
}

/// The value of the first attribute of kind `wanted`.
fn find_attribute(mut attributes: &[u8], wanted: u16) -> io::Result<Option<&[u8]>> {
    while !attributes.is_empty() {
        let (length, kind) = (usize::from(u16_at(attributes, 0)?), u16_at(attributes, 2)?);
        if length < 4 || length > attributes.len() {
            return Err(too_short());
        }
        if kind == wanted {
            return Ok(Some(&attributes[4..length]));
        }
        attributes = &attributes[length.next_multiple_of(4).min(attributes.len())..];
    }
    Ok(None)
}

fn too_short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a netlink message shorter than it says")
}

/// A netlink socket of one protocol, and the number of its last request.
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

    /// Sends one request and hands the answer's payloads to `on_message` until the last one or an error,
    /// which then names `operation`. Waits only for the kernel, which answers at once. The answer to a list is EINTR if
    /// the list has changed while the kernel read it.
    fn ask(
        &mut self,
        operation: &str,
        request: Request,
        mut on_message: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{operation}: {error}"));
        self.sequence += 1;
        rustix::io::write(&self.fd, &request.finish(self.sequence)).map_err(|errno| named(errno.into()))?;
        let (mut buffer, mut changed) = (vec![0; DATAGRAM_LENGTH], false);
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
                changed |= libc::c_int::from(message.flags) & libc::NLM_F_DUMP_INTR != 0;
                match libc::c_int::from(message.kind) {
                    libc::NLMSG_DONE | libc::NLMSG_ERROR => {
                        return match u32_at(message.payload, 0).map_err(named)? as i32 {
                            negative @ ..0 => Err(named(io::Error::from_raw_os_error(-negative))),
                            _ if changed => Err(named(io::Error::from_raw_os_error(libc::EINTR))),
                            _ => Ok(()),
                        };
                    }
                    _ => on_message(message.payload).map_err(named)?,
                }
            }
        }
    }

    /// Asks for a list and returns the items that `read` finds in the answer's payloads. Asks again if the list has
    /// changed meanwhile.
    fn list<T>(
        &mut self,
        operation: &str,
        request: Request,
        read: impl Fn(&[u8]) -> io::Result<Option<T>>,
    ) -> io::Result<Vec<T>> {
        let mut tries = LIST_TRIES;
        loop {
            let mut found = Vec::new();
            let asked = self.ask(operation, request.clone(), |payload| {
                found.extend(read(payload)?);
                Ok(())
            });
            tries -= 1;
            match asked {
                Err(error) if error.kind() == io::ErrorKind::Interrupted && tries > 0 => {}
                asked => return asked.map(|()| found),
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
    /// The errors of socket(2) and bind(2).
    pub fn open() -> io::Result<Route> {
        Ok(Route { socket: Socket::open(None)? })
    }

    /// Creates a veth pair: `name` here, and `peer_name` in the network namespace of `peer`. A name has at
    /// most 15 bytes.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN in both namespaces; `AlreadyExists` if there is a link of
    /// that name; `Unsupported` or `InvalidInput` from a kernel without veth.
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
    /// `ENODEV` if there is no link of that name.
    pub fn link_index(&mut self, name: &str) -> io::Result<u32> {
        self.device(name).map(|device| device.index)
    }

    /// Brings a link up.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `ENODEV` if there is no such link.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK);
        request.put_link(index, libc::IFF_UP as u32, libc::IFF_UP as u32);
        self.socket.ask(&format!("bring link {index} up"), request, |_| Ok(()))
    }

    /// Sets the MTU of a link, in bytes, and the length of its send queue, in packets.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `InvalidInput` if the link cannot have such an MTU.
    pub fn set_sizes(&mut self, index: u32, mtu: u32, queue_packets: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK);
        request.put_link(index, 0, 0);
        request.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
        request.attribute(libc::IFLA_TXQLEN, &queue_packets.to_ne_bytes());
        let operation = format!("give link {index} packets of {mtu} bytes and a queue of {queue_packets}");
        self.socket.ask(&operation, request, |_| Ok(()))
    }

    /// Counts of a link's packets since it was made.
    ///
    /// # Errors
    /// `ENODEV` if there is no such link.
    pub fn statistics(&mut self, index: u32) -> io::Result<LinkStatistics> {
        let mut request = Request::new(libc::RTM_GETLINK, libc::NLM_F_ACK);
        request.put_link(index, 0, 0);
        let mut found = None;
        self.socket.ask(&format!("read the statistics of link {index}"), request, |payload| {
            let attributes = payload.get(LINK_LENGTH..).ok_or_else(too_short)?;
            let Some(counters) = find_attribute(attributes, libc::IFLA_STATS64)? else { return Ok(()) };
            found = Some(LinkStatistics {
                received: u64_at(counters, 0)?,
                sent: u64_at(counters, 8)?,
                received_dropped: u64_at(counters, 48)?,
                sent_dropped: u64_at(counters, 56)?,
            });
            Ok(())
        })?;
        found.ok_or_else(too_short)
    }

    /// Gives a link an address, which can be used at once. The kernel adds the route to the address's network.
    ///
    /// The kernel does not look for another owner of an IPv6 address. The look (RFC 4862, 5.4) ends some time after this
    /// call, also on loopback, and until then no socket can be bound to the address.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `AlreadyExists` if the link has that address.
    pub fn add_address(
        &mut self,
        index: u32,
        address: impl Into<IpAddr>,
        prefix_length: u8,
    ) -> io::Result<()> {
        let address = address.into();
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWADDR, flags);
        // `struct ifaddrmsg`: family, prefix length, flags, scope, link.
        let address_flags = if address.is_ipv6() { libc::IFA_F_NODAD as u8 } else { 0 };
        request.put(&[routes::family(address), prefix_length, address_flags, libc::RT_SCOPE_UNIVERSE]);
        request.put(&index.to_ne_bytes());
        request.attribute(libc::IFA_LOCAL, &routes::octets(address));
        request.attribute(libc::IFA_ADDRESS, &routes::octets(address));
        self.socket.ask(&format!("give link {index} the address {address}"), request, |_| Ok(()))
    }
}

/// Packet counts of a link (`struct rtnl_link_stats64`), as its namespace sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Received packets that were dropped because a queue was full.
    pub received_dropped: u64,
    /// Outgoing packets that were dropped because a queue was full.
    pub sent_dropped: u64,
}

/// The accept queues of the listeners of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Connections established and not yet accepted.
    pub depth: u32,
    /// Capacity of the queue: the backlog, bounded by `net.core.somaxconn`.
    pub limit: u32,
    /// Capacity of the longest queue among these listeners.
    pub limit_of_longest: u32,
}

/// A request for all sockets in a state. Port 0 means any port.
fn diagnostic_request(family: libc::c_int, protocol: libc::c_int, state: u32, port: u16) -> Request {
    let mut request = Request::new(SOCK_DIAG_BY_FAMILY, libc::NLM_F_DUMP);
    // `struct inet_diag_req_v2`: family, protocol, extensions, padding, states, then the socket's identity
    // with only the source port set.
    request.put(&[family as u8, protocol as u8, 0, 0]);
    request.put(&(1_u32 << state).to_ne_bytes());
    request.put(&port.to_be_bytes());
    request.put(&[0; 46]);
    request
}

/// A request for one TCP connection, or for the listener that gets the packets of that peer.
fn connection_request(own: SocketAddr, peer: SocketAddr, extensions: u8) -> io::Result<Request> {
    let mut request = Request::new(SOCK_DIAG_BY_FAMILY, libc::NLM_F_ACK);
    let (family, addresses) = match (own.ip(), peer.ip()) {
        (IpAddr::V4(own), IpAddr::V4(peer)) => {
            let mut addresses = [0; 32];
            addresses[..4].copy_from_slice(&own.octets());
            addresses[16..20].copy_from_slice(&peer.octets());
            (libc::AF_INET, addresses)
        }
        (IpAddr::V6(own), IpAddr::V6(peer)) => {
            let addresses = [own.octets(), peer.octets()].concat();
            (libc::AF_INET6, addresses.try_into().expect("two addresses"))
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    // `struct inet_diag_req_v2`, with the identity of the socket: ports, addresses, any device, any cookie.
    request.put(&[family as u8, libc::IPPROTO_TCP as u8, extensions, 0]);
    request.put(&u32::MAX.to_ne_bytes());
    request.put(&own.port().to_be_bytes());
    request.put(&peer.port().to_be_bytes());
    request.put(&addresses);
    request.put(&0_u32.to_ne_bytes());
    request.put(&[0xff; 8]);
    Ok(request)
}

/// Examines sockets of one network namespace, in any process, without privileges.
pub struct SocketDiagnostics {
    socket: Socket,
}

impl From<SocketDiagnostics> for OwnedFd {
    fn from(diagnostics: SocketDiagnostics) -> OwnedFd {
        diagnostics.socket.fd
    }
}

impl SocketDiagnostics {
    /// A socket for the network namespace of the calling thread.
    ///
    /// # Errors
    /// The errors of socket(2) and bind(2); `EPROTONOSUPPORT` from a kernel without sock_diag.
    pub fn open() -> io::Result<SocketDiagnostics> {
        Ok(SocketDiagnostics { socket: Socket::open(Some(netlink::SOCK_DIAG))? })
    }

    /// The socket of another process, which has passed its descriptor on. It examines the namespace that it was opened in.
    pub fn passed_on(fd: OwnedFd) -> SocketDiagnostics {
        SocketDiagnostics { socket: Socket { fd, sequence: 0 } }
    }

    /// Returns true if the namespace has a TCP listener or an unconnected UDP socket, over IPv4 or IPv6.
    ///
    /// # Errors
    /// `ENOENT` from a kernel without tcp_diag or udp_diag.
    pub fn anybody_serves(&mut self) -> io::Result<bool> {
        let mut found = false;
        for family in [libc::AF_INET, libc::AF_INET6] {
            for (protocol, state) in [(libc::IPPROTO_TCP, TCP_LISTEN), (libc::IPPROTO_UDP, UDP_UNCONNECTED)] {
                let request = diagnostic_request(family, protocol, state, 0);
                self.socket.ask("look for servers", request, |_| {
                    found = true;
                    Ok(())
                })?;
            }
        }
        Ok(found)
    }

    /// Returns true if the kernel knows a TCP connection by its own end and its peer's, TIME_WAIT included.
    ///
    /// # Errors
    /// `InvalidInput` for addresses of two families. A kernel without tcp_diag answers `false` for every connection: ask
    /// for an [`accept_queue`](Self::accept_queue) first, which fails there.
    pub fn connection_exists(&mut self, own: SocketAddr, peer: SocketAddr) -> io::Result<bool> {
        let mut found = false;
        let request = connection_request(own, peer, 0)?;
        let asked = self.socket.ask("look for a connection", request, |payload| {
            // If there is no such connection, the kernel may answer with the listener that would get it.
            found = payload.get(1).is_some_and(|state| u32::from(*state) != TCP_LISTEN);
            Ok(())
        });
        match asked {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(found),
        }
    }

    /// The accept queue of the IPv4 TCP listeners of `port`, added up if SO_REUSEPORT gives the port several.
    /// `None` if there is no listener. Costs one walk over the listeners of the namespace.
    ///
    /// # Errors
    /// `ENOENT` from a kernel without tcp_diag.
    pub fn accept_queue(&mut self, port: u16) -> io::Result<Option<AcceptQueue>> {
        let request = diagnostic_request(libc::AF_INET, libc::IPPROTO_TCP, TCP_LISTEN, port);
        let mut found = None;
        self.socket.ask("look at the accept queue", request, |payload| {
            if payload.len() < DIAG_LENGTH {
                return Err(too_short());
            }
            let queue = found.get_or_insert(AcceptQueue::default());
            queue.depth += u32_at(payload, 56)?;
            let limit = u32_at(payload, 60)?;
            queue.limit += limit;
            queue.limit_of_longest = queue.limit_of_longest.max(limit);
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
    fn attributes_are_found_and_broken_ones_are_an_error() {
        let attributes = [5, 0, 1, 0, 9, 0, 0, 0, 8, 0, 2, 0, 1, 2, 3, 4];
        assert_eq!(find_attribute(&attributes, 2).unwrap(), Some(&[1, 2, 3, 4][..]));
        assert_eq!(find_attribute(&attributes, 3).unwrap(), None);
        for bytes in [&[3, 0, 1, 0][..], &[9, 0, 1, 0], &[4, 0, 1]] {
            assert!(find_attribute(bytes, 2).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_loopback_link_counts_what_it_carries() {
        let mut route = Route::open().unwrap();
        let before = route.statistics(1).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let after = route.statistics(1).unwrap();
        assert!(after.sent >= before.sent + 2 && after.received >= before.received + 2, "{after:?}");
    }

    #[test]
    fn loopback_link_is_found_and_absent_link_is_named() {
        let mut route = Route::open().unwrap();
        assert_eq!(route.link_index("lo").unwrap(), 1);
        let error = route.link_index("no-such-link").unwrap_err().to_string();
        assert!(error.starts_with("find the device no-such-link: "), "{error}");
    }

    #[test]
    fn a_connection_is_known_while_it_lasts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let mut diagnostics = match SocketDiagnostics::open() {
            Ok(diagnostics) => diagnostics,
            Err(error) => return println!("skipped: no sock_diag here: {error}"),
        };
        let peer = client.local_addr().unwrap();
        assert!(diagnostics.connection_exists(address, peer).unwrap());
        let stranger = "127.0.0.9:9".parse().unwrap();
        assert!(!diagnostics.connection_exists(address, stranger).unwrap(), "a listener is not a connection");
        assert!(!diagnostics.connection_exists("127.0.0.9:9".parse().unwrap(), peer).unwrap());
        assert!(diagnostics.connection_exists(address, "[::1]:9".parse().unwrap()).is_err());
        let (accepted, _) = listener.accept().unwrap();
        drop(accepted);
        drop(client);
        assert!(diagnostics.connection_exists(address, peer).unwrap(), "TIME_WAIT");
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
        assert!(diagnostics.anybody_serves().unwrap());
        // Not closed: a child that another test is starting may hold a copy until its exec.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        assert_eq!(diagnostics.accept_queue(address.port()).unwrap(), None);
    }
}
