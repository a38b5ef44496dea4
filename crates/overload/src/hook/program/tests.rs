//! Runs the program in an interpreter.

use std::net::{Ipv4Addr, Ipv6Addr};

use base::Seed;
use rand::RngExt;

use super::*;

/// Runs a program on a packet that begins with its network header.
fn run(program: &[Op], packet: &[u8], cpu: u32) -> u32 {
    let (mut accumulator, mut index, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
    let word = |offset: u32, bytes: usize| {
        let start = offset as usize;
        packet[start..start + bytes].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
    };
    loop {
        let operation = program[at];
        at += 1;
        match operation {
            Op::LoadCpu => accumulator = cpu,
            Op::LoadByte(offset) => accumulator = word(offset, 1),
            Op::LoadHalf(offset) => accumulator = word(offset, 2),
            Op::LoadWord(offset) => accumulator = word(offset, 4),
            Op::LoadMemory(word) => accumulator = memory[word as usize],
            Op::StoreMemory(word) => memory[word as usize] = accumulator,
            Op::CopyToIndex => index = accumulator,
            Op::And(mask) => accumulator &= mask,
            Op::XorIndex => accumulator ^= index,
            Op::Xor(mask) => accumulator ^= mask,
            Op::Multiply(by) => accumulator = accumulator.wrapping_mul(by),
            Op::Modulo(by) => accumulator %= by,
            Op::ShiftRight(bits) => accumulator >>= bits,
            Op::Skip(operations) => at += operations as usize,
            Op::SkipUnless(value, skipped) if accumulator != value => at += skipped as usize,
            Op::SkipIfAtLeast(value, skipped) if accumulator >= value => at += skipped as usize,
            Op::SkipUnless(..) | Op::SkipIfAtLeast(..) => {}
            Op::Return(index) => return index,
        }
    }
}

/// The beginning of a SYN packet.
fn syn(source: SocketAddr, sequence: u32) -> Vec<u8> {
    let mut packet = match source.ip() {
        IpAddr::V4(address) => {
            let mut header = vec![0x45; 12];
            header.extend(address.octets());
            header.extend([127, 0, 0, 1]);
            header
        }
        IpAddr::V6(address) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
            header.extend(address.octets());
            header.extend(Ipv6Addr::LOCALHOST.octets());
            header
        }
    };
    packet.extend(source.port().to_be_bytes());
    packet.extend(80_u16.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, SYN as u8]);
    packet
}

/// Counts the destinations of SYNs with consecutive ports and sequence numbers, the worst case for a hash.
fn spread(program: &Program<'_>, cpu: u32, v6: bool) -> Vec<u32> {
    let operations = program.operations();
    let mut counts = vec![0; 2 * program.shares.len()];
    for client in 0..40_000_u32 {
        let ip = if v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::new(10, 0, 0, 1).into() };
        let source = SocketAddr::new(ip, 1024 + (client % 20_000) as u16);
        counts[run(&operations, &syn(source, client * 64), cpu) as usize] += 1;
    }
    counts
}

static NOBODY: Exempt = Exempt::NONE;

fn program<'a>(routing: &'a Routing, shares: &'a [f64]) -> Program<'a> {
    Program { routing, shares, listeners: shares.len(), salt: 0x1234_5678, exempt: &NOBODY, filler: None }
}

#[test]
fn queue_admits_its_share_and_sink_gets_the_rest() {
    for v6 in [false, true] {
        let counts = spread(&program(&Routing::Even, &[0.25]), 0, v6);
        assert!((9_600..10_400).contains(&counts[0]), "{counts:?}");
        assert_eq!(counts[0] + counts[1], 40_000);
    }
    assert_eq!(spread(&program(&Routing::Even, &[1.0]), 0, false), [40_000, 0]);
    assert_eq!(spread(&program(&Routing::Even, &[0.0]), 0, false), [0, 40_000]);
}

#[test]
fn the_final_ack_of_a_cookie_is_never_refused() {
    for source in ["10.0.0.1:4711", "[2001:db8::7]:4711"] {
        let shares = [0.0, 1e-9];
        let operations = program(&Routing::Even, &shares).operations();
        let of = |packet: &[u8]| run(&operations, packet, 0) < 2;
        let mut queues = [0, 0];
        for sequence in 0..1000 {
            let mut packet = syn(source.parse().unwrap(), sequence);
            assert!(!of(&packet), "a SYN");
            let flags = packet.len() - 1;
            packet[flags] = 0x10;
            assert!(of(&packet), "an ACK");
            queues[run(&operations, &packet, 0) as usize] += 1;
            // Its flags are elsewhere.
            let (byte, other) = if packet[0] == 0x45 { (0, 0x46) } else { (6, 0) };
            packet[byte] = other;
            assert!(!of(&packet), "a packet whose flags are unknown");
        }
        assert!(queues.iter().all(|count| (400..600).contains(count)), "{queues:?}");
    }
}

#[test]
fn queues_get_equal_parts_and_admit_own_shares() {
    let counts = spread(&program(&Routing::Even, &[1.0, 0.5, 0.0]), 0, false);
    for (count, expected) in counts.iter().zip([13_333.0, 6_667.0, 0.0, 0.0, 6_667.0, 13_333.0]) {
        assert!((f64::from(*count) - expected).abs() <= expected * 0.05, "{counts:?}");
    }
}

