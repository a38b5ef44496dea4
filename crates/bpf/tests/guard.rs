//! The guard at a cgroup: the requests and answers that it counts on real connections, and the SYNs that it refuses.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::Nanos;
use bpf::Exempt;
use bpf::admission::{Limits, Totals};
use bpf::guard::{Counts, Guard};
use common::packet::{ACK, FIN, PSH, Packet, RST, SYN, checksum};
use common::{CLIENT, SERVER, namespace, or_skip};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, connect, ipproto, sendto, socket_with};
use sys::network::netlink::{Route, SocketDiagnostics};
use sys::network::tun::Tun;

/// `PLACES` of `programs/guard.c`.
const PLACES: u64 = 1 << 16;

/// No answer of a test takes longer.
const PROMPT: Nanos = Nanos::from_secs(1_000_000);

/// The programs see the whole cgroup, but only one port each. One test at a time keeps their SYNs apart.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder and the number of this process's cgroup.
fn own_cgroup() -> Option<(PathBuf, u64)> {
    let folder = common::own_cgroup()?;
    let number = rustix::fs::stat(&folder).unwrap().st_ino;
    Some((folder, number))
}

/// A listener and its guard.
fn guarded(exempt: &Exempt) -> Option<(TcpListener, SocketAddr, Guard)> {
    let (folder, number) = own_cgroup()?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut guard = or_skip(Guard::load(address, PROMPT, 7, exempt))?;
    or_skip(guard.attach(number, std::fs::File::open(folder).unwrap().as_fd()))?;
    Some((listener, address, guard))
}

/// Sends a request and waits until the server has it.
fn ask(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"request").unwrap();
    server.read_exact(&mut [0; 7]).unwrap();
}

/// Sends an answer of two segments and waits until the client has it.
fn answer(client: &mut TcpStream, server: &mut TcpStream) {
    for part in [b"answer", b"'s end"] {
        server.write_all(part).unwrap();
        client.read_exact(&mut [0; 6]).unwrap();
    }
}

fn pair(listener: &TcpListener, address: SocketAddr) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(address).unwrap();
    (client, listener.accept().unwrap().0)
}

fn asked_answered_ended(counts: Counts) -> [u64; 3] {
    [counts.asked, counts.answered, counts.ended]
}

#[test]
fn each_request_and_answer_counts_once() {
    let _alone = alone();
    let Some((listener, address, guard)) = guarded(&Exempt::NONE) else { return };
    let (mut client, mut server) = pair(&listener, address);
    for round in 1..=3 {
        ask(&mut client, &mut server);
        // More of the same request.
        ask(&mut client, &mut server);
        assert_eq!(asked_answered_ended(guard.memory().counts()), [round, round - 1, 0]);
        answer(&mut client, &mut server);
        assert_eq!(asked_answered_ended(guard.memory().counts()), [round, round, 0]);
    }
    let counts = guard.memory().counts();
    assert_eq!((counts.first, counts.ahead, counts.waiting()), (1, 0, 0));
    let times = guard.memory().times();
    assert!(times.quantile(0.5).unwrap() > Nanos(0) && times.quantile(1.0).unwrap().0 >= counts.time_ns / 3);
}

#[test]
fn late_answers_say_nothing_about_a_queue() {
    let _alone = alone();
    let Some((folder, number)) = own_cgroup() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let Some(mut guard) = or_skip(Guard::load(address, Nanos(0), 7, &Exempt::NONE)) else { return };
    or_skip(guard.attach(number, std::fs::File::open(folder).unwrap().as_fd())).unwrap();
    let (mut client, mut server) = pair(&listener, address);
    ask(&mut client, &mut server);
    answer(&mut client, &mut server);
    let counts = guard.memory().counts();
    assert_eq!((counts.answered, counts.prompt, counts.time_ns), (1, 0, 0));
    assert!(guard.memory().times().quantile(0.5).is_some(), "its time is known all the same");
}

