//! The XDP program that hands frames to AF_XDP sockets, put together here instruction by instruction.
//!
//! ```text
//!   device ──> IPv4 or IPv6 to the network, or a question or answer about one of its hardware addresses?
//!                 │ yes                             │ no
//!                 v                                 v
//!              the socket of the queue           the kernel
//! ```
//!
//! A frame of a queue without a socket goes to the kernel. The network is part of the program, so it has no
//! map but that of the sockets. It is small enough to be read here, and needs no compiler and no object file;
//! the kernel's verifier has the last word (the kernel's
//! Documentation/bpf/standardization/instruction-set.rst).
//!
//! Invariant: program and map live as long as [`Attached`], whose descriptors the kernel closes with this
//! process.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// Commands, types and flags of bpf(2), from <linux/bpf.h> and <linux/if_link.h>; libc has none of them.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_OF_XDP_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_DRIVER: u32 = 1 << 2;
const HELPER_REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;

/// Receive queues at most.
pub const QUEUES_MAX: u32 = 64;

/// The attribute of a bpf(2) call, as bytes: longer than any kernel knows is fine as long as the rest is
/// zero.
struct Attribute([u64; 16]);

impl Attribute {
    fn new(words: &[(usize, u32)], long_words: &[(usize, u64)]) -> Attribute {
        let mut attribute = Attribute([0; 16]);
        for (at, word) in words {
            attribute.0[at / 8] |= u64::from(*word) << (at % 8 * 8);
        }
        for (at, word) in long_words {
            attribute.0[at / 8] = *word;
        }
        attribute
    }

    /// # Safety
    /// Addresses in the attribute are those of memory that the command may read, of the length it reads.
    unsafe fn call(&self, command: libc::c_int) -> io::Result<libc::c_int> {
        // SAFETY: the kernel reads the attribute, which lives through the call, and what the caller vouches
        // for.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), size_of::<[u64; 16]>()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
    }

    /// # Safety
    /// As [`call`](Self::call), and the command returns a descriptor.
    unsafe fn open(&self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: the caller's promise; the descriptor is new and nobody else's.
        unsafe { Ok(OwnedFd::from_raw_fd(self.call(command)?)) }
    }
}

/// A program on a device, with the sockets that it feeds. Dropping it takes the program off.
pub struct Attached {
    sockets: OwnedFd,
    _link: OwnedFd,
}

impl Attached {
    /// Puts the program on the link with that number, in its driver if the driver can, for frames to
    /// `network`.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_BPF and CAP_NET_ADMIN; EBUSY when the device has such a program; EINVAL
    /// from a kernel before 5.9.
    pub fn attach(link: u32, network: IpAddr, prefix_length: u8) -> io::Result<Attached> {
        let map = Attribute::new(&[(0, MAP_OF_XDP_SOCKETS), (4, 4), (8, 4), (12, QUEUES_MAX)], &[]);
        // SAFETY: the attribute has no addresses.
        let sockets = unsafe { map.open(MAP_CREATE) }?;
        let program = load(&instructions(network, prefix_length, sockets.as_raw_fd()))?;
        let attach = |flags: u32| {
            let words = [(0, program.as_raw_fd() as u32), (4, link), (8, ATTACH_XDP), (12, flags)];
            // SAFETY: the attribute has no addresses.
            unsafe { Attribute::new(&words, &[]).open(LINK_CREATE) }
        };
        let attached = attach(FLAG_DRIVER).or_else(|error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EINVAL) => attach(FLAG_GENERIC),
            _ => Err(error),
        })?;
        Ok(Attached { sockets, _link: attached })
    }

    /// Has the frames of a receive queue go to a socket.
    ///
    /// # Errors
    /// E2BIG from queue [`QUEUES_MAX`] on; EOPNOTSUPP for another kind of socket.
    pub fn feed(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let address = |word: &u32| std::ptr::from_ref(word).addr() as u64;
        let long_words = [(8, address(&queue)), (16, address(&value))];
        let attribute = Attribute::new(&[(0, self.sockets.as_raw_fd() as u32)], &long_words);
        // SAFETY: key and value are of the four bytes that the map was made for, and live through the call.
        unsafe { attribute.call(MAP_UPDATE) }.map(drop)
    }
}

