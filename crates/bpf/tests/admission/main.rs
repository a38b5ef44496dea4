//! Admission of SYNs: the packets that the programs look at, the SYNs that the bucket admits, the effect on connections,
//! and the state after the process is killed. `devices` has the devices that get the program.

#[path = "../common/mod.rs"]
mod common;

mod devices;

use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use aya::programs::{SchedClassifier, TcAttachType};
use base::{Clock, Nanos, RealClock};
use bpf::admission::{Admission, Hook, Limits, Queues, Totals};
use bpf::{BpfError, Exempt};
use common::packet::{ACK, FIN, Packet, RST, SYN};
use common::{CLIENT, Networks, SERVER, device, namespace, or_skip};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;
use sys::process::Program;

const HOOKS: [Hook; 2] = [Hook::Tc, Hook::Xdp];
const MINUTE: Nanos = Nanos::from_secs(60);

fn v4() -> SocketAddr {
    "10.1.2.3:80".parse().unwrap()
}

fn v6() -> SocketAddr {
    "[fd00::3]:80".parse().unwrap()
}

/// The program, told of two listeners.
fn admission(hook: Hook) -> Option<Admission> {
    let mut admission = or_skip(Admission::load(hook, &Queues::one()))?;
    admission.add_listener(v4()).unwrap();
    admission.add_listener(v6()).unwrap();
    Some(admission)
}

/// Limits the one queue by its bucket alone.
fn limit(admission: &Admission, interval: Nanos, burst: Nanos) {
    admission.table().limit(0, &Limits { interval, burst, new_are_free: false, until: None });
}

/// Tells whether the packet passes.
fn passes(admission: &Admission, hook: Hook, packet: &[u8]) -> bool {
    match (hook, admission.test_run(packet, 1).unwrap().verdict as i32) {
        (Hook::Tc, -1) | (Hook::Xdp, 2) => true,
        (Hook::Tc, 2) | (Hook::Xdp, 1) => false,
        (hook, verdict) => panic!("{hook:?} has no verdict {verdict}"),
    }
}

#[test]
fn only_syns_to_the_listeners_are_decided_on() {
    let syn = |to| Packet::new(to, SYN);
    let ours = [
        ("IPv4", syn(v4())),
        ("IPv6", syn(v6())),
        ("IPv4 with options", Packet { ip_options: 12, ..syn(v4()) }),
        ("with congestion bits", Packet::new(v4(), SYN | 0xc0)),
        ("not to be fragmented", Packet { fragment: 0x4000, ..syn(v4()) }),
    ];
    let others = [
        ("the server's SYN", Packet::new(v4(), SYN | ACK)),
        ("data", Packet::new(v4(), ACK)),
        ("an end", Packet::new(v6(), FIN | ACK)),
        ("nonsense", Packet::new(v4(), SYN | RST)),
        ("another port", syn("10.1.2.3:81".parse().unwrap())),
        ("another address", syn("10.1.2.4:80".parse().unwrap())),
        ("another IPv6 address", syn("[fd00::4]:80".parse().unwrap())),
        ("a tag", Packet { tags: 1, ..syn(v4()) }),
        ("two tags", Packet { tags: 2, ..syn(v6()) }),
        ("a first fragment", Packet { fragment: 0x2000, ..syn(v4()) }),
        ("a later fragment", Packet { fragment: 0x0010, ..syn(v4()) }),
        ("hop-by-hop options", Packet { next_header: 0, ..syn(v6()) }),
        ("destination options", Packet { next_header: 60, ..syn(v6()) }),
    ];
    for hook in HOOKS {
        let Some(admission) = admission(hook) else { return };
        limit(&admission, MINUTE, Nanos(0));
        assert!(passes(&admission, hook, &syn(v4()).ethernet()), "the first has a token");
        let mut dropped = 0;
        for (name, packet) in &ours {
            assert!(!passes(&admission, hook, &packet.ethernet()), "{hook:?}: {name}");
            dropped += 1;
            assert_eq!(admission.table().totals(0), Totals { passed: 1, dropped }, "{hook:?}: {name}");
        }
        for (name, packet) in &others {
            assert!(passes(&admission, hook, &packet.ethernet()), "{hook:?}: {name}");
            assert_eq!(admission.table().totals(0), Totals { passed: 1, dropped }, "{hook:?}: {name}");
        }
    }
}

#[test]
fn packets_cut_anywhere_are_passed() {
    for hook in HOOKS {
        let Some(admission) = admission(hook) else { return };
        limit(&admission, MINUTE, Nanos(0));
        let options = Packet { ip_options: 40, ..Packet::new(v4(), SYN) };
        // The kernel's test runs take nothing shorter than an Ethernet header, and of IP its shortest header.
        for (shortest, packet) in [(34, Packet::new(v4(), SYN)), (54, Packet::new(v6(), SYN)), (34, options)]
        {
            let packet = packet.ethernet();
            for length in shortest..packet.len() - 20 + 14 {
                assert!(passes(&admission, hook, &packet[..length]), "{hook:?}: {length} bytes");
            }
        }
        assert_eq!(admission.table().totals(0), Totals::default());
    }
}

