//! TCP packets, with the optional headers before TCP's.

use std::net::SocketAddr;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

const TCP: u8 = 6;

/// A TCP packet under construction. Checksums are left 0.
#[derive(Clone)]
pub struct Packet {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub flags: u8,
    /// Bytes of IPv4 options, in multiples of four.
    pub ip_options: usize,
    /// The fragment field of IPv4.
    pub fragment: u16,
    /// The next header of IPv6; another than TCP follows an extension header of eight bytes.
    pub next_header: u8,
    /// VLAN tags.
    pub tags: usize,
}

impl Packet {
    pub fn new(to: SocketAddr, flags: u8) -> Packet {
        let from = if to.is_ipv4() { "10.9.8.7:6543" } else { "[fd00::9]:6543" };
        let from = from.parse().unwrap();
        Packet { from, to, flags, ip_options: 0, fragment: 0, next_header: TCP, tags: 0 }
    }

    /// From the Ethernet header on.
    pub fn ethernet(&self) -> Vec<u8> {
        // No addresses: the loopback device's, to which the kernel's test runs compare.
        let mut bytes = vec![0; 12];
        for _ in 0..self.tags {
            bytes.extend([0x81, 0, 0, 5]);
        }
        bytes.extend(if self.to.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] });
        bytes.extend(self.ip());
        bytes
    }

    /// From the IP header on.
    pub fn ip(&self) -> Vec<u8> {
        let tcp = self.tcp();
        let mut bytes = Vec::new();
        match (self.from, self.to) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                let header = 20 + self.ip_options;
                bytes.push(0x40 | (header / 4) as u8);
                bytes.push(0);
                bytes.extend(((header + tcp.len()) as u16).to_be_bytes());
                bytes.extend([0, 1]);
                bytes.extend(self.fragment.to_be_bytes());
                bytes.extend([64, TCP, 0, 0]);
                bytes.extend(from.ip().octets());
                bytes.extend(to.ip().octets());
                // No operation.
                bytes.resize(header, 1);
                let sum = checksum(&bytes);
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                let extension: &[u8] =
                    if self.next_header == TCP { &[] } else { &[TCP, 0, 0, 0, 0, 0, 0, 0] };
                bytes.extend([0x60, 0, 0, 0]);
                bytes.extend(((extension.len() + tcp.len()) as u16).to_be_bytes());
                bytes.extend([self.next_header, 64]);
                bytes.extend(from.ip().octets());
                bytes.extend(to.ip().octets());
                bytes.extend(extension);
            }
            _ => panic!("addresses of one family"),
        }
        bytes.extend(tcp);
        bytes
    }

    fn tcp(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.from.port().to_be_bytes());
        bytes.extend(self.to.port().to_be_bytes());
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, self.flags, 0x20, 0, 0, 0, 0, 0]);
        bytes
    }
}

/// The Internet checksum (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
