//! A TCP client made by hand at the other end of a TUN device. It sends the segments of a test at the test's times,
//! and checks each packet that it gets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;

use base::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;
use sys::network::tun::Tun;
use sys::process::Program;

use super::packet::{ACK, FIN, PSH, RST, SYN};

/// The TUN device's name on the server's side.
pub const TUN: &str = "tun0";
/// The server's address behind it.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 1);
/// The same over IPv6.
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd82, 0, 0, 0, 0, 0, 0, 1);
/// The longest wait for a packet that must come: many times TCP's longest timeout in these tests.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// The client's end of the device, and the namespace that has the server's.
pub struct Wire {
    pub namespace: NetworkNamespace,
    pub tun: Tun,
    /// The server is reachable over IPv6.
    pub ipv6: bool,
}

impl Wire {
    /// A namespace of the server's with a TUN device, or the printed reason why there is none.
    pub fn create() -> Option<Wire> {
        let namespace = super::namespace()?;
        let made = namespace.enter(|| Tun::create(TUN)).unwrap();
        let tun = made.inspect_err(|error| println!("skipped: {error}")).ok()?;
        let mut route = namespace.enter(Route::open).unwrap().unwrap();
        let link = route.link_index(TUN).unwrap();
        route.add_address(link, SERVER, 16).unwrap();
        route.set_up(link).unwrap();
        let ipv6 = add_ipv6(&namespace);
        Some(Wire { namespace, tun, ipv6 })
    }

    pub fn send(&self, packet: &[u8]) {
        self.tun.write(packet).unwrap();
    }

    /// The next TCP segment, if one is there. Others, such as those of IPv6's own protocols, are passed over.
    pub fn try_receive(&self) -> Option<Segment> {
        let mut buffer = [0; 65_536];
        loop {
            match self.tun.read(&mut buffer) {
                Ok(length) => match Segment::parse(&buffer[..length]) {
                    Some(segment) => return Some(segment),
                    None => continue,
                },
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(error) => panic!("read from the TUN device: {error}"),
            }
        }
    }

    /// The next TCP segment. Waits for it.
    pub fn receive(&self) -> Segment {
        loop {
            if let Some(segment) = self.try_receive() {
                return segment;
            }
            let ready = poll(&mut [PollFd::new(&self.tun, PollFlags::IN)], Some(&PATIENCE));
            assert!(rustix::io::retry_on_intr(|| ready).unwrap() > 0, "no packet came");
        }
    }
}

/// IPv6 addresses take ip(8).
fn add_ipv6(namespace: &NetworkNamespace) -> bool {
    let arguments = ["-6", "address", "add", "fd82::1/64", "dev", TUN, "nodad"];
    let program = Program::new("ip").arguments(arguments).in_namespace(Some(namespace.as_fd()));
    let output = program.start().and_then(|child| child.output(Nanos::MILLISECOND, || true));
    output.is_ok_and(|output| output.exit.status.success())
}

/// A TCP segment that was received, its checksums found right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub source_port: u16,
    pub port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub payload: Vec<u8>,
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    /// TSval and TSecr.
    pub timestamps: Option<(u32, u32)>,
    pub sack: Vec<(u32, u32)>,
}

impl Segment {
    /// `None` where it is not TCP.
    fn parse(packet: &[u8]) -> Option<Segment> {
        let (addresses, tcp) = match packet[0] >> 4 {
            4 => {
                let header = usize::from(packet[0] & 15) * 4;
                assert_eq!(sum(&[&packet[..header]]), 0xffff, "the IP checksum of {packet:02x?}");
                assert_eq!(usize::from(u16_at(packet, 2)), packet.len(), "the length of {packet:02x?}");
                (packet[9] == 6).then(|| (&packet[12..20], &packet[header..]))?
            }
            _ => {
                assert_eq!(usize::from(u16_at(packet, 4)) + 40, packet.len(), "the length of {packet:02x?}");
                (packet[6] == 6).then(|| (&packet[8..40], &packet[40..]))?
            }
        };
        let pseudo = [&[0, 6][..], &(tcp.len() as u16).to_be_bytes()].concat();
        assert_eq!(sum(&[addresses, &pseudo, tcp]), 0xffff, "the TCP checksum of {packet:02x?}");
        let header = usize::from(tcp[12] >> 4) * 4;
        let mut segment = Segment {
            source_port: u16_at(tcp, 0),
            port: u16_at(tcp, 2),
            seq: u32_at(tcp, 4),
            ack: u32_at(tcp, 8),
            flags: tcp[13],
            window: u16_at(tcp, 14),
            payload: tcp[header..].to_vec(),
            ..Segment::default()
        };
        segment.parse_options(&tcp[20..header]);
        Some(segment)
    }

