//! The program that selects an accept queue, or a sink, for each SYN.
//!
//! ```text
//!   from the filler? ── yes ──> the sink being filled
//!         | no
//!   identity = hash(source address, ports, sequence number, salt)
//!         |
//!   queue i = identity mod n, or the queue of the receiving processor
//!         |
//!   no SYN, of an exempt network, or identity < share of i ── yes ──> queue i
//!         | no
//!       sink i
//! ```
//!
//! The identity of a SYN survives its retransmission, because the client repeats the ports and the sequence
//! number. A SYN refused at some share is therefore refused again until the share has grown. Its client would
//! be late in any case, and a new client gets the room. The salt keeps strangers from choosing an identity
//! that always passes.
//!
//! The kernel also asks the program about final ACKs whose SYN was answered by a cookie. Such a client believes that it
//! is connected, and would ask in vain, so no share refuses it. Nor does one refuse any other packet that is surely no
//! SYN. A packet with IP options or extension headers counts as a SYN, since its flags could lie anywhere.
//!
//! Invariants: a larger share admits every SYN that a smaller one admits. Indexes are those of the group,
//! listeners before sinks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::Network;
use bpf::Exempt;
use sys::socket::reuseport::Op;

/// The offset of the whole source address in an IPv6 packet.
const V6_SOURCE: u32 = 8;
/// The offsets of the source address, the ports and the sequence number in an IPv4 packet without options.
/// With options the program reads other bytes of the header, which a retransmission repeats as well.
const V4: [u32; 3] = [12, 20, 24];
/// The same offsets in an IPv6 packet without extension headers, for the last four bytes of the address.
const V6: [u32; 3] = [20, 40, 44];

/// The memory word of the program that holds the identity.
const IDENTITY: u32 = 0;
/// The memory word with the number that must be below a share: the identity, or 0 without a SYN or for an exempt one.
const DRAW: u32 = 1;
/// The bit of a SYN in the flags of TCP.
const SYN: u32 = 2;

/// The smallest relative change of a share that justifies a new program.
const WORTH: f64 = 0.07;

/// Tells whether a sink with one share gets a program for another one.
pub fn is_worth_it(before: f64, share: f64) -> bool {
    let opens_or_closes = (before >= 1.0) != (share >= 1.0);
    opens_or_closes || (share - before).abs() > WORTH * before
}

/// Returns the salt of the next overload: each refuses other clients, so that no client is refused every day.
pub fn next_salt(salt: u32) -> u32 {
    salt.wrapping_mul(0x9e37_79b1).wrapping_add(1)
}

/// The rule that spreads connections over several accept queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Evenly, by the identity of the SYN.
    Even,
    /// By the processor that received the SYN: `cpus[i]` for queue i. SYNs of other processors are spread
    /// evenly.
    ByCpu(Vec<usize>),
}

/// The parameters of a program.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    /// The rule that spreads connections over the queues.
    pub routing: &'a Routing,
    /// The fraction that each queue admits, from 0 to 1; one for each queue.
    pub shares: &'a [f64],
    /// Listeners in the group, at least one for each queue. Surplus listeners get no SYN.
    pub listeners: usize,
    /// Mixed into identities.
    pub salt: u32,
    /// Networks whose SYNs no share refuses.
    pub exempt: &'a Exempt,
    /// The source of a filler, and the index that the filler goes to.
    pub filler: Option<(SocketAddr, u32)>,
}

impl Program<'_> {
    /// The operations of the program. Sink i has the index `listeners + i`.
    pub fn operations(&self) -> Vec<Op> {
        let mut operations = Vec::new();
        if let Some((source, index)) = self.filler {
            choose_filler(&mut operations, source, index);
        }
        identify(&mut operations, self.salt);
        zero_draw_if_exempt(&mut operations, self.exempt);
        operations.push(Op::LoadMemory(IDENTITY));
        if let Routing::ByCpu(cpus) = self.routing {
            operations.push(Op::LoadCpu);
            for (queue, cpu) in cpus.iter().enumerate().take(self.shares.len()) {
                self.choose_unless_other(&mut operations, queue, *cpu as u32);
            }
            operations.push(Op::LoadMemory(IDENTITY));
        }
        let (last, others) = (self.shares.len() - 1, 0..self.shares.len() - 1);
        if last > 0 {
            operations.push(Op::Modulo(self.shares.len() as u32));
        }
        for queue in others {
            self.choose_unless_other(&mut operations, queue, queue as u32);
        }
        operations.extend(self.admit_or_sink(last));
        operations
    }

    /// Ends in a queue or its sink if the accumulator equals `value`.
    fn choose_unless_other(&self, operations: &mut Vec<Op>, queue: usize, value: u32) {
        let choice = self.admit_or_sink(queue);
        operations.push(Op::SkipUnless(value, choice.len() as u8));
        operations.extend(choice);
    }

    /// Ends in a queue or its sink.
    fn admit_or_sink(&self, queue: usize) -> Vec<Op> {
        let (admit, sink) = (Op::Return(queue as u32), Op::Return((self.listeners + queue) as u32));
        let threshold = self.shares[queue] * 2_f64.powi(32);
        if threshold >= 2_f64.powi(32) {
            return vec![admit];
        }
        vec![Op::LoadMemory(DRAW), Op::SkipIfAtLeast((threshold as u32).max(1), 1), admit, sink]
    }
}

