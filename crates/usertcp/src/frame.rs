//! Packets: IPv4 and IPv6 headers with TCP segments, read from and written to bytes.
//!
//! Owns headers, options ([`options`]), checksums ([`checksum`]), and the other frames of a link with its own
//! addresses ([`ethernet`]). Knows no connections. A packet begins with its IP header.
//!
//! Written by hand, because it is on the measured path. One function reads a packet and one writes it,
//! without copying headers. A checksum is computed only if no other layer has computed it.
//!
//! Left out: IPv4 options are skipped, and IPv6 extension headers refused. Fragments are refused, because a
//! sender that respects our MSS sends none. Urgent data and ECN are ignored.
//!
//! Invariants: no input makes [`read`] panic; `read` of a packet from [`write()`] returns the same segment
//! and payload.

pub mod checksum;
pub mod ethernet;
pub mod options;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::{BitOr, Range};

use crate::wrapping::Seq;
pub use options::{Options, SACK_BLOCKS_MAX, SackBlock, Timestamps};

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
/// The offset of the checksum in a TCP header.
pub const TCP_CHECKSUM_OFFSET: usize = 16;

const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const HEADER_FRAGMENT: u8 = 44;
const PROTOCOL_ICMPV6: u8 = 58;
const HOP_LIMIT: u8 = 64;
/// The flag that forbids fragmentation.
const DONT_FRAGMENT: u16 = 0x4000;
/// The mask of the more-fragments flag and the offset; set bits mean a fragment.
const FRAGMENT: u16 = 0x3fff;

/// The control bits of a segment (RFC 9293, section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// The sender has no more data.
    pub const FIN: Flags = Flags(1);
    /// The first segment of a direction.
    pub const SYN: Flags = Flags(2);
    /// The connection is over.
    pub const RST: Flags = Flags(4);
    /// The receiver should deliver its data to the application.
    pub const PSH: Flags = Flags(8);
    /// The acknowledgment number is valid.
    pub const ACK: Flags = Flags(16);

    /// These control bits, without those for urgent data and ECN.
    pub fn from_bits(bits: u8) -> Flags {
        Flags(bits & 31)
    }

    /// Returns true if all of `flags` are set.
    pub fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A TCP segment without ports and payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The number of the first payload byte, or of the SYN or FIN (SEG.SEQ).
    pub seq: Seq,
    /// The next number that the sender expects (SEG.ACK).
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// The receive window as in the header, not scaled.
    pub window: u16,
    /// Options.
    pub options: Options,
}

/// The addresses and ports of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Our address and port.
    pub local: SocketAddr,
    /// The server's address and port, of the same family.
    pub remote: SocketAddr,
}

/// A received packet with a TCP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Addresses and ports; `local` is the packet's destination.
    pub flow: Flow,
    /// The segment.
    pub segment: Segment,
    /// The range of the payload in the packet.
    pub payload: Range<usize>,
}

/// The reason to drop a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Not IP, truncated, or with a contradictory header.
    #[error("malformed")]
    Malformed,
    /// A fragment.
    #[error("a fragment")]
    Fragment,
    /// ICMP or ICMPv6.
    #[error("ICMP")]
    Icmp,
    /// Another protocol, or an IPv6 extension header.
    #[error("not TCP")]
    NotTcp,
    /// A checksum is wrong.
    #[error("a wrong checksum")]
    Checksum,
}

/// The state of the TCP checksums of received packets on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arriving {
    /// The kernel or the device has verified the checksum, or a sender on this machine never completed it.
    Verified,
    /// The checksum is complete and not verified yet.
    Whole,
    /// As `Whole`, but a sender on this machine may have written only the sum of the pseudo header, for a
    /// device to complete.
    WholeOrPartial,
}

/// The party that computes the TCP checksum of a sent packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// [`write()`] computes it.
    Whole,
    /// [`write()`] writes the sum of the pseudo header, and the link completes the checksum if it is needed.
    Partial,
}