fn load(instructions: &[u64]) -> io::Result<OwnedFd> {
    let license = c"GPL";
    let words = [(0, PROGRAM_XDP), (4, instructions.len() as u32)];
    let long_words = [(8, instructions.as_ptr().addr() as u64), (16, license.as_ptr().addr() as u64)];
    // SAFETY: the instructions, of the number said, and the license live through the call.
    unsafe { Attribute::new(&words, &long_words).open(PROGRAM_LOAD) }
}

// Registers.
const R0: u8 = 0;
const R1: u8 = 1;
const DATA: u8 = 2;
const END: u8 = 3;
const LIMIT: u8 = 4;
const WORD: u8 = 5;
const CONTEXT: u8 = 6;
const ADDRESS: u8 = 7;

// Operations.
const LOAD_32: u8 = 0x61;
const LOAD_16: u8 = 0x69;
const LOAD_8: u8 = 0x71;
const LOAD_MAP: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_NUMBER: u8 = 0xb7;
const ADD_NUMBER: u8 = 0x07;
const AND_NUMBER_32: u8 = 0x54;
const JUMP: u8 = 0x05;
const JUMP_IF_GREATER: u8 = 0x2d;
const JUMP_IF_EQUAL_32: u8 = 0x16;
const JUMP_UNLESS_EQUAL_32: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// The targets of jumps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Packet,
    Check,
    Pass,
}

/// Instructions, and the jumps whose targets are not known yet.
#[derive(Default)]
struct Assembler {
    instructions: Vec<u64>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn put(&mut self, operation: u8, to: u8, from: u8, offset: i16, number: i32) {
        let registers = from << 4 | to;
        let [low, high] = offset.to_ne_bytes();
        let [a, b, c, d] = number.to_ne_bytes();
        self.instructions.push(u64::from_ne_bytes([operation, registers, low, high, a, b, c, d]));
    }

    fn jump(&mut self, operation: u8, register: u8, other: u8, number: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(operation, register, other, 0, number);
    }

    /// Lets all jumps to a label lead here.
    fn label(&mut self, label: Label) {
        let here = self.instructions.len();
        self.jumps.retain(|(from, to)| {
            if *to == label {
                let mut bytes = self.instructions[*from].to_ne_bytes();
                bytes[2..4].copy_from_slice(&((here - from - 1) as i16).to_ne_bytes());
                self.instructions[*from] = u64::from_ne_bytes(bytes);
            }
            *to != label
        });
    }

    /// Passes frames that are shorter than this.
    fn at_least(&mut self, length: i32) {
        self.put(MOVE, LIMIT, DATA, 0, 0);
        self.put(ADD_NUMBER, LIMIT, 0, 0, length);
        self.jump(JUMP_IF_GREATER, LIMIT, END, 0, Label::Pass);
    }
}

/// 16 bits of a frame as a load gives them.
fn network_order(number: u16) -> i32 {
    i32::from(u16::from_ne_bytes(number.to_be_bytes()))
}

const ETHERNET: i16 = 14;
const TYPE: i16 = 12;

