//! The price of a refused SYN, silent against reset: `--refuse drop` and `--refuse rst` in pairs, over a veth pair.
//!
//! On a veth pair the sender's processor runs the receiver's part. So the time of a non-blocking connect(2) has the SYN's
//! whole way: out, through the program, and back to the client if there is a reset. The difference of a pair is the
//! reset, with the client's part of it: an upper bound of the server's price.
//!
//! By itself this is a smoke run of few rounds. `INRUSH_ROUNDS=200` before `cargo test --release` measures.

mod common;

use std::net::SocketAddr;

use base::{Clock, Nanos, RealClock};
use bpf::Exempt;
use bpf::admission::{Admission, Hook, Limits};
use bpf::device::Bound;
use common::{Networks, SERVER, or_skip};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

/// Connects of a block, of one kind.
const CONNECTS: u32 = 500;
/// Pairs of blocks without `INRUSH_ROUNDS`.
const ROUNDS: usize = 3;

/// The server's port, at which nobody listens: the program decides before TCP looks for a listener.
const PORT: u16 = 80;

/// A program at the server's device with an empty bucket.
fn refusing(hook: Hook, networks: &Networks) -> Option<Admission> {
    let bound = Bound { address: SERVER.into(), port: PORT, dual: false };
    let load = || Admission::of_addresses(hook, 0, &Exempt::NONE, vec![bound]);
    let (admission, _) = or_skip(networks.server.enter(load).unwrap())?;
    let limits =
        Limits { interval: Nanos::from_secs(3600), burst: Nanos(0), new_are_free: false, until: None };
    admission.table().limit(0, &limits);
    Some(admission)
}

/// Time of a refused connect, in ns. The answer must be that of the kind.
fn block(clock: &RealClock, admission: &Admission, answer: Errno) -> f64 {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let before = admission.table().totals(0).dropped;
    let began = clock.now();
    for _ in 0..CONNECTS {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        let _ = connect(&socket, &SocketAddr::from((SERVER, PORT)));
    }
    let time = (clock.now() - began).0 as f64 / f64::from(CONNECTS);
    let refused = admission.table().totals(0).dropped - before;
    assert!(refused >= u64::from(CONNECTS), "{answer}: {refused} refused");
    time
}

/// What a client sees of a refusal.
fn seen() -> Errno {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
    let first = connect(&socket, &SocketAddr::from((SERVER, PORT))).unwrap_err();
    rustix::net::sockopt::socket_error(&socket).unwrap().err().unwrap_or(first)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn pairs_tell_the_price_of_a_reset() {
    let Some(networks) = Networks::create() else { return };
    let rounds = std::env::var("INRUSH_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let clock = RealClock::new();
    let kinds = [(Hook::Tc, Errno::INPROGRESS), (Hook::TcReset, Errno::CONNREFUSED)];
    let mut times = [const { Vec::new() }; 2];
    for round in 0..rounds {
        // Each kind comes first in half of the rounds.
        for kind in [round % 2, 1 - round % 2] {
            let (hook, answer) = kinds[kind];
            let Some(admission) = refusing(hook, &networks) else { return };
            let time = networks.client.enter(|| {
                seen();
                assert_eq!(seen(), answer, "{hook:?}");
                block(&clock, &admission, answer)
            });
            times[kind].push(time.unwrap());
        }
    }
    let mut more: Vec<f64> = times[1].iter().zip(&times[0]).map(|(reset, silent)| reset - silent).collect();
    let [silent, reset] = times.each_mut().map(|times| median(times));
    let middle = median(&mut more);
    let (least, most) = (more[0], more[more.len() - 1]);
    println!("{rounds} pairs of {CONNECTS} connects: silent {silent:.0} ns, reset {reset:.0} ns");
    println!("a reset costs {middle:.0} ns more, from {least:.0} to {most:.0}");
}
