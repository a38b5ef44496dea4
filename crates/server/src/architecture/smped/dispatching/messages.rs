//! The messages between dispatcher and worker.
//!
//! ```text
//!   dispatcher ── connections: their clients' addresses, their descriptors beside them ──> worker
//!              <── a report: replies sent and connections closed since the last one ──────
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum connections per message; the kernel takes at most 253 descriptors.
pub const MOST_PER_MESSAGE: usize = 64;
/// An address has 16 bytes and its port 2; port 0 stands for no address.
const ADDRESS_BYTES: usize = 18;
/// Two numbers of 8 bytes.
const REPORT_BYTES: usize = 16;

/// A connection on its way to a worker.
#[derive(Debug)]
pub struct Handed {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// The client's address.
    pub peer: Option<SocketAddr>,
}

/// A worker's work since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Responses sent.
    pub replies: u64,
    /// Connections closed.
    pub closed: u64,
}

impl Report {
    /// Encodes the report as a message.
    pub fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0; REPORT_BYTES];
        bytes[..8].copy_from_slice(&self.replies.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.closed.to_ne_bytes());
        bytes
    }

    /// Decodes a message; `None` if it is not a report.
    pub fn from_bytes(bytes: &[u8]) -> Option<Report> {
        let (replies, closed) = bytes.split_at_checked(8)?;
        let number = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
        Some(Report { replies: number(replies)?, closed: number(closed)? })
    }
}

/// Encodes connections as a message, at most [`MOST_PER_MESSAGE`] of them.
pub fn pack<'a>(connections: impl Iterator<Item = &'a Handed>) -> (Vec<u8>, Vec<BorrowedFd<'a>>) {
    let (mut bytes, mut sockets) = (Vec::new(), Vec::new());
    for Handed { socket, peer } in connections.take(MOST_PER_MESSAGE) {
        bytes.extend_from_slice(&encode(*peer));
        sockets.push(socket.as_fd());
    }
    (bytes, sockets)
}

/// Decodes the connections of a message in order. `None` stands for a connection whose descriptor was lost
/// because the receiver had no room for it.
pub fn unpack(bytes: &[u8], sockets: Vec<OwnedFd>) -> impl Iterator<Item = Option<Handed>> {
    let mut sockets = sockets.into_iter();
    let addresses = bytes.chunks_exact(ADDRESS_BYTES).map(decode);
    addresses.map(move |peer| sockets.next().map(|socket| Handed { socket, peer }))
}

fn encode(peer: Option<SocketAddr>) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    let Some(peer) = peer else { return bytes };
    let address = match peer.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    bytes[..16].copy_from_slice(&address.octets());
    bytes[16..].copy_from_slice(&peer.port().to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let (address, port) = bytes.split_at(16);
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?);
    let port = u16::from_be_bytes(port.try_into().ok()?);
    (port != 0).then(|| SocketAddr::new(address.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn reports_survive_and_nothing_else_is_one() {
        let report = Report { replies: 1, closed: u64::MAX };
        assert_eq!(Report::from_bytes(&report.to_bytes()), Some(report));
        assert_eq!(Report::from_bytes(&[0; 15]), None);
        assert_eq!(Report::from_bytes(&[0; 17]), None);
        assert_eq!(Report::from_bytes(b""), None);
    }

    #[test]
    fn connections_survive_and_the_missing_are_known() {
        let peers = [None, Some("127.0.0.1:1"), Some("[::1]:65535"), Some("[2001:db8::1]:80")];
        let peers = peers.map(|text| text.map(|text| text.parse().unwrap()));
        let socket = || OwnedFd::from(File::open("/dev/null").unwrap());
        let sent: Vec<Handed> = peers.iter().map(|peer| Handed { socket: socket(), peer: *peer }).collect();
        let (bytes, sockets) = pack(sent.iter());
        assert_eq!(sockets.len(), 4);
        let received: Vec<Option<Handed>> = unpack(&bytes, vec![socket(), socket(), socket()]).collect();
        assert!(received[3].is_none());
        let received: Vec<_> = received.iter().flatten().map(|handed| handed.peer).collect();
        assert_eq!(received, peers[..3]);
    }

    #[test]
    fn a_message_has_a_limit() {
        let socket = || OwnedFd::from(File::open("/dev/null").unwrap());
        let many: Vec<Handed> = (0..100).map(|_| Handed { socket: socket(), peer: None }).collect();
        let (bytes, sockets) = pack(many.iter());
        assert_eq!((bytes.len(), sockets.len()), (MOST_PER_MESSAGE * ADDRESS_BYTES, MOST_PER_MESSAGE));
    }
}