#[test]
fn silent_connections_are_no_requests() {
    let _alone = alone();
    let Some((listener, address, guard)) = guarded(&Exempt::NONE) else { return };
    let pairs: Vec<_> = (0..5).map(|_| pair(&listener, address)).collect();
    drop(pairs);
    assert_eq!(guard.memory().counts(), Counts::default());
}

#[test]
fn requests_end_with_their_connection() {
    let _alone = alone();
    let Some((listener, address, guard)) = guarded(&Exempt::NONE) else { return };
    let (mut client, mut server) = pair(&listener, address);
    ask(&mut client, &mut server);
    // The server hangs up.
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert_eq!(asked_answered_ended(guard.memory().counts()), [1, 0, 1]);
    let (mut client, mut server) = pair(&listener, address);
    ask(&mut client, &mut server);
    // The client resets: a linger of 0.
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    assert!(server.read(&mut [0]).is_err());
    assert_eq!(asked_answered_ended(guard.memory().counts()), [2, 0, 2]);
}

#[test]
fn unread_request_ends_with_the_servers_reset() {
    let _alone = alone();
    let Some((listener, address, guard)) = guarded(&Exempt::NONE) else { return };
    let (mut client, server) = pair(&listener, address);
    client.write_all(b"request").unwrap();
    server.peek(&mut [0]).unwrap();
    assert_eq!(asked_answered_ended(guard.memory().counts()), [1, 0, 0]);
    // The kernel resets a connection that is closed with unread data.
    drop(server);
    assert!(client.read(&mut [0]).is_err());
    assert_eq!(asked_answered_ended(guard.memory().counts()), [1, 0, 1]);
}

#[test]
fn data_after_the_servers_end_is_no_request() {
    let _alone = alone();
    let Some((listener, address, guard)) = guarded(&Exempt::NONE) else { return };
    let (mut client, mut server) = pair(&listener, address);
    ask(&mut client, &mut server);
    answer(&mut client, &mut server);
    server.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    ask(&mut client, &mut server);
    assert_eq!(asked_answered_ended(guard.memory().counts()), [1, 1, 0]);
}

/// A connection whose place in the programs' memory is that of an earlier one.
fn pair_in_place_of(
    earlier: &TcpStream,
    listener: &TcpListener,
    address: SocketAddr,
) -> (TcpStream, TcpStream) {
    use rustix::net::sockopt::socket_cookie;
    let behind = |cookie: u64| socket_cookie(earlier).unwrap().wrapping_sub(cookie) % PLACES;
    // Cookies come in sequence on a processor, but other sockets take some too.
    loop {
        let unused = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        if (1..8).contains(&behind(socket_cookie(unused).unwrap())) {
            let pair = pair(listener, address);
            if behind(socket_cookie(&pair.1).unwrap()) == 0 {
                return pair;
            }
        }
    }
}

#[test]
fn waiting_request_keeps_its_place() {
    let _alone = alone();
    let Some((listener, address, guard)) = guarded(&Exempt::NONE) else { return };
    let (mut client, mut server) = pair(&listener, address);
    let (mut late_client, mut late_server) = pair_in_place_of(&server, &listener, address);
    ask(&mut client, &mut server);
    ask(&mut late_client, &mut late_server);
    answer(&mut late_client, &mut late_server);
    assert_eq!(asked_answered_ended(guard.memory().counts()), [1, 0, 0]);
    answer(&mut client, &mut server);
    ask(&mut late_client, &mut late_server);
    assert_eq!(asked_answered_ended(guard.memory().counts()), [2, 1, 0]);
    // The first connection's end is not the end of the other's request.
    drop((client, server));
    answer(&mut late_client, &mut late_server);
    assert_eq!(asked_answered_ended(guard.memory().counts()), [2, 2, 0]);
}