/// The length of an IP header written by [`write()`].
pub fn ip_header_length(remote: SocketAddr) -> usize {
    if remote.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER }
}

/// The largest payload of a segment without options in packets of `mtu` bytes.
pub fn mss(remote: SocketAddr, mtu: usize) -> u16 {
    let room = mtu.saturating_sub(ip_header_length(remote) + TCP_HEADER);
    u16::try_from(room).unwrap_or(u16::MAX)
}

/// The length of a packet with this segment and a payload of `payload` bytes.
pub fn length(flow: &Flow, segment: &Segment, payload: usize) -> usize {
    ip_header_length(flow.remote) + TCP_HEADER + segment.options.length() + payload
}

/// Writes a packet into `buffer`, which has exactly [`length`] bytes.
pub fn write(buffer: &mut [u8], flow: &Flow, segment: &Segment, payload: &[u8], leaving: Leaving) {
    let ip_length = ip_header_length(flow.remote);
    let tcp_length = buffer.len() - ip_length;
    let (ip, tcp) = buffer.split_at_mut(ip_length);
    match (flow.local.ip(), flow.remote.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => write_ipv4(ip, from, to, tcp_length),
        (IpAddr::V6(from), IpAddr::V6(to)) => write_ipv6(ip, from, to, tcp_length),
        _ => unreachable!("both ends of a flow have the same family"),
    }
    let header = TCP_HEADER + segment.options.length();
    put(tcp, 0, &flow.local.port().to_be_bytes());
    put(tcp, 2, &flow.remote.port().to_be_bytes());
    put(tcp, 4, &segment.seq.0.to_be_bytes());
    put(tcp, 8, &segment.ack.0.to_be_bytes());
    put(tcp, 12, &[((header / 4) << 4) as u8, segment.flags.0]);
    put(tcp, 14, &segment.window.to_be_bytes());
    put(tcp, TCP_CHECKSUM_OFFSET, &[0; 4]);
    segment.options.write(&mut tcp[TCP_HEADER..header]);
    tcp[header..].copy_from_slice(payload);
    let pseudo = checksum::pseudo_header(flow.local.ip(), flow.remote.ip(), PROTOCOL_TCP, tcp_length);
    let checksum = match leaving {
        Leaving::Partial => checksum::fold(pseudo),
        Leaving::Whole => !checksum::fold(pseudo + checksum::sum(tcp)),
    };
    put(tcp, TCP_CHECKSUM_OFFSET, &checksum.to_be_bytes());
}

fn write_ipv4(header: &mut [u8], from: Ipv4Addr, to: Ipv4Addr, payload: usize) {
    // Version and header length; no service class.
    put(header, 0, &[0x45, 0]);
    put(header, 2, &((IPV4_HEADER + payload) as u16).to_be_bytes());
    // A packet that may not be fragmented needs no identification (RFC 6864, section 4.1).
    put(header, 4, &[0; 2]);
    put(header, 6, &DONT_FRAGMENT.to_be_bytes());
    put(header, 8, &[HOP_LIMIT, PROTOCOL_TCP, 0, 0]);
    put(header, 12, &from.octets());
    put(header, 16, &to.octets());
    let checksum = !checksum::fold(checksum::sum(header));
    put(header, 10, &checksum.to_be_bytes());
}

fn write_ipv6(header: &mut [u8], from: Ipv6Addr, to: Ipv6Addr, payload: usize) {
    // Version; neither traffic class nor flow label.
    put(header, 0, &[0x60, 0, 0, 0]);
    put(header, 4, &(payload as u16).to_be_bytes());
    put(header, 6, &[PROTOCOL_TCP, HOP_LIMIT]);
    put(header, 8, &from.octets());
    put(header, 24, &to.octets());
}

