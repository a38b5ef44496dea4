//! The TCP listeners of a network namespace, whoever owns them, with their accept queues.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::AddressFamily;

use super::{
    Request, SOCK_DIAG_BY_FAMILY, SocketDiagnostics, TCP_LISTEN, connection_request, find_attribute,
    too_short, u16_at, u32_at, u64_at,
};

/// `struct inet_diag_msg`.
const MESSAGE_LENGTH: usize = 72;
/// Asks for the socket's memory and drops (`1 << (INET_DIAG_SKMEMINFO - 1)`).
const WITH_MEMORY: u8 = 1 << 6;

// Attributes from <linux/inet_diag.h>: those of a request, and of an answer.
const INET_DIAG_REQ_PROTOCOL: u16 = 3;
const INET_DIAG_SKMEMINFO: u16 = 7;
const INET_DIAG_SKV6ONLY: u16 = 11;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// Offset of SK_MEMINFO_DROPS, the ninth of nine counters.
const DROPS: usize = 32;

/// A TCP listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address that it is bound to.
    pub address: SocketAddr,
    /// True if it takes IPv4 connections too, at an IPv6 address.
    pub dual: bool,
    /// The number of its file, by which the descriptors of processes name it. No descriptor names the inner socket of an
    /// MPTCP listener.
    pub inode: u32,
    /// The number that no other socket has or will have on this machine.
    pub cookie: u64,
    /// The number of the cgroup that it was made in, which is the inode of the cgroup's folder; 0 if the kernel does not
    /// tell (before Linux 5.8).
    pub cgroup: u64,
    /// The owner's user number.
    pub uid: u32,
    /// Connections established and not yet accepted.
    pub depth: u32,
    /// Capacity of the accept queue: the backlog, bounded by `net.core.somaxconn`.
    pub limit: u32,
    /// Packets and connections that this socket has dropped since it was made.
    pub drops: u32,
}

impl SocketDiagnostics {
    /// Lists the TCP listeners at a port, or all of them for port 0. Costs one walk over the listeners of the namespace
    /// for each family.
    ///
    /// # Errors
    /// `ENOENT` from a kernel without tcp_diag; `EINTR` if the list keeps changing.
    pub fn listeners(&mut self, port: u16) -> io::Result<Vec<Listener>> {
        let mut found = self.listeners_of(AddressFamily::INET, port)?;
        found.append(&mut self.listeners_of(AddressFamily::INET6, port)?);
        Ok(found)
    }

    /// Looks a listener up by its address. Costs one look-up in the kernel's table, where a list walks over all of it.
    /// `None` if the listener is closed, or if the kernel would give the connection of an unknown client to another one.
    ///
    /// # Errors
    /// The errors of the netlink socket. A kernel without tcp_diag finds nothing.
    pub fn listener(&mut self, known: &Listener) -> io::Result<Option<Listener>> {
        let nobody = SocketAddr::new(unspecified(known.address.ip()), 0);
        let request = connection_request(known.address, nobody, WITH_MEMORY)?;
        let mut found = None;
        let asked = self.socket.ask("look up the listener", request, |payload| {
            found = parse(payload)?;
            Ok(())
        });
        match asked {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(found.filter(|found: &Listener| found.cookie == known.cookie)),
        }
    }

    /// As [`listeners`](Self::listeners), for one family: half the cost.
    ///
    /// # Errors
    /// As [`listeners`](Self::listeners).
    pub fn listeners_of(&mut self, family: AddressFamily, port: u16) -> io::Result<Vec<Listener>> {
        let request = list_request(family.as_raw().into(), port);
        self.socket.list("list the listeners", request, parse)
    }