fn instructions(network: IpAddr, prefix_length: u8, sockets: libc::c_int) -> Vec<u64> {
    let mut program = Assembler::default();
    program.put(MOVE, CONTEXT, R1, 0, 0);
    // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index.
    program.put(LOAD_32, DATA, CONTEXT, 0, 0);
    program.put(LOAD_32, END, CONTEXT, 4, 0);
    let octets = match network {
        IpAddr::V4(v4) => {
            find_address_ipv4(&mut program);
            v4.octets().to_vec()
        }
        IpAddr::V6(v6) => {
            find_address_ipv6(&mut program);
            v6.octets().to_vec()
        }
    };
    program.label(Label::Check);
    for (number, wanted) in octets.chunks_exact(4).enumerate() {
        let bits = (u32::from(prefix_length)).saturating_sub(number as u32 * 32).min(32);
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        if mask != 0 {
            let word = |word: u32| i32::from_ne_bytes(word.to_be_bytes());
            let wanted = u32::from_be_bytes([wanted[0], wanted[1], wanted[2], wanted[3]]) & mask;
            program.put(LOAD_32, WORD, ADDRESS, number as i16 * 4, 0);
            program.put(AND_NUMBER_32, WORD, 0, 0, word(mask));
            program.jump(JUMP_UNLESS_EQUAL_32, WORD, 0, word(wanted), Label::Pass);
        }
    }
    program.put(LOAD_32, DATA, CONTEXT, 16, 0);
    // A map by its descriptor: two instructions long.
    program.put(LOAD_MAP, R1, 1, 0, sockets);
    program.put(0, 0, 0, 0, 0);
    program.put(MOVE_NUMBER, END, 0, 0, XDP_PASS);
    program.put(CALL, 0, 0, 0, HELPER_REDIRECT_MAP);
    program.put(EXIT, 0, 0, 0, 0);
    program.label(Label::Pass);
    program.put(MOVE_NUMBER, R0, 0, 0, XDP_PASS);
    program.put(EXIT, 0, 0, 0, 0);
    program.instructions
}

/// Lets ADDRESS point at the destination of an IPv4 packet, or at the address that an ARP frame is about or
/// for.
fn find_address_ipv4(program: &mut Assembler) {
    program.at_least(42);
    program.put(LOAD_16, WORD, DATA, TYPE, 0);
    program.put(MOVE, ADDRESS, DATA, 0, 0);
    program.jump(JUMP_IF_EQUAL_32, WORD, 0, network_order(libc::ETH_P_IP as u16), Label::Packet);
    program.jump(JUMP_UNLESS_EQUAL_32, WORD, 0, network_order(libc::ETH_P_ARP as u16), Label::Pass);
    program.put(ADD_NUMBER, ADDRESS, 0, 0, i32::from(ETHERNET) + 24);
    program.jump(JUMP, 0, 0, 0, Label::Check);
    program.label(Label::Packet);
    program.put(ADD_NUMBER, ADDRESS, 0, 0, i32::from(ETHERNET) + 16);
}