#[test]
fn a_bucket_admits_its_burst_and_then_its_rate() {
    for hook in HOOKS {
        let Some(admission) = admission(hook) else { return };
        // Each SYN is another client's, so that none is refused for its past.
        let mut clients = (0..=u8::MAX).flat_map(|last| syns_from([10, 9, 8, last].into(), 1..3));
        let mut passed =
            |count| clients.by_ref().take(count).filter(|syn| passes(&admission, hook, syn)).count();
        assert_eq!(passed(100), 100, "admits all until there is a limit");
        limit(&admission, MINUTE, Nanos(MINUTE.0 * 4));
        assert_eq!(passed(100), 5, "one, and four ahead of their time");
        limit(&admission, MINUTE, Nanos(MINUTE.0 * 6));
        assert_eq!(passed(100), 2, "two more may be ahead now");
        admission.table().admit_all(0);
        assert_eq!(passed(100), 100);
        // The promises of a slow rate do not bind a fast one.
        limit(&admission, Nanos(1), Nanos(0));
        assert!(passed(100) >= 98);
        assert_eq!(admission.table().totals(0).passed + admission.table().totals(0).dropped, 500);
    }
}

/// SYNs of one client from this number of ports, the first of them 1024.
fn syns(count: u16) -> impl Iterator<Item = Vec<u8>> {
    syns_from([10, 9, 8, 7].into(), 1024..1024 + count)
}

fn syns_from(client: Ipv4Addr, ports: std::ops::Range<u16>) -> impl Iterator<Item = Vec<u8>> {
    ports.map(move |port| Packet { from: (client, port).into(), ..Packet::new(v4(), SYN) }.ethernet())
}

#[test]
fn refused_syn_gets_a_token_only_after_new_ones() {
    for hook in HOOKS {
        let Some(admission) = admission(hook) else { return };
        let passed = |range| {
            syns_from([10, 9, 8, 7].into(), range).filter(|syn| passes(&admission, hook, syn)).count()
        };
        limit(&admission, MINUTE, Nanos(0));
        assert_eq!(passed(1..11), 1, "nine are refused");
        limit(&admission, MINUTE, MINUTE * 8);
        assert_eq!(passed(2..11), 2, "the bucket is one minute ahead, and they may be two");
        assert_eq!(passed(11..100), 6, "new ones may be eight");
        assert_eq!(passed(2..100), 0);
    }
}

#[test]
fn refused_syns_keep_to_the_rate_beside_free_ones() {
    for hook in HOOKS {
        let Some(admission) = admission(hook) else { return };
        let passed = |range| {
            syns_from([10, 9, 8, 7].into(), range).filter(|syn| passes(&admission, hook, syn)).count()
        };
        limit(&admission, MINUTE, Nanos(0));
        assert_eq!(passed(1..11), 1);
        admission
            .table()
            .limit(0, &Limits { interval: MINUTE, burst: MINUTE * 4, new_are_free: true, until: None });
        assert_eq!(passed(2..11), 1);
        assert_eq!(passed(1000..2000), 1000, "they take tokens while there are some");
        assert_eq!(passed(3..11), 0);
        limit(&admission, MINUTE, MINUTE * 4);
        assert_eq!(passed(2000..2010), 0, "and have not run further ahead than the burst");
    }
}

#[test]
fn greedy_client_leaves_tokens_to_others() {
    for hook in HOOKS {
        let two = Queues { count: 2, cpus: Vec::new(), salt: 5 };
        let Some(mut admission) = or_skip(Admission::load(hook, &two)) else { return };
        admission.add_listener(v4()).unwrap();
        let send = |last: u8, ports| {
            for syn in syns_from([10, 9, 8, last].into(), ports) {
                passes(&admission, hook, &syn);
            }
        };
        // The first client uses up its allowance, which holds for all queues.
        admission
            .table()
            .limit(0, &Limits { interval: MINUTE * 10, burst: Nanos(0), new_are_free: false, until: None });
        send(1, 1..200);
        let before = admission.table().totals(1).passed;
        admission
            .table()
            .limit(1, &Limits { interval: MINUTE, burst: MINUTE * 4, new_are_free: false, until: None });
        let passed = || admission.table().totals(1).passed - before;
        // Other ports than before, as the first ones are remembered.
        send(1, 1000..2000);
        assert_eq!(passed(), 3, "{hook:?}: as far ahead as half the burst");
        send(2, 1..200);
        assert_eq!(passed(), 5, "{hook:?}: the rest is another client's");
    }
}