#[test]
fn steered_connections_stay_with_their_processor() {
    let routing = Routing::ByCpu(vec![4, 7]);
    let program = program(&routing, &[0.5, 1.0]);
    let counts = spread(&program, 4, false);
    assert!(counts[1] == 0 && counts[3] == 0 && (19_000..21_000).contains(&counts[0]), "{counts:?}");
    assert_eq!(spread(&program, 7, false), [0, 40_000, 0, 0]);
    let counts = spread(&program, 9, false);
    assert!((9_500..10_500).contains(&counts[0]) && (19_000..21_000).contains(&counts[1]), "{counts:?}");
}

#[test]
fn larger_share_admits_all_of_a_smaller_one() {
    let seed = Seed(20);
    println!("seed {seed}");
    let mut draws = seed.rng();
    let (small, large) = ([0.1, 0.3, 0.2], [0.15, 0.3, 0.9]);
    let (small, large) =
        (program(&Routing::Even, &small).operations(), program(&Routing::Even, &large).operations());
    for _ in 0..20_000 {
        let source = SocketAddr::new(Ipv4Addr::from_bits(draws.random()).into(), draws.random());
        let packet = syn(source, draws.random());
        let (before, after) = (run(&small, &packet, 0), run(&large, &packet, 0));
        assert_eq!(before % 3, after % 3, "its queue stays the same");
        assert!(before >= 3 || after < 3, "admitted by the smaller share and refused by the larger");
    }
}

#[test]
fn another_salt_refuses_others() {
    let one = program(&Routing::Even, &[0.5]).operations();
    let other = Program { salt: 0x8765_4321, ..program(&Routing::Even, &[0.5]) }.operations();
    let same = (0..10_000_u32).filter(|client| {
        let packet = syn(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 5000), *client);
        run(&one, &packet, 0) == run(&other, &packet, 0)
    });
    let same = same.count();
    assert!((4_500..5_500).contains(&same), "{same} of 10000");
}

#[test]
fn only_the_filler_goes_to_a_sink_being_filled() {
    for source in ["127.0.0.1:4711", "[::1]:4711", "[2001:db8::7]:4711"] {
        let source: SocketAddr = source.parse().unwrap();
        let shares = [1.0, 1.0];
        let operations =
            Program { filler: Some((source, 3)), ..program(&Routing::Even, &shares) }.operations();
        assert_eq!(run(&operations, &syn(source, 99), 0), 3, "{source}");
        let mut others = vec![SocketAddr::new(source.ip(), 4712), "127.0.0.2:4711".parse().unwrap()];
        others.extend(["[::2]:4711", "[2001:db9::7]:4711"].map(|other| other.parse::<SocketAddr>().unwrap()));
        for other in others {
            assert!(run(&operations, &syn(other, 99), 0) < 2, "{other} is not {source}");
        }
    }
}

#[test]
fn longest_accepted_program_has_hundreds_of_queues() {
    let shares = vec![0.5; 400];
    let cpus = Routing::ByCpu((0..400).collect());
    assert!(program(&cpus, &shares).operations().len() <= 4096);
    assert!(program(&Routing::Even, &vec![0.5; 800]).operations().len() <= 4096);
}

#[test]
fn exempt_networks_pass_at_any_share() {
    let networks = ["10.1.0.0/16", "192.0.2.7", "2001:db8::/33", "2001:db9::7"];
    let exempt = Exempt::new(networks.map(|network| network.parse().unwrap()).to_vec()).unwrap();
    let everybody = Exempt::new(vec!["::/0".parse().unwrap()]).unwrap();
    let ipv4 = Exempt::new(vec!["0.0.0.0/0".parse().unwrap()]).unwrap();
    let (routing, shares) = (Routing::Even, [0.0, 1e-9]);
    let run_for = |exempt: &Exempt, address: &str| {
        let operations = Program { exempt, ..program(&routing, &shares) }.operations();
        let mut queues = [0; 4];
        for sequence in 0..400 {
            let source = SocketAddr::new(address.parse().unwrap(), 4711);
            queues[run(&operations, &syn(source, sequence), 0) as usize] += 1;
        }
        assert!(
            queues.iter().all(|count| *count == 0 || (100..300).contains(count)),
            "{address}: {queues:?}"
        );
        queues[0] > 0
    };
    for address in ["10.1.255.1", "192.0.2.7", "2001:db8:7fff::1", "2001:db9::7"] {
        assert!(run_for(&exempt, address), "{address} is exempt");
    }
    for address in ["10.2.0.1", "192.0.2.6", "2001:db8:8000::1", "2001:db9::6", "::ffff:10.1.0.1"] {
        assert!(!run_for(&exempt, address), "{address} is not exempt");
    }
    assert!(run_for(&everybody, "10.2.0.1") && run_for(&everybody, "2001:db9::6"));
    assert!(run_for(&ipv4, "10.2.0.1") && !run_for(&ipv4, "2001:db9::6"));
}

#[test]
fn most_exempt_networks_fit_into_one_program() {
    let networks = (0..256).map(|number| format!("2001:db8:{number:x}::1").parse().unwrap()).collect();
    let exempt = Exempt::new(networks).unwrap();
    let (routing, shares) = (Routing::Even, [0.5; 64]);
    assert!(Program { exempt: &exempt, ..program(&routing, &shares) }.operations().len() <= 4096);
}