/// Lets ADDRESS point at the destination of an IPv6 packet, or at the address that a neighbour solicitation
/// asks for.
fn find_address_ipv6(program: &mut Assembler) {
    const HEADER: i16 = 40;
    const SOLICITATION: i32 = 135;
    program.at_least(i32::from(ETHERNET + HEADER));
    program.put(LOAD_16, WORD, DATA, TYPE, 0);
    program.jump(JUMP_UNLESS_EQUAL_32, WORD, 0, network_order(libc::ETH_P_IPV6 as u16), Label::Pass);
    program.put(MOVE, ADDRESS, DATA, 0, 0);
    program.put(ADD_NUMBER, ADDRESS, 0, 0, i32::from(ETHERNET) + 24);
    program.put(LOAD_8, WORD, DATA, ETHERNET + 6, 0);
    program.jump(JUMP_UNLESS_EQUAL_32, WORD, 0, libc::IPPROTO_ICMPV6, Label::Check);
    program.at_least(i32::from(ETHERNET + HEADER) + 24);
    program.put(LOAD_8, WORD, DATA, ETHERNET + HEADER, 0);
    program.jump(JUMP_UNLESS_EQUAL_32, WORD, 0, SOLICITATION, Label::Check);
    program.put(ADD_NUMBER, ADDRESS, 0, 0, i32::from(HEADER) - 24 + 8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Route;
    use crate::netns::NetworkNamespace;
    use crate::poll::{PollFd, bits};
    use crate::xdp::Socket;
    use base::Nanos;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsFd;

    const WAIT: Nanos = Nanos::from_secs(5);

    /// The two ends of a veth pair, each in a namespace of its own, up, the first with an address.
    fn pair() -> Option<[(NetworkNamespace, Route, u32); 2]> {
        let make = || {
            NetworkNamespace::create()
                .inspect_err(|error| println!("skipped: no network namespaces here: {error}"))
                .ok()
        };
        let (here, there) = (make()?, make()?);
        let mut route = here.enter(Route::open).unwrap().unwrap();
        route.create_veth("left", there.as_fd(), "right").unwrap();
        let mut other = there.enter(Route::open).unwrap().unwrap();
        for namespace in [&here, &there] {
            namespace.set_sysctl("net.ipv6.conf.all.disable_ipv6", "1").ok();
        }
        let (left, right) = (route.link_index("left").unwrap(), other.link_index("right").unwrap());
        route.add_address(left, Ipv4Addr::new(10, 77, 0, 1), 24).unwrap();
        route.set_up(left).unwrap();
        other.set_up(right).unwrap();
        Some([(here, route, left), (there, other, right)])
    }

    fn wait(socket: &Socket) {
        let mut set = [PollFd::new(socket.as_fd().as_raw_fd(), bits::IN)];
        assert_eq!(crate::poll::wait(&mut set, Some(WAIT)).unwrap(), 1, "nothing came in {WAIT}");
    }

    #[test]
    fn frames_for_the_network_come_to_the_socket_and_frames_go_out() {
        let Some([(here, _, _), (there, _, right)]) = pair() else { return };
        let opened = there.enter(|| {
            let socket = Socket::open(right, 0)?;
            let attached = Attached::attach(right, Ipv4Addr::new(10, 77, 0, 128).into(), 25)?;
            attached.feed(0, socket.as_fd())?;
            io::Result::Ok((socket, attached))
        });
        let (mut socket, attached) = match opened.unwrap() {
            Ok(opened) => opened,
            Err(error) => return println!("skipped: no AF_XDP here: {error}"),
        };
        assert!(!socket.receive() && socket.frame().is_empty());
        // The kernel asks for the hardware address first: 10.77.0.2 is not in the network, 10.77.0.200 is.
        let sender = here.enter(|| UdpSocket::bind("10.77.0.1:700")).unwrap().unwrap();
        sender.send_to(b"not for us", "10.77.0.2:900").unwrap();
        sender.send_to(b"for us", "10.77.0.200:900").unwrap();
        wait(&socket);
        assert!(socket.receive());
        let question = socket.frame().to_vec();
        assert_eq!((&question[12..14], &question[38..42]), (&[8, 6][..], &[10, 77, 0, 200][..]));
        // The answer: addresses change places, and the one asked for is given.
        let answer = socket.reserve(42).unwrap();
        answer.copy_from_slice(&question[..42]);
        let mac = [2, 0, 0, 0, 0, 9];
        answer[..6].copy_from_slice(&question[6..12]);
        answer[6..12].copy_from_slice(&mac);
        answer[21] = 2;
        answer[22..28].copy_from_slice(&mac);
        answer[28..32].copy_from_slice(&question[38..42]);
        answer[32..42].copy_from_slice(&question[22..32]);
        socket.send().unwrap();
        wait(&socket);
        assert!(socket.receive());
        assert_eq!(&socket.frame()[..6], &mac);
        assert!(socket.frame().ends_with(b"for us"));
        assert!(!socket.receive());
        // Every frame comes back: many more than there are pass through.
        for _ in 0..40_000 {
            assert!(socket.reserve(60).is_some());
            socket.send().unwrap();
        }
        drop(attached);
        let empty =
            there.enter(|| Attached::attach(right, Ipv4Addr::new(10, 77, 0, 128).into(), 25)).unwrap();
        assert!(empty.is_ok(), "the program is gone, so there is room for another");
    }

    #[test]
    fn programs_for_any_prefix_pass_the_verifier() {
        let Some([_other_end, (there, _, right)]) = pair() else { return };
        let nets = [
            ("10.94.0.0", 16),
            ("10.0.0.0", 8),
            ("10.94.3.7", 32),
            ("fd94::", 64),
            ("fd94::", 48),
            ("fd94::7", 128),
        ];
        for (network, length) in nets {
            let attached = there.enter(|| Attached::attach(right, network.parse().unwrap(), length)).unwrap();
            match attached {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return println!("skipped: no BPF here: {error}");
                }
                Err(error) => panic!("{network}/{length}: {error}"),
            }
        }
    }
}