#[test]
fn overtaken_requests_are_told_from_a_queue() {
    let _alone = alone();
    let Some((listener, address, guard)) = guarded(&Exempt::NONE) else { return };
    let mut pairs: Vec<_> = (0..4).map(|_| pair(&listener, address)).collect();
    for (client, server) in &mut pairs {
        ask(client, server);
    }
    for (client, server) in &mut pairs {
        answer(client, server);
    }
    let queue = guard.memory().counts();
    assert_eq!((queue.ahead, queue.overtaking), (6, 6), "answered in order: each waited for all before it");
    // The first one waits for something else, and the others pass it.
    for (client, server) in &mut pairs {
        ask(client, server);
    }
    for (client, server) in &mut pairs[1..] {
        answer(client, server);
    }
    let passed = guard.memory().counts();
    assert_eq!((passed.ahead - queue.ahead, passed.overtaking - queue.overtaking), (6, 3));
}

/// Begins to connect. Returns true if the SYN passed.
fn passes(guard: &Guard, address: SocketAddr) -> bool {
    let before = guard.memory().table().totals(0);
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    let _ = connect(&socket, &address);
    let mut after = guard.memory().table().totals(0);
    // On a busy machine the SYN meets the program in a kernel thread, after that call has returned.
    while after.passed + after.dropped == before.passed + before.dropped {
        sys::readiness::poll::wait(&mut [], Some(Nanos::from_millis(1))).unwrap();
        after = guard.memory().table().totals(0);
    }
    assert_eq!(after.passed + after.dropped, before.passed + before.dropped + 1);
    after.passed > before.passed
}

/// Limits that have one token in a minute.
fn one_token() -> Limits {
    Limits { interval: Nanos::from_secs(60), burst: Nanos(0), new_are_free: false, until: None }
}

#[test]
fn refused_syns_end_with_the_guard() {
    let _alone = alone();
    let Some((listener, address, guard)) = guarded(&Exempt::NONE) else { return };
    assert!((0..3).all(|_| passes(&guard, address)), "without limits");
    guard.memory().table().limit(0, &one_token());
    assert!(passes(&guard, address), "the one token");
    assert!((0..3).all(|_| !passes(&guard, address)));
    drop(guard);
    TcpStream::connect_timeout(&address, Duration::from_secs(10)).unwrap();
    drop(listener);
}

#[test]
fn exempt_networks_are_never_refused() {
    let _alone = alone();
    let exempt = Exempt::new(vec!["127.0.0.0/8".parse().unwrap()]).unwrap();
    let Some((_listener, address, guard)) = guarded(&exempt.with_steady_sources(true)) else { return };
    guard.memory().table().limit(0, &one_token());
    assert!((0..5).all(|_| passes(&guard, address)));
    let elsewhere =
        Exempt::new(vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()]).unwrap();
    let Some((_listener, address, guard)) = guarded(&elsewhere) else { return };
    guard.memory().table().limit(0, &one_token());
    assert!(passes(&guard, address) && !passes(&guard, address));
}

#[test]
fn listener_names_its_cgroup() {
    let Some((_, number)) = own_cgroup() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut diagnostics = SocketDiagnostics::open().unwrap();
    let found = diagnostics.listeners(listener.local_addr().unwrap().port()).unwrap();
    assert_eq!(found[0].cgroup, number);
}