/// Reads a received packet. Bytes after the IP packet are padding and ignored.
///
/// # Errors
/// The reason to drop the packet.
pub fn read(packet: &[u8], arriving: Arriving) -> Result<Received, Unusable> {
    let (from, to, tcp) = match packet.first().ok_or(Unusable::Malformed)? >> 4 {
        4 => read_ipv4(packet)?,
        6 => read_ipv6(packet)?,
        _ => return Err(Unusable::Malformed),
    };
    let (start, bytes) = (tcp.start, &packet[tcp]);
    let header: &[u8; TCP_HEADER] = bytes.first_chunk().ok_or(Unusable::Malformed)?;
    let data = usize::from(header[12] >> 4) * 4;
    let options = bytes.get(TCP_HEADER..data).ok_or(Unusable::Malformed)?;
    if arriving != Arriving::Verified {
        verify(from, to, bytes, arriving)?;
    }
    let segment = Segment {
        seq: Seq(u32_at(header, 4)),
        ack: Seq(u32_at(header, 8)),
        flags: Flags::from_bits(header[13]),
        window: u16_at(header, 14),
        options: Options::read(options)?,
    };
    let local = SocketAddr::new(to, u16_at(header, 2));
    let remote = SocketAddr::new(from, u16_at(header, 0));
    Ok(Received { flow: Flow { local, remote }, segment, payload: start + data..start + bytes.len() })
}

/// The addresses of an IPv4 packet, and the range of its TCP segment.
fn read_ipv4(packet: &[u8]) -> Result<(IpAddr, IpAddr, Range<usize>), Unusable> {
    let fixed: &[u8; IPV4_HEADER] = packet.first_chunk().ok_or(Unusable::Malformed)?;
    let (header, total) = (usize::from(fixed[0] & 15) * 4, usize::from(u16_at(fixed, 2)));
    if header < IPV4_HEADER || total < header || total > packet.len() {
        return Err(Unusable::Malformed);
    }
    if checksum::fold(checksum::sum(&packet[..header])) != u16::MAX {
        return Err(Unusable::Checksum);
    }
    if u16_at(fixed, 6) & FRAGMENT != 0 {
        return Err(Unusable::Fragment);
    }
    only_tcp(fixed[9])?;
    let address = |at| IpAddr::V4(Ipv4Addr::from_bits(u32_at(fixed, at)));
    Ok((address(12), address(16), header..total))
}

/// The addresses of an IPv6 packet, and the range of its TCP segment.
fn read_ipv6(packet: &[u8]) -> Result<(IpAddr, IpAddr, Range<usize>), Unusable> {
    let header: &[u8; IPV6_HEADER] = packet.first_chunk().ok_or(Unusable::Malformed)?;
    let total = IPV6_HEADER + usize::from(u16_at(header, 4));
    if total > packet.len() {
        return Err(Unusable::Malformed);
    }
    only_tcp(header[6])?;
    let address = |at: usize| {
        let octets: [u8; 16] = header[at..at + 16].try_into().expect("sixteen bytes were taken");
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    Ok((address(8), address(24), IPV6_HEADER..total))
}

fn only_tcp(protocol: u8) -> Result<(), Unusable> {
    match protocol {
        PROTOCOL_TCP => Ok(()),
        PROTOCOL_ICMP | PROTOCOL_ICMPV6 => Err(Unusable::Icmp),
        HEADER_FRAGMENT => Err(Unusable::Fragment),
        _ => Err(Unusable::NotTcp),
    }
}

fn verify(from: IpAddr, to: IpAddr, tcp: &[u8], arriving: Arriving) -> Result<(), Unusable> {
    let pseudo = checksum::pseudo_header(from, to, PROTOCOL_TCP, tcp.len());
    let partial = u16_at(tcp, TCP_CHECKSUM_OFFSET) == checksum::fold(pseudo);
    if partial && arriving == Arriving::WholeOrPartial {
        return Ok(());
    }
    match checksum::fold(pseudo + checksum::sum(tcp)) {
        u16::MAX => Ok(()),
        _ => Err(Unusable::Checksum),
    }
}

fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) {
    buffer[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests;