#[test]
fn slow_rate_history_does_not_bind_at_a_fast_rate() {
    for hook in HOOKS {
        let Some(admission) = admission(hook) else { return };
        let passed = |range| {
            syns_from([10, 9, 8, 7].into(), range).filter(|syn| passes(&admission, hook, syn)).count()
        };
        // The client has taken its part of eight hours.
        limit(&admission, MINUTE * 60, Nanos(0));
        assert_eq!(passed(1..2), 1);
        limit(&admission, Nanos(1), MINUTE * 4);
        assert_eq!(passed(2..11), 8, "{hook:?}: only the first is early");
    }
}

#[test]
fn refused_syns_are_remembered_with_few_mix_ups() {
    const REFUSED: u16 = 20_000;
    for hook in HOOKS {
        let Some(admission) = admission(hook) else { return };
        limit(&admission, MINUTE, Nanos(0));
        let began = RealClock::new();
        let from = began.now();
        assert_eq!(syns(REFUSED).filter(|syn| passes(&admission, hook, syn)).count(), 1);
        admission
            .table()
            .limit(0, &Limits { interval: MINUTE, burst: Nanos(0), new_are_free: true, until: None });
        let again = syns(REFUSED).filter(|syn| passes(&admission, hook, syn)).count();
        let new =
            syns_from([10, 9, 8, 6].into(), 0..REFUSED).filter(|syn| !passes(&admission, hook, syn)).count();
        if began.now() - from > Nanos::from_secs(4) {
            return println!("skipped: the packets took longer than SYNs are remembered");
        }
        assert_eq!(again, 1, "{hook:?}: the one that passed is new");
        println!("{hook:?}: {new} of {REFUSED} new SYNs taken for refused ones");
        // 20,000 of 2^18 filters have three of 48 bits: one in some ten thousand new SYNs meets all of its own.
        assert!(new <= 10, "{hook:?}");
    }
}

#[test]
fn each_queue_has_limits_and_counts_of_its_own() {
    const CLIENTS: u64 = 300;
    for hook in HOOKS {
        let evenly = Queues { count: 3, cpus: Vec::new(), salt: 5 };
        let Some(mut admission) = or_skip(Admission::load(hook, &evenly)) else { return };
        admission.add_listener(v4()).unwrap();
        let limits = Limits { interval: MINUTE, burst: Nanos(0), new_are_free: false, until: None };
        admission.table().limit(1, &limits);
        let passed = syns(CLIENTS as u16).filter(|syn| passes(&admission, hook, syn)).count() as u64;
        let [first, second, third] = [0, 1, 2].map(|queue| admission.table().totals(queue));
        assert_eq!((first.dropped, second.passed, third.dropped), (0, 1, 0), "one token");
        assert_eq!(first.passed + 1 + third.passed, passed);
        assert!([first.passed, second.dropped, third.passed].iter().all(|count| *count > CLIENTS / 6));
        // The first two queues have no processor.
        let cpus: Vec<usize> = [vec![usize::MAX; 2], sys::cpu::allowed().unwrap()].concat();
        let by_cpu = Queues { count: cpus.len(), cpus, salt: 5 };
        let Some(mut admission) = or_skip(Admission::load(hook, &by_cpu)) else { return };
        admission.add_listener(v4()).unwrap();
        assert!(syns(20).all(|syn| passes(&admission, hook, &syn)));
        let passed = |queue| admission.table().totals(queue).passed;
        assert_eq!((passed(0) + passed(1), (2..by_cpu.count).map(passed).sum::<u64>()), (0, 20));
    }
}

#[test]
fn a_test_run_tells_the_cost_of_a_refused_syn() {
    for hook in HOOKS {
        let Some(admission) = admission(hook) else { return };
        limit(&admission, MINUTE, Nanos(0));
        let refused = admission.test_run(&Packet::new(v4(), SYN).ethernet(), 100_000).unwrap();
        assert_eq!(admission.table().totals(0), Totals { passed: 1, dropped: 99_999 });
        println!("{hook:?}: {} ns a refused SYN", refused.duration.0);
    }
}

/// Connects in the namespace, and waits until the handshake is complete or the SYN has been dropped.
fn connects(admission: &Admission, namespace: &NetworkNamespace, to: SocketAddr) -> bool {
    let before = admission.table().totals(0).dropped;
    let socket: OwnedFd = namespace
        .enter(|| {
            let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
        })
        .unwrap()
        .unwrap();
    match connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(errno) => panic!("connect to {to}: {}", io::Error::from(errno)),
    }
    while admission.table().totals(0).dropped == before {
        let mut wanted = [PollFd::new(&socket, PollFlags::OUT)];
        let tick = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        rustix::io::retry_on_intr(|| poll(&mut wanted, Some(&tick))).unwrap();
        if !wanted[0].revents().is_empty() {
            sockopt::socket_error(&socket).unwrap().unwrap();
            return true;
        }
    }
    false
}