/// The packet from the IP header on, with valid checksums, and data behind its TCP header.
fn valid(packet: &Packet, data: &[u8]) -> Vec<u8> {
    let header = 20 + packet.ip_options;
    let mut bytes = [&packet.ip(), data].concat();
    let length = u16::try_from(bytes.len()).unwrap();
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes[10..12].fill(0);
    let sum = checksum(&bytes[..header]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    let tcp_length = (length - header as u16).to_be_bytes();
    let pseudo = [&bytes[12..20], &[0, 6], &tcp_length, &bytes[header..]].concat();
    let sum = checksum(&pseudo);
    bytes[header + 16..header + 18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn hostile_packets_are_no_requests_and_no_way_in() {
    let _alone = alone();
    let (Some((folder, number)), Some(here)) = (own_cgroup(), namespace()) else { return };
    let tun = here.enter(|| {
        let tun = Tun::create("guarded")?;
        let mut route = Route::open()?;
        let link = route.link_index("guarded")?;
        route.add_address(link, SERVER, 24)?;
        route.set_up(link)?;
        Ok::<_, std::io::Error>(tun)
    });
    let tun = match tun.unwrap() {
        Ok(tun) => tun,
        Err(error) => return println!("skipped: no TUN device here: {error}"),
    };
    let listener = here.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let Some(mut guard) = or_skip(Guard::load(to, PROMPT, 7, &Exempt::NONE)) else { return };
    or_skip(guard.attach(number, std::fs::File::open(folder).unwrap().as_fd())).unwrap();
    let packet = |flags| Packet { from: (CLIENT, 6543).into(), ..Packet::new(to, flags) };
    let syn = packet(SYN);
    let with_options = Packet { ip_options: 40, ..syn.clone() };
    let mut bad_offset = valid(&syn, &[]);
    bad_offset[32] = 0xf0;
    let table = [
        ("a SYN", valid(&syn, &[]), true),
        ("a SYN with data", valid(&syn, b"GET / HTTP/1.1\r\n"), true),
        ("SYN and PSH", valid(&packet(SYN | PSH), &[]), true),
        ("a SYN behind IP options", valid(&with_options, &[]), true),
        ("SYN and FIN", valid(&packet(SYN | FIN), &[]), false),
        ("an ACK with data", valid(&packet(ACK), b"GET"), false),
        ("a reset", valid(&packet(RST), &[]), false),
        ("no flags", valid(&packet(0), b"GET"), false),
        ("a data offset past its end", bad_offset, false),
        ("a first fragment", valid(&Packet { fragment: 0x2000, ..syn.clone() }, &[0; 8]), false),
        ("another port", valid(&Packet { to: (SERVER, 1).into(), ..syn.clone() }, &[]), false),
    ];
    guard.memory().table().limit(0, &one_token());
    tun.write(&valid(&Packet { from: (CLIENT, 1).into(), ..syn.clone() }, &[])).unwrap();
    assert_eq!(guard.memory().table().totals(0).passed, 1, "the one token");
    let mut dropped = 0;
    for (name, packet, refused) in table {
        tun.write(&packet).unwrap();
        dropped += u64::from(refused);
        assert_eq!(guard.memory().table().totals(0), Totals { passed: 1, dropped }, "{name}");
    }
    let whole = valid(&syn, &[]);
    for length in 20..whole.len() {
        tun.write(&whole[..length]).unwrap();
        assert_eq!(guard.memory().table().totals(0), Totals { passed: 1, dropped }, "{length} bytes");
    }
    assert_eq!(guard.memory().counts(), Counts::default(), "none of them is a request");
}

#[test]
fn packets_of_other_sockets_are_no_answers() {
    let _alone = alone();
    let Some((listener, address, guard)) = guarded(&Exempt::NONE) else { return };
    let (mut client, mut server) = pair(&listener, address);
    ask(&mut client, &mut server);
    let waiting = guard.memory().counts();
    assert_eq!(asked_answered_ended(waiting), [1, 0, 0]);

    // A datagram leaves the server's port, and one comes to it.
    let [ours, theirs] = [address, ([127, 0, 0, 1], 0).into()].map(|at| UdpSocket::bind(at).unwrap());
    ours.send_to(b"answer", theirs.local_addr().unwrap()).unwrap();
    theirs.send_to(b"request", address).unwrap();
    ours.recv(&mut [0; 16]).unwrap();

    // A segment with the server's port that no TCP has sent.
    let raw =
        socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::TCP)).unwrap();
    let peer = client.local_addr().unwrap();
    let forged = Packet { from: address, ..Packet::new(peer, ACK | PSH) };
    let segment = valid(&forged, b"answer")[20..].to_vec();
    sendto(&raw, &segment, SendFlags::empty(), &peer).unwrap();

    assert_eq!(guard.memory().counts(), waiting);
    answer(&mut client, &mut server);
    assert_eq!(asked_answered_ended(guard.memory().counts()), [1, 1, 0]);
}