    fn parse_options(&mut self, mut options: &[u8]) {
        while let Some(kind) = options.first().filter(|kind| **kind != 0) {
            if *kind == 1 {
                options = &options[1..];
                continue;
            }
            let (option, rest) = options.split_at(usize::from(options[1]));
            match *kind {
                2 => self.mss = Some(u16_at(option, 2)),
                3 => self.scale = Some(option[2]),
                5 => {
                    self.sack =
                        option[2..].chunks(8).map(|edges| (u32_at(edges, 0), u32_at(edges, 4))).collect()
                }
                8 => self.timestamps = Some((u32_at(option, 2), u32_at(option, 6))),
                _ => {}
            }
            options = rest;
        }
    }

    pub fn is(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The sequence number behind it.
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload.len() as u32).wrapping_add(u32::from(self.is(FIN) || self.is(SYN)))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

/// The one's complement sum of parts of which all but the last have an even length.
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 =
        words.map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The options that a client offers in its SYN.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    pub mss: u16,
    pub scale: Option<u8>,
    pub timestamps: bool,
    pub sack: bool,
    /// Routers must not fragment its packets.
    pub whole: bool,
    /// Its first sequence number.
    pub isn: u32,
}

impl Default for Offer {
    /// As Linux offers it.
    fn default() -> Offer {
        Offer { mss: 1460, scale: Some(7), timestamps: true, sack: true, whole: true, isn: 1_000_000 }
    }
}

/// A connection by hand. `next` and `expected` are its SND.NXT and RCV.NXT; a test may change them.
pub struct Client {
    pub wire: Rc<Wire>,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub offer: Offer,
    pub next: u32,
    pub expected: u32,
    pub window: u16,
    /// The client's clock of timestamps.
    pub clock: u32,
    /// The last TSval of the server.
    pub echo: u32,
}

impl Client {
    /// A connection whose handshake is complete.
    pub fn connect(wire: &Rc<Wire>, to: SocketAddr, port: u16, offer: Offer) -> Client {
        let mut client = Client::new(wire, to, port, offer);
        client.transmit(client.next, 0, SYN, &[], &[]);
        client.next = client.next.wrapping_add(1);
        let answer = client.receive();
        assert!(answer.is(SYN | ACK) && answer.ack == client.next, "{answer:?}");
        client.expected = answer.end();
        client.acknowledge();
        client
    }