/// Sets a limit, and counts the connections that each namespace gets.
fn refuses_and_admits(admission: &Admission, client: &NetworkNamespace, to: SocketAddr, what: &str) {
    let before = admission.table().totals(0);
    assert!(connects(admission, client, to), "{what}: nothing is refused before there is a limit");
    assert_eq!(admission.table().totals(0).passed, before.passed + 1, "{what}");
    limit(admission, MINUTE, Nanos(0));
    // Takes the token, unless it has been taken over another device.
    connects(admission, client, to);
    assert!(!connects(admission, client, to), "{what}: there is no token");
    assert!(admission.table().totals(0).dropped > before.dropped, "{what}");
    admission.table().admit_all(0);
    assert!(connects(admission, client, to), "{what}");
}

#[test]
fn connections_that_exist_are_left_alone() {
    let Some(networks) = Networks::create() else { return };
    let listener = networks.server.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    for hook in HOOKS {
        let made = networks
            .server
            .enter(|| Admission::of_listeners(hook, &Queues::one(), &Exempt::NONE, &[listener.as_fd()]))
            .unwrap();
        let Some((admission, _)) = or_skip(made) else { return };
        let mut client = networks.client.enter(|| TcpStream::connect(address)).unwrap().unwrap();
        let (mut server, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), CLIENT);
        limit(&admission, MINUTE, Nanos(0));
        use std::io::{Read, Write};
        client.write_all(b"request").unwrap();
        let mut request = [0; 7];
        server.read_exact(&mut request).unwrap();
        server.write_all(b"reply").unwrap();
        drop(server);
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, "reply");
    }
}

/// Held while a process starts: until it executes its program it has the links of this one. So a link that is to be gone
/// at once needs this, too.
static STARTS: Mutex<()> = Mutex::new(());

#[test]
fn foreign_program_stays_on_tc_and_is_named_on_xdp() {
    let Some(here) = namespace() else { return };
    let lo = device(&here, "lo");
    let (Some(mut first), Some(mut second)) = (admission(Hook::Tc), admission(Hook::Tc)) else { return };
    for admission in [&mut first, &mut second] {
        or_skip(here.enter(|| admission.attach(&lo)).unwrap());
    }
    assert_eq!(tcx_programs(&here), 2);

    let _nobody_starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(mut first), Some(mut second)) = (admission(Hook::Xdp), admission(Hook::Xdp)) else { return };
    or_skip(here.enter(|| first.attach(&lo)).unwrap());
    let error = here.enter(|| second.attach(&lo)).unwrap().unwrap_err();
    assert!(matches!(&error, BpfError::Occupied { device } if device == "lo"), "{error}");
    drop(first);
    here.enter(|| second.attach(&lo)).unwrap().unwrap();
}

fn tcx_programs(namespace: &NetworkNamespace) -> usize {
    namespace.enter(|| SchedClassifier::query_tcx("lo", TcAttachType::Ingress)).unwrap().unwrap().1.len()
}

/// The hook, in the environment of a child that the test kills.
const HOLD: &str = "INRUSH_TEST_HOLD";
/// The child's message when its program is attached.
const ATTACHED: &str = "attached";

#[test]
fn killing_the_process_detaches_the_program() {
    if let Ok(hook) = std::env::var(HOLD) {
        return hold(if hook == "tc" { Hook::Tc } else { Hook::Xdp });
    }
    let Some(here) = namespace() else { return };
    let Some(_) = admission(Hook::Tc) else { return };
    for hook in ["tc", "xdp"] {
        let program = Program::new(sys::process::this_program().unwrap())
            .arguments(["--exact", "killing_the_process_detaches_the_program", "--nocapture"])
            .environment(HOLD, hook)
            .in_namespace(Some(here.as_fd()));
        let starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = program.start().unwrap();
        drop(starts);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with(ATTACHED)), "{hook}: it ended by itself");
        let attached = || match hook {
            "tc" => tcx_programs(&here) == 1,
            _ => {
                let mut other = admission(Hook::Xdp).unwrap();
                here.enter(|| other.attach(&device(&here, "lo"))).unwrap().is_err()
            }
        };
        assert!(attached(), "{hook}");
        child.kill().unwrap();
        while child.wait(Nanos::SECOND).unwrap().is_none() {}
        assert!(!attached(), "{hook}: the program outlived its process");
    }
}

/// Attaches the program and waits to be killed.
fn hold(hook: Hook) {
    let mut admission = Admission::load(hook, &Queues::one()).unwrap();
    let links = Route::open().unwrap().links().unwrap();
    admission.attach(links.iter().find(|link| link.name == "lo").unwrap()).unwrap();
    println!("{ATTACHED}");
    loop {
        std::thread::park();
    }
}