/// Leaves the identity of the packet and the draw in memory.
fn identify(operations: &mut Vec<Op>, salt: u32) {
    let (v6, v4) = (combine(V6), combine(V4));
    operations.extend([Op::LoadByte(0), Op::And(0xf0), Op::SkipUnless(0x60, v6.len() as u8 + 1)]);
    operations.extend(v6);
    operations.push(Op::Skip(v4.len() as u32));
    operations.extend(v4);
    operations.extend([Op::XorIndex, Op::Xor(salt)]);
    // The finalizer of MurmurHash3: every input bit changes half of the output bits.
    for (bits, multiplier) in [(16, Some(0x85eb_ca6b)), (13, Some(0xc2b2_ae35)), (16, None)] {
        operations.extend([
            Op::StoreMemory(IDENTITY),
            Op::ShiftRight(bits),
            Op::CopyToIndex,
            Op::LoadMemory(IDENTITY),
            Op::XorIndex,
        ]);
        operations.extend(multiplier.map(Op::Multiply));
    }
    operations.extend([Op::StoreMemory(IDENTITY), Op::StoreMemory(DRAW)]);
    operations.extend(zero_draw_without_syn());
}

/// Sets the draw to 0 for a packet that is surely no SYN.
fn zero_draw_without_syn() -> [Op; 13] {
    [
        Op::LoadByte(0),
        Op::And(0xf0),
        Op::SkipUnless(0x60, 4),
        // IPv6: TCP must follow the fixed header.
        Op::LoadByte(6),
        Op::SkipUnless(6, 8),
        Op::LoadByte(V6[1] + 13),
        Op::Skip(3),
        // IPv4: without options.
        Op::LoadByte(0),
        Op::SkipUnless(0x45, 4),
        Op::LoadByte(V4[1] + 13),
        Op::And(SYN),
        Op::SkipUnless(0, 1),
        Op::StoreMemory(DRAW),
    ]
}

/// Sets the draw to 0 for a packet of an exempt network.
fn zero_draw_if_exempt(operations: &mut Vec<Op>, exempt: &Exempt) {
    for (version, is_v4) in [(0x40, true), (0x60, false)] {
        let tests: Vec<Op> =
            exempt.networks().iter().flat_map(|network| zero_draw_if_in(network, is_v4)).collect();
        if !tests.is_empty() {
            let others = [Op::SkipUnless(version, 1), Op::Skip(1), Op::Skip(tests.len() as u32)];
            operations.extend([Op::LoadByte(0), Op::And(0xf0)]);
            operations.extend(others);
            operations.extend(tests);
        }
    }
}

/// Sets the draw to 0 if the source of a packet is in a network. IPv4 addresses are compared in their mapped form, of
/// which only the last word is in the packet.
fn zero_draw_if_in(network: &Network, is_v4: bool) -> Vec<Op> {
    let (address, before) = match network.address() {
        IpAddr::V4(address) => (address.to_ipv6_mapped(), 96),
        IpAddr::V6(address) => (address, 0),
    };
    let words = |bits: u128| [96, 64, 32, 0].map(|shift| (bits >> shift) as u32);
    let mask = u128::MAX.checked_shl(128 - before - u32::from(network.prefix())).unwrap_or_default();
    let (masks, values) = (words(mask), words(address.to_bits()));
    let known = words(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().to_bits());
    let can_contain =
        if is_v4 { (0..3).all(|index| known[index] & masks[index] == values[index]) } else { before == 0 };
    if !can_contain {
        return Vec::new();
    }
    let offsets = if is_v4 { vec![(3, V4[0])] } else { (0..4).zip((V6_SOURCE..).step_by(4)).collect() };
    let mut operations = vec![Op::StoreMemory(DRAW), Op::And(0)];
    for (index, offset) in offsets.into_iter().rev().filter(|(index, _)| masks[*index] != 0) {
        operations.push(Op::SkipUnless(values[index], operations.len() as u8));
        operations.extend([Op::And(masks[index]), Op::LoadWord(offset)]);
    }
    operations.reverse();
    operations
}

/// Mixes three words of a packet. The odd multipliers come from the golden ratio and from xxHash; they carry
/// every bit of a word to the high bits.
fn combine([address, ports, sequence]: [u32; 3]) -> [Op; 8] {
    [
        Op::LoadWord(address),
        Op::Multiply(0x9e37_79b1),
        Op::CopyToIndex,
        Op::LoadWord(ports),
        Op::XorIndex,
        Op::Multiply(0x85eb_ca77),
        Op::CopyToIndex,
        Op::LoadWord(sequence),
    ]
}

/// Ends in an index if the packet comes from this address and port, which only our own socket can have.
fn choose_filler(operations: &mut Vec<Op>, source: SocketAddr, index: u32) {
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]])).collect()
    };
    let (version, address, at, ports) = match source.ip() {
        IpAddr::V4(address) => (0x40, words(&address.octets()), V4[0], V4[1]),
        IpAddr::V6(address) => (0x60, words(&address.octets()), V6_SOURCE, V6[1]),
    };
    let mut tests = vec![(Op::LoadHalf(ports), u32::from(source.port()))];
    tests.extend(address.iter().zip((at..).step_by(4)).map(|(word, at)| (Op::LoadWord(at), *word)));
    operations.extend([Op::LoadByte(0), Op::And(0xf0), Op::SkipUnless(version, 2 * tests.len() as u8 + 1)]);
    for (index, (load, value)) in tests.iter().enumerate() {
        operations.extend([*load, Op::SkipUnless(*value, 2 * (tests.len() - index) as u8 - 1)]);
    }
    operations.push(Op::Return(index));
}

#[cfg(test)]
mod tests;
