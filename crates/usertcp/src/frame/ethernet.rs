//! Ethernet headers, ARP (RFC 826) and neighbour discovery (RFC 4861): the frames of a link between machines
//! besides packets.
//!
//! Answers questions for our addresses, asks for the address of the next hop, and learns it from the answer.
//! Leaves out router and redirect messages, duplicate address detection and timeouts: a next hop is learned
//! once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{PROTOCOL_ICMPV6, checksum, put, u16_at};

/// The length of an Ethernet header.
pub const HEADER: usize = 14;
/// The length of an ARP frame.
const ARP: usize = HEADER + 28;
/// The length of a frame with a neighbour solicitation or advertisement and one option.
const DISCOVERY: usize = HEADER + 40 + 32;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
const TYPE_IPV6: u16 = 0x86dd;

const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const OPTION_SOURCE_ADDRESS: u8 = 1;
const OPTION_TARGET_ADDRESS: u8 = 2;
/// The hop limit of neighbour discovery, which proves that no router forwarded the packet (RFC 4861, section
/// 7.1).
const HOP_LIMIT: u8 = 255;
/// The flags of an advertisement that answers a solicitation and replaces older knowledge.
const SOLICITED_OVERRIDE: u8 = 0x60;

/// A hardware address.
pub type Mac = [u8; 6];

const BROADCAST: Mac = [255; 6];

/// The kinds of frames that a link distinguishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// An IP packet.
    Packet(&'a [u8]),
    /// A question for the hardware address of `target`.
    Question {
        /// The queried address.
        target: IpAddr,
        /// The destination of the answer.
        asker: (IpAddr, Mac),
    },
    /// The hardware address of a neighbour.
    Neighbour(IpAddr, Mac),
    /// Any other frame.
    Other,
}

/// Classifies a frame.
pub fn read(frame: &[u8]) -> Frame<'_> {
    if frame.len() < HEADER {
        return Frame::Other;
    }
    match u16_at(frame, 12) {
        TYPE_IPV4 => Frame::Packet(&frame[HEADER..]),
        TYPE_IPV6 => read_discovery(frame).unwrap_or(Frame::Packet(&frame[HEADER..])),
        TYPE_ARP => read_arp(frame).unwrap_or(Frame::Other),
        _ => Frame::Other,
    }
}

fn read_arp(frame: &[u8]) -> Option<Frame<'_>> {
    let arp = frame.get(HEADER..ARP)?;
    // Ethernet and IPv4, with matching address lengths.
    if arp[..6] != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    let address = |at: usize| IpAddr::from([arp[at], arp[at + 1], arp[at + 2], arp[at + 3]]);
    let sender = (address(14), mac_at(arp, 8));
    match u16_at(arp, 6) {
        ARP_REQUEST => Some(Frame::Question { target: address(24), asker: sender }),
        ARP_REPLY => Some(Frame::Neighbour(sender.0, sender.1)),
        _ => None,
    }
}

fn read_discovery(frame: &[u8]) -> Option<Frame<'_>> {
    let packet = frame.get(HEADER..DISCOVERY - 8)?;
    if packet[6] != PROTOCOL_ICMPV6 || packet[7] != HOP_LIMIT {
        return None;
    }
    let source = IpAddr::from(address_at(packet, 8));
    let target = IpAddr::from(address_at(packet, 48));
    match packet[40] {
        SOLICITATION => Some(Frame::Question { target, asker: (source, mac_at(frame, 6)) }),
        ADVERTISEMENT => Some(Frame::Neighbour(target, mac_at(frame, 6))),
        _ => None,
    }
}

/// A question for the hardware address of `target`, from one of our addresses of the same family.
pub fn question(ours: (IpAddr, Mac), target: IpAddr) -> Vec<u8> {
    match (ours.0, target) {
        (IpAddr::V4(from), IpAddr::V4(target)) => {
            arp(ARP_REQUEST, (from, ours.1), (target, [0; 6]), BROADCAST)
        }
        (IpAddr::V6(from), IpAddr::V6(target)) => {
            // The solicited-node group: all addresses with the same last three bytes (RFC 4291, section
            // 2.7.1).
            let [.., a, b, c] = target.octets();
            let group =
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
            let mac = [0x33, 0x33, 0xff, a, b, c];
            discovery(SOLICITATION, target, (from, ours.1), (group, mac))
        }
        _ => unreachable!("a question has one family"),
    }
}

/// The answer that `target`, one of our addresses, has our hardware address.
pub fn answer(target: IpAddr, mac: Mac, asker: (IpAddr, Mac)) -> Vec<u8> {
    match (target, asker.0) {
        (IpAddr::V4(target), IpAddr::V4(to)) => arp(ARP_REPLY, (target, mac), (to, asker.1), asker.1),
        (IpAddr::V6(target), IpAddr::V6(to)) => {
            discovery(ADVERTISEMENT, target, (target, mac), (to, asker.1))
        }
        _ => unreachable!("a question has one family"),
    }
}

/// Writes an Ethernet header for a packet of IPv4 or IPv6.
pub fn write_header(frame: &mut [u8], to: Mac, from: Mac, ipv4: bool) {
    put(frame, 0, &to);
    put(frame, 6, &from);
    put(frame, 12, &if ipv4 { TYPE_IPV4 } else { TYPE_IPV6 }.to_be_bytes());
}

fn arp(operation: u16, from: (Ipv4Addr, Mac), to: (Ipv4Addr, Mac), receiver: Mac) -> Vec<u8> {
    let mut frame = vec![0; ARP];
    put(&mut frame, 0, &receiver);
    put(&mut frame, 6, &from.1);
    put(&mut frame, 12, &TYPE_ARP.to_be_bytes());
    let arp = &mut frame[HEADER..];
    put(arp, 0, &[0, 1, 8, 0, 6, 4]);
    put(arp, 6, &operation.to_be_bytes());
    put(arp, 8, &from.1);
    put(arp, 14, &from.0.octets());
    put(arp, 18, &to.1);
    put(arp, 24, &to.0.octets());
    frame
}

fn discovery(kind: u8, target: Ipv6Addr, from: (Ipv6Addr, Mac), to: (Ipv6Addr, Mac)) -> Vec<u8> {
    let mut frame = vec![0; DISCOVERY];
    write_header(&mut frame, to.1, from.1, false);
    let packet = &mut frame[HEADER..];
    put(packet, 0, &[0x60, 0, 0, 0, 0, 32, PROTOCOL_ICMPV6, HOP_LIMIT]);
    put(packet, 8, &from.0.octets());
    put(packet, 24, &to.0.octets());
    let (flags, option) = match kind {
        SOLICITATION => (0, OPTION_SOURCE_ADDRESS),
        _ => (SOLICITED_OVERRIDE, OPTION_TARGET_ADDRESS),
    };
    put(packet, 40, &[kind, 0, 0, 0, flags]);
    put(packet, 48, &target.octets());
    put(packet, 64, &[option, 1]);
    put(packet, 66, &from.1);
    let pseudo = checksum::pseudo_header(from.0.into(), to.0.into(), PROTOCOL_ICMPV6, 32);
    let sum = !checksum::fold(pseudo + checksum::sum(&packet[40..]));
    put(packet, 42, &sum.to_be_bytes());
    frame
}

fn mac_at(bytes: &[u8], at: usize) -> Mac {
    bytes[at..at + 6].try_into().expect("six bytes were taken")
}

fn address_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    let octets: [u8; 16] = bytes[at..at + 16].try_into().expect("sixteen bytes were taken");
    Ipv6Addr::from(octets)
}