    pub fn new(wire: &Rc<Wire>, to: SocketAddr, port: u16, offer: Offer) -> Client {
        let from: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::new(10, 82, 1, 2).into(),
            SocketAddr::V6(_) => Ipv6Addr::new(0xfd82, 0, 0, 0, 0, 0, 1, 2).into(),
        };
        Client {
            wire: wire.clone(),
            from: (from, port).into(),
            to,
            offer,
            next: offer.isn,
            expected: 0,
            window: 502,
            clock: 5000,
            echo: 0,
        }
    }

    fn take(&mut self, segment: &Segment) {
        if let Some((tsval, _)) = segment.timestamps {
            let is_old = tsval.wrapping_sub(self.echo).cast_signed() < 0;
            assert!(segment.is(SYN) || !is_old, "PAWS drops {segment:?}, after {}", self.echo);
            self.echo = tsval;
        }
    }

    /// The next segment from the server for this connection.
    pub fn receive(&mut self) -> Segment {
        loop {
            let segment = self.wire.receive();
            if segment.port == self.from.port() {
                self.take(&segment);
                return segment;
            }
        }
    }

    /// Nothing is on its way to the client.
    pub fn receives_nothing(&mut self) {
        let segment = self.wire.try_receive();
        assert_eq!(segment, None);
    }

    /// Nothing but repetitions of a segment, which a slow machine causes, is on its way to the client.
    pub fn receives_only_again(&mut self, segment: &Segment) {
        while let Some(other) = self.wire.try_receive() {
            assert_eq!((other.seq, other.flags), (segment.seq, segment.flags));
        }
    }

    /// Sends data, and counts it as sent.
    pub fn send(&mut self, data: &[u8]) {
        self.transmit(self.next, self.expected, ACK | PSH, data, &[]);
        self.next = self.next.wrapping_add(data.len() as u32);
    }

    /// Sends data that was sent before and ends here.
    pub fn send_again(&mut self, data: &[u8]) {
        self.transmit(self.next.wrapping_sub(data.len() as u32), self.expected, ACK | PSH, data, &[]);
    }

    /// Acknowledges what was expected until now.
    pub fn acknowledge(&mut self) {
        self.transmit(self.next, self.expected, ACK, &[], &[]);
    }

    /// Takes one segment with data in order, and acknowledges nothing. Passes over bare acknowledgements, which the
    /// server's kernel may send before its data.
    pub fn receive_data(&mut self) -> Segment {
        let mut segment = self.receive();
        while segment.payload.is_empty() && segment.flags == ACK {
            segment = self.receive();
        }
        assert_eq!(segment.seq, self.expected, "{segment:?}");
        assert!(!segment.payload.is_empty(), "{segment:?}");
        self.expected = segment.end();
        segment
    }

    /// Sends one segment, valid or not.
    pub fn transmit(&mut self, seq: u32, ack: u32, flags: u8, data: &[u8], sack: &[(u32, u32)]) {
        self.clock += 1;
        let packet = self.packet(seq, ack, flags, data, sack);
        self.wire.send(&packet);
    }

    /// One packet, from its IP header on.
    pub fn packet(&self, seq: u32, ack: u32, flags: u8, data: &[u8], sack: &[(u32, u32)]) -> Vec<u8> {
        let options = self.options(flags, sack);
        let mut tcp = Vec::new();
        tcp.extend(self.from.port().to_be_bytes());
        tcp.extend(self.to.port().to_be_bytes());
        tcp.extend(seq.to_be_bytes());
        tcp.extend(ack.to_be_bytes());
        tcp.extend([((5 + options.len() / 4) << 4) as u8, flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(options);
        tcp.extend(data);
        self.with_ip(tcp)
    }

    fn options(&self, flags: u8, sack: &[(u32, u32)]) -> Vec<u8> {
        let mut options = Vec::new();
        let syn = flags & SYN != 0;
        if syn {
            options.extend([2, 4]);
            options.extend(self.offer.mss.to_be_bytes());
            if let Some(scale) = self.offer.scale {
                options.extend([1, 3, 3, scale]);
            }
            if self.offer.sack {
                options.extend([1, 1, 4, 2]);
            }
        }
        if self.offer.timestamps {
            options.extend([1, 1, 8, 10]);
            options.extend(self.clock.to_be_bytes());
            options.extend(self.echo.to_be_bytes());
        }
        if !sack.is_empty() {
            options.extend([1, 1, 5, 2 + 8 * sack.len() as u8]);
            for (left, right) in sack {
                options.extend(left.to_be_bytes());
                options.extend(right.to_be_bytes());
            }
        }
        options
    }

    fn with_ip(&self, mut tcp: Vec<u8>) -> Vec<u8> {
        let (mut ip, addresses) = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let addresses = [from.octets(), to.octets()].concat();
                let length = (20 + tcp.len()) as u16;
                let fragment: u16 = if self.offer.whole { 0x4000 } else { 0 };
                let mut ip = [0x45, 0].to_vec();
                ip.extend(length.to_be_bytes());
                ip.extend([0, 1]);
                ip.extend(fragment.to_be_bytes());
                ip.extend([64, 6, 0, 0]);
                ip.extend(&addresses);
                let check = !sum(&[&ip]);
                ip[10..12].copy_from_slice(&check.to_be_bytes());
                (ip, addresses)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let addresses = [from.octets(), to.octets()].concat();
                let mut ip = [0x60, 0, 0, 0].to_vec();
                ip.extend((tcp.len() as u16).to_be_bytes());
                ip.extend([6, 64]);
                ip.extend(&addresses);
                (ip, addresses)
            }
            _ => panic!("addresses of one family"),
        };
        let pseudo = [&[0, 6][..], &(tcp.len() as u16).to_be_bytes()].concat();
        let check = !sum(&[&addresses, &pseudo, &tcp]);
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        ip.extend(tcp);
        ip
    }

    /// Resets the connection.
    pub fn reset(&mut self) {
        self.transmit(self.next, self.expected, RST | ACK, &[], &[]);
    }
}