    /// Lists the MPTCP listeners at a port. Each has an inner TCP listener at the same address. Returns
    /// an empty list if the kernel has no mptcp_diag.
    ///
    /// # Errors
    /// As [`listeners`](Self::listeners).
    pub fn mptcp_listeners(&mut self, port: u16) -> io::Result<Vec<Listener>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut request = list_request(family, port);
            // The number of the protocol does not fit into the request's own field.
            request.attribute(INET_DIAG_REQ_PROTOCOL, &(libc::IPPROTO_MPTCP as u32).to_ne_bytes());
            match self.socket.list("list the MPTCP listeners", request, parse) {
                Ok(mut listeners) => found.append(&mut listeners),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// The unspecified address of the same family.
fn unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A request for the listeners at a port, with their memory.
fn list_request(family: libc::c_int, port: u16) -> Request {
    let mut request = Request::new(SOCK_DIAG_BY_FAMILY, libc::NLM_F_DUMP);
    // `struct inet_diag_req_v2`: family, protocol, extensions, padding, states, then the socket's identity
    // with only the source port set.
    request.put(&[family as u8, libc::IPPROTO_TCP as u8, WITH_MEMORY, 0]);
    request.put(&(1_u32 << TCP_LISTEN).to_ne_bytes());
    request.put(&port.to_be_bytes());
    request.put(&[0; 46]);
    request
}

/// Reads one `struct inet_diag_msg` with its attributes.
fn parse(payload: &[u8]) -> io::Result<Option<Listener>> {
    if payload.len() < MESSAGE_LENGTH {
        return Err(too_short());
    }
    let is_v6 = libc::c_int::from(payload[0]) == libc::AF_INET6;
    let port = u16::from_be(u16_at(payload, 4)?);
    let octets: [u8; 16] = payload[8..24].try_into().expect("sixteen bytes were taken");
    let ip = match is_v6 {
        true => IpAddr::V6(Ipv6Addr::from(octets)),
        false => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
    };
    let attributes = &payload[MESSAGE_LENGTH..];
    let memory = find_attribute(attributes, INET_DIAG_SKMEMINFO)?;
    let only_v6 =
        find_attribute(attributes, INET_DIAG_SKV6ONLY)?.is_some_and(|value| value.first() == Some(&1));
    let cgroup = find_attribute(attributes, INET_DIAG_CGROUP_ID)?;
    Ok(Some(Listener {
        address: SocketAddr::new(ip, port),
        dual: is_v6 && !only_v6,
        inode: u32_at(payload, 68)?,
        cookie: u64_at(payload, 44)?,
        cgroup: cgroup.map_or(Ok(0), |value| u64_at(value, 0))?,
        uid: u32_at(payload, 64)?,
        depth: u32_at(payload, 56)?,
        limit: u32_at(payload, 60)?,
        drops: memory.map_or(Ok(0), |memory| u32_at(memory, DROPS))?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn diagnostics() -> Option<SocketDiagnostics> {
        SocketDiagnostics::open().inspect_err(|error| println!("skipped: no sock_diag here: {error}")).ok()
    }

    #[test]
    fn listener_is_listed_with_its_queue() {
        let Some(mut diagnostics) = diagnostics() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _waits = TcpStream::connect(address).unwrap();
        let inode = rustix::fs::fstat(listener.as_fd()).unwrap().st_ino;
        let found = diagnostics.listeners(address.port()).unwrap();
        let ours = found.iter().find(|found| found.address == address).unwrap();
        assert_eq!((u64::from(ours.inode), ours.depth, ours.drops, ours.dual), (inode, 1, 0, false));
        assert!(ours.limit > 1 && ours.cookie != 0, "{ours:?}");
        assert_eq!(ours.uid, rustix::process::getuid().as_raw());
        // The one listener is found by its address too, and no other socket is taken for it.
        assert_eq!(diagnostics.listener(ours).unwrap(), Some(*ours));
        assert_eq!(diagnostics.listener(&Listener { cookie: 1, ..*ours }).unwrap(), None);
        let ours = *ours;
        // A child that another test is starting may hold a copy of the descriptor until its exec:
        // closing alone would leave the socket listening for that long.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        assert_eq!(diagnostics.listener(&ours).unwrap(), None);
        assert!(!diagnostics.listeners(address.port()).unwrap().iter().any(|found| found.address == address));
    }

    #[test]
    fn listener_of_both_families_is_dual() {
        let Some(mut diagnostics) = diagnostics() else { return };
        let listener = match TcpListener::bind("[::]:0") {
            Ok(listener) => listener,
            Err(error) => return println!("skipped: no IPv6 here: {error}"),
        };
        let address = listener.local_addr().unwrap();
        let found = diagnostics.listeners(address.port()).unwrap();
        let dual = found.iter().find(|found| found.address == address && found.dual);
        assert_eq!(diagnostics.listener(dual.unwrap()).unwrap().as_ref(), dual, "{found:?}");
    }

    #[test]
    fn mptcp_listener_is_found_by_its_inode() {
        use rustix::net::{SocketType, ipproto};
        let Some(mut diagnostics) = diagnostics() else { return };
        let socket = match rustix::net::socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP))
        {
            Ok(socket) => socket,
            Err(errno) => return println!("skipped: no MPTCP here: {errno}"),
        };
        rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        rustix::net::listen(&socket, 8).unwrap();
        let address: SocketAddr = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
        let inner = diagnostics.listeners(address.port()).unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        assert_eq!(inner.len(), 1, "{inner:?}");
        assert_eq!(inner[0].address, address);
        let outer = diagnostics.mptcp_listeners(address.port()).unwrap();
        // The inner listener has the same inode on some kernels, and one of its own on others.
        let shares = u64::from(inner[0].inode) == inode;
        if outer.is_empty() && !shares {
            return println!("skipped: no mptcp_diag here");
        }
        assert!(shares || u64::from(outer[0].inode) == inode, "{inode} is none of {inner:?}, {outer:?}");
    }

    #[test]
    fn short_messages_are_errors() {
        assert!(parse(&[0; MESSAGE_LENGTH - 1]).is_err());
        let with_half_an_attribute = [&[0; MESSAGE_LENGTH][..], &[9, 0, 7, 0]].concat();
        assert!(parse(&with_half_an_attribute).is_err());
    }
}
