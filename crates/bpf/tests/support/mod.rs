//! Hostile packets for the programs of the hooks on devices: which of them the programs must refuse, and the property
//! that tests and the fuzz target share.

use std::cell::Cell;
use std::net::SocketAddr;

use base::Nanos;
use bpf::admission::{Admission, Hook, Limits, Queues};

/// Every hook, with its verdict for a packet that goes on.
pub const HOOKS: [(Hook, i32); 3] = [(Hook::Tc, -1), (Hook::TcReset, -1), (Hook::Xdp, 2)];
const ETHERNET: usize = 14;
const TCP: u8 = 6;

/// The guarded addresses.
pub fn listeners() -> [SocketAddr; 2] {
    ["10.1.2.3:80".parse().unwrap(), "[fd00::3]:80".parse().unwrap()]
}

/// The program of a hook with an empty bucket; `None` with the reason printed where it cannot be loaded.
pub fn loaded(hook: Hook) -> Option<Admission> {
    let mut admission =
        Admission::load(hook, &Queues::one()).inspect_err(|error| println!("skipped: {error}")).ok()?;
    listeners().iter().for_each(|listener| admission.add_listener(*listener).unwrap());
    empty(&admission);
    Some(admission)
}

/// A SYN to the first listener, without options or data.
fn plain_syn() -> Vec<u8> {
    let mut packet = vec![0; 12];
    packet.extend([8, 0, 0x45, 0, 0, 40, 0, 1, 0, 0, 64, TCP, 0, 0, 10, 9, 8, 6, 10, 1, 2, 3]);
    packet.extend([0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0x20, 0, 0, 0, 0, 0]);
    packet
}

/// Takes the token that time may have brought, so that the bucket is empty for an hour.
fn empty(admission: &Admission) {
    let limits =
        Limits { interval: Nanos::from_secs(3600), burst: Nanos(0), new_are_free: false, until: None };
    admission.table().limit(0, &limits);
    admission.test_run(&plain_syn(), 2).unwrap();
}

/// True if a host with the listeners gets this frame as a SYN to one of them, by a reading of the headers of its own.
/// Packets that the programs document to let go on are not: fragments, VLAN tags, IPv6 with extension headers.
pub fn is_syn_to_us(hook: Hook, frame: &[u8]) -> bool {
    let at = |offset: usize| frame.get(offset).copied();
    let word = |offset: usize| Some(u16::from_be_bytes([at(offset)?, at(offset + 1)?]));
    let is_ours = || {
        // Traffic control knows packets for other hosts. The device of a test run has the address 0.
        if hook != Hook::Xdp && frame.get(..6)?.iter().any(|byte| *byte != 0) {
            return None;
        }
        let ip = ETHERNET;
        let (tcp, to) = match word(12)? {
            0x0800 => {
                let header = usize::from(at(ip)? & 15) * 4;
                let is_whole = word(ip + 6)? & 0x3fff == 0;
                if at(ip + 9)? != TCP || !is_whole || header < 20 {
                    return None;
                }
                (ip + header, frame.get(ip + 16..ip + 20)? == [10, 1, 2, 3])
            }
            0x86dd if at(ip + 6)? == TCP => {
                let to = frame.get(ip + 24..ip + 40)?;
                (ip + 40, to[..2] == [0xfd, 0] && to[2..15].iter().all(|byte| *byte == 0) && to[15] == 3)
            }
            _ => return None,
        };
        let header = frame.get(tcp..tcp + 20)?;
        // SYN, and neither FIN nor RST nor ACK.
        Some(to && header[2..4] == [0, 80] && header[13] & 0b1_0111 == 0b0010)
    };
    is_ours().unwrap_or(false)
}

/// Frames after which the bucket is emptied again. They take far less than the hour that brings a token.
const FRAMES: u32 = 10_000;

/// The frame is refused if it is a SYN to a listener, and goes on otherwise. The counters say the same.
pub fn check(hook: Hook, pass: i32, admission: &Admission, frame: &[u8]) {
    let before = admission.table().totals(0);
    let ran = match admission.test_run(frame, 1) {
        Ok(ran) => ran,
        // The kernel's test runs want a whole Ethernet and IP header.
        Err(error) => return assert!(frame.len() < ETHERNET + 40, "{hook:?}: {error} for {frame:02x?}"),
    };
    let after = admission.table().totals(0);
    let (refuses, verdict) = (is_syn_to_us(hook, frame), ran.verdict as i32);
    let refusals: &[i32] = match hook {
        Hook::Tc => &[2],
        // Redirected as a reset, or dropped.
        Hook::TcReset => &[7, 2],
        Hook::Xdp => &[1],
    };
    match refuses {
        true => assert!(refusals.contains(&verdict), "{hook:?} admits {frame:02x?}: {verdict}"),
        false => assert_eq!(verdict, pass, "{hook:?} refuses {frame:02x?}"),
    }
    assert_eq!(
        (after.passed, after.dropped),
        (before.passed, before.dropped + u64::from(refuses)),
        "{hook:?}: counted {frame:02x?}"
    );
}

thread_local! {
    static TRIED: Cell<u32> = const { Cell::new(0) };
    static PROGRAMS: Vec<(Hook, i32, Admission)> =
        HOOKS.into_iter().filter_map(|(hook, pass)| Some((hook, pass, loaded(hook)?))).collect();
}

/// Any bytes as a frame, for every hook. Does nothing where the programs cannot be loaded.
pub fn packet_property(frame: &[u8]) {
    PROGRAMS.with(|programs| {
        if TRIED.replace(TRIED.get() + 1).is_multiple_of(FRAMES) {
            programs.iter().for_each(|(.., admission)| empty(admission));
        }
        for (hook, pass, admission) in programs {
            check(*hook, *pass, admission, frame);
        }
    });
}
