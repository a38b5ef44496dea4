//! Sinks on real sockets.

use std::io::{Read, Write};
use std::net::TcpStream;

use base::PerSecond;
use rustix::thread::{Gid, Uid};

use super::*;

/// The listeners of one address, in the order of their queues.
fn listeners(address: &str, queues: usize) -> (SocketAddr, Vec<OwnedFd>) {
    let mut address: SocketAddr = address.parse().unwrap();
    let mut listeners = Vec::new();
    for _ in 0..queues {
        let listener = stream(address).unwrap();
        sockopt::set_socket_reuseaddr(&listener, true).unwrap();
        sockopt::set_socket_reuseport(&listener, true).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 256).unwrap();
        address = rustix::net::getsockname(&listener).unwrap().try_into().unwrap();
        listeners.push(listener);
    }
    (address, listeners)
}

fn join(address: SocketAddr, listeners: &[OwnedFd]) -> Result<Sinks, SinkError> {
    Sinks::join(
        &[(address, listeners[0].as_fd())],
        listeners.len(),
        listeners.len(),
        Routing::Even,
        7,
        &Exempt::NONE,
        Vec::new(),
    )
}

fn share(share: f64) -> Admission {
    Admission { rate: PerSecond(1000.0), burst: 10, new_are_free: share >= 1.0, share }
}

/// Begins a connection to a port of this machine.
fn begin(address: SocketAddr) -> OwnedFd {
    let client = stream(address).unwrap();
    match rustix::net::connect(&client, &address) {
        Ok(()) => {}
        Err(errno) => assert_eq!(classify(&errno.into()), Failure::WouldBlock),
    }
    client
}

/// Waits until a condition holds, which the kernel will soon make true.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        sys::readiness::poll::wait(&mut [], Some(Nanos::MILLISECOND)).unwrap();
    }
    panic!("never: {what}");
}

fn connected(client: &OwnedFd) -> bool {
    let mut set = [PollFd::new(client.as_raw_fd(), bits::OUT)];
    sys::readiness::poll::wait(&mut set, Some(Nanos::ZERO)).unwrap() == 1
        && set[0].reported() & bits::ERR == 0
}

fn depth(listener: &OwnedFd) -> u32 {
    accept_queue(listener.as_fd()).unwrap().depth
}

fn loopback(port: u16, v6: bool) -> SocketAddr {
    let ip = if v6 { IpAddr::from(Ipv6Addr::LOCALHOST) } else { Ipv4Addr::LOCALHOST.into() };
    SocketAddr::new(ip, port)
}

/// Refuses every client and then none at `address`, for clients of another address family if `client_v6`
/// differs.
fn refuses_and_admits(address: &str, client_v6: bool) {
    let (address, listeners) = listeners(address, 1);
    let sinks = join(address, &listeners).unwrap();
    let mut hook = sinks.hook(0);
    assert_eq!((hook.refused().unwrap(), depth(&listeners[0])), (0, 0), "the filler is nobody's connection");
    let target = loopback(address.port(), client_v6);
    let first = begin(target);
    eventually("connected at a share of 1", || connected(&first));

    hook.admit(&share(0.0)).unwrap();
    let refused = [begin(target), begin(target), begin(target)];
    eventually("3 refused", || hook.refused().unwrap() >= 3);
    assert_eq!(depth(&listeners[0]), 1);
    assert!(!refused.iter().any(connected));

    // A SYN that comes again after a second is refused and counted again, until then.
    hook.admit(&Admission::ALL).unwrap();
    let last = begin(target);
    eventually("connected at a share of 1 again", || connected(&last));
    // The kernel retransmits SYNs after a second.
    eventually("the refused ones come back and are let in", || refused.iter().all(connected));
    eventually("all in the queue", || depth(&listeners[0]) == 5);
    let told = hook.refused().unwrap();
    let more = begin(target);
    eventually("one more", || connected(&more));
    assert_eq!(hook.refused().unwrap(), told, "a share of 1 refuses nobody");
}

#[test]
fn extra_listeners_get_no_connection() {
    let (address, listeners) = listeners("127.0.0.1:0", 3);
    let first = listeners[0].as_fd();
    let sinks =
        Sinks::join(&[(address, first)], 1, listeners.len(), Routing::Even, 7, &Exempt::NONE, Vec::new())
            .unwrap();
    let clients: Vec<OwnedFd> = (0..20).map(|_| begin(address)).collect();
    eventually("connected", || clients.iter().all(connected));
    assert_eq!(listeners.iter().map(depth).collect::<Vec<_>>(), [20, 0, 0]);
    let mut hook = sinks.hook(0);
    hook.admit(&share(0.0)).unwrap();
    let _refused = begin(address);
    eventually("refused", || hook.refused().unwrap() == 1);
    assert_eq!(listeners.iter().map(depth).collect::<Vec<_>>(), [20, 0, 0]);
}

fn has_ipv6() -> bool {
    let there = std::net::TcpListener::bind("[::1]:0").is_ok();
    if !there {
        println!("skipped: there is no IPv6 loopback address here");
    }
    there
}

#[test]
fn share_zero_refuses_all_and_share_one_admits_all() {
    refuses_and_admits("127.0.0.1:0", false);
}

#[test]
fn a_wildcard_address_has_its_sink_too() {
    refuses_and_admits("0.0.0.0:0", false);
}

#[test]
fn ipv6_addresses_have_their_sinks_too() {
    if has_ipv6() {
        refuses_and_admits("[::1]:0", true);
        refuses_and_admits("[::]:0", true);
        // An IPv4 client also reaches the wildcard address of IPv6.
        refuses_and_admits("[::]:0", false);
    }
}

#[test]
fn nobody_can_refuse_too() {
    let as_nobody = || {
        if rustix::process::getuid().is_root() {
            rustix::thread::set_thread_gid(Gid::from_raw(65_534)).unwrap();
            rustix::thread::set_thread_uid(Uid::from_raw(65_534)).unwrap();
        }
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(status.contains("CapEff:\t0000000000000000"), "no privilege is left: {status}");
        refuses_and_admits("127.0.0.1:0", false);
    };
    std::thread::scope(|scope| scope.spawn(as_nobody).join().unwrap());
}

#[test]
fn established_connections_outlive_full_refusal() {
    let (address, listeners) = listeners("127.0.0.1:0", 1);
    let sinks = join(address, &listeners).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let mut server = TcpStream::from(rustix::net::accept(&listeners[0]).unwrap());
    sinks.hook(0).admit(&share(0.0)).unwrap();
    for _ in 0..100 {
        client.write_all(b"question").unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        server.write_all(b"answer").unwrap();
        client.read_exact(&mut [0; 6]).unwrap();
    }
}

#[test]
fn whoever_gets_a_cookie_gets_in() {
    let namespace = match sys::network::netns::NetworkNamespace::create() {
        Ok(namespace) => namespace,
        Err(error) => return println!("skipped: no network namespaces here: {error}"),
    };
    let test = || {
        sys::network::netlink::Route::open().and_then(|mut route| route.set_up(1)).unwrap();
        // 2 answers every SYN by a cookie.
        if let Err(error) = std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2") {
            return println!("skipped: {error}");
        }
        let (address, listeners) = listeners("127.0.0.1:0", 1);
        let sinks = join(address, &listeners).unwrap();
        let mut hook = sinks.hook(0);
        hook.admit(&share(0.5)).unwrap();
        assert_eq!(hook.refused().unwrap(), 0);
        let clients: Vec<OwnedFd> = (0..200).map(|_| begin(address)).collect();
        eventually("all SYNs have arrived", || {
            let admitted = clients.iter().filter(|client| connected(client)).count();
            admitted as u64 + hook.refused().unwrap() >= 200
        });
        let admitted = clients.iter().filter(|client| connected(client)).count() as u32;
        assert!((60..140).contains(&admitted), "{admitted}");
        assert_eq!(depth(&listeners[0]), admitted);
    };
    namespace.enter(test).unwrap();
}

#[test]
fn each_queue_has_a_share_and_a_count_of_its_own() {
    let (address, listeners) = listeners("127.0.0.1:0", 3);
    let sinks = join(address, &listeners).unwrap();
    let mut hooks = [sinks.hook(0), sinks.hook(1), sinks.hook(2)];
    hooks[1].admit(&share(0.0)).unwrap();
    let mut refused = || hooks.each_mut().map(|hook| hook.refused().unwrap());
    assert_eq!(refused(), [0, 0, 0]);
    let clients: Vec<OwnedFd> = (0..300).map(|_| begin(address)).collect();
    let queued = || listeners.iter().map(depth).sum::<u32>();
    eventually("every SYN has been answered or refused", || u64::from(queued()) + refused()[1] >= 300);
    let depths: Vec<u32> = listeners.iter().map(depth).collect();
    let refused = refused();
    assert!(depths[0] > 0 && depths[1] == 0 && depths[2] > 0, "{depths:?}");
    assert!(refused[0] == 0 && refused[1] > 0 && refused[2] == 0, "{refused:?}");
    drop(clients);
}

#[test]
fn steered_queues_refuse_their_own() {
    let steered = std::fs::read_to_string("/sys/class/net/lo/queues/rx-0/rps_cpus");
    if steered.is_ok_and(|cpus| cpus.contains(|digit| "123456789abcdef".contains(digit))) {
        println!("skipped: receive work of the loopback interface is steered by this system");
        return;
    }
    let here = sys::cpu::allowed().unwrap()[0];
    let (address, listeners) = listeners("127.0.0.1:0", 2);
    let group = [(address, listeners[0].as_fd())];
    let sinks =
        Sinks::join(&group, 2, 2, Routing::ByCpu(vec![4095, here]), 7, &Exempt::NONE, Vec::new()).unwrap();
    let connect = || {
        sys::cpu::pin(&[here]).unwrap();
        let clients = [begin(address), begin(address), begin(address)];
        eventually("connected", || clients.iter().all(connected));
    };
    std::thread::scope(|scope| scope.spawn(connect).join().unwrap());
    assert_eq!(listeners.iter().map(depth).collect::<Vec<_>>(), [0, 3]);
    let mut hooks = [sinks.hook(0), sinks.hook(1)];
    hooks[1].admit(&share(0.0)).unwrap();
    let mut refused = || hooks.each_mut().map(|hook| hook.refused().unwrap());
    assert_eq!(refused(), [0, 0]);
    let knock = || {
        sys::cpu::pin(&[here]).unwrap();
        [begin(address), begin(address)]
    };
    let clients = std::thread::scope(|scope| scope.spawn(knock).join().unwrap());
    eventually("refused by the sink of the steered queue", || refused()[1] >= 2);
    assert_eq!(refused()[0], 0);
    drop(clients);
}

#[test]
fn a_small_change_of_the_share_costs_nothing() {
    let (address, listeners) = listeners("127.0.0.1:0", 1);
    let sinks = join(address, &listeners).unwrap();
    let mut hook = sinks.hook(0);
    for (asked, in_force) in [(0.5, 0.5), (0.53, 0.5), (0.54, 0.54), (0.501, 0.501), (0.99, 0.99), (1.0, 1.0)]
    {
        hook.admit(&share(asked)).unwrap();
        assert_eq!(sinks.lock().shares, [in_force], "{asked}");
    }
}

#[test]
fn salt_changes_only_after_the_memory_of_refusals() {
    let (address, listeners) = listeners("127.0.0.1:0", 1);
    let sinks = join(address, &listeners).unwrap();
    let mut hook = sinks.hook(0);
    let salt = || sinks.lock().salt;
    hook.admit(&share(0.5)).unwrap();
    let first = salt();
    // New SYNs are free, and refused ones keep to the rate: the law remembers them.
    hook.admit(&share(1.0)).unwrap();
    hook.admit(&share(0.5)).unwrap();
    assert_eq!(salt(), first, "the echo of a rush would be drawn anew");
    hook.admit(&share(1.0)).unwrap();
    hook.admit(&Admission::ALL).unwrap();
    hook.admit(&share(0.5)).unwrap();
    assert_ne!(salt(), first, "no client may be refused every day");
    sinks.withdraw();
}

#[test]
fn withdrawn_sinks_refuse_nobody_and_others_can_join() {
    let (address, listeners) = listeners("127.0.0.1:0", 2);
    let sinks = join(address, &listeners).unwrap();
    let mut hook = sinks.hook(0);
    hook.admit(&share(0.0)).unwrap();
    sinks.withdraw();
    let clients: Vec<OwnedFd> = (0..50).map(|_| begin(address)).collect();
    eventually("all are connected", || clients.iter().all(connected));
    hook.admit(&share(0.0)).unwrap();
    assert_eq!(hook.refused().unwrap(), 0);
    // One listener may be closed now, as the loops close theirs one after another.
    let [first, _second] = <[OwnedFd; 2]>::try_from(listeners).unwrap();
    drop(first);
    let clients: Vec<OwnedFd> = (0..50).map(|_| begin(address)).collect();
    eventually("all are connected to the other", || clients.iter().all(connected));
    let (again, others) = super::tests::listeners("127.0.0.1:0", 2);
    drop(join(again, &others).unwrap());
    join(again, &others).unwrap();
}

#[test]
fn successor_inherits_sinks_and_makes_missing_ones() {
    let (address, listeners) = listeners("127.0.0.1:0", 2);
    let group = [(address, listeners[0].as_fd())];
    let cookies = |sinks: &Sinks| -> Vec<u64> {
        sinks.lock().sinks[0].iter().map(|sink| sockopt::socket_cookie(sink).unwrap()).collect()
    };
    let predecessor = Sinks::join(&group, 1, 2, Routing::Even, 7, &Exempt::NONE, Vec::new()).unwrap();
    predecessor.hook(0).admit(&share(0.0)).unwrap();
    let (copies, before) = (predecessor.copies().unwrap(), cookies(&predecessor));
    predecessor.withdraw();
    let clients: Vec<OwnedFd> = (0..50).map(|_| begin(address)).collect();
    eventually("all are connected", || clients.iter().all(connected));
    let successor = Sinks::join(&group, 2, 2, Routing::Even, 8, &Exempt::NONE, copies).unwrap();
    assert_eq!((&cookies(&successor)[..1], cookies(&successor).len()), (&before[..], 2));
    let mut hooks = [successor.hook(0), successor.hook(1)];
    for hook in &mut hooks {
        // The count begins anew.
        assert_eq!(hook.refused().unwrap(), 0);
        hook.admit(&share(0.0)).unwrap();
    }
    let clients: Vec<OwnedFd> = (0..50).map(|_| begin(address)).collect();
    let refused = |hooks: &mut [SinkHook; 2]| hooks.each_mut().map(|hook| hook.refused().unwrap());
    eventually("both refuse", || refused(&mut hooks).iter().all(|refused| *refused > 0));
    assert!(!clients.iter().any(connected));
}

#[test]
fn sinks_that_die_with_their_process_refuse_nobody() {
    let (address, listeners) = listeners("127.0.0.1:0", 2);
    let sinks = join(address, &listeners).unwrap();
    sinks.hook(0).admit(&share(0.0)).unwrap();
    sinks.hook(1).admit(&share(0.0)).unwrap();
    drop(sinks);
    let clients: Vec<OwnedFd> = (0..50).map(|_| begin(address)).collect();
    eventually("all are connected", || clients.iter().all(connected));
}

#[test]
fn second_set_of_sinks_is_refused() {
    let (address, listeners) = listeners("127.0.0.1:0", 1);
    let first = join(address, &listeners).unwrap();
    let error = join(address, &listeners).unwrap_err();
    assert!(matches!(error, SinkError::Strangers { .. } | SinkError::System { .. }), "{error}");
    let clients: Vec<OwnedFd> = (0..50).map(|_| begin(address)).collect();
    eventually("all are connected", || clients.iter().all(connected));
    drop(first);
}

#[test]
fn listeners_that_share_no_port_have_no_sink() {
    let alone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = alone.local_addr().unwrap();
    let error = Sinks::join(&[(address, alone.as_fd())], 1, 1, Routing::Even, 7, &Exempt::NONE, Vec::new())
        .unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_sink_that_lost_its_filler_withdraws() {
    let (address, listeners) = listeners("127.0.0.1:0", 1);
    let sinks = join(address, &listeners).unwrap();
    let mut hook = sinks.hook(0);
    hook.admit(&share(0.5)).unwrap();
    hook.refused().unwrap();
    drop(rustix::net::accept(&sinks.lock().sinks[0][0]).unwrap());
    let error = hook.refused().unwrap_err();
    assert!(error.to_string().contains("not full"), "{error}");
    let clients: Vec<OwnedFd> = (0..50).map(|_| begin(address)).collect();
    eventually("all are connected", || clients.iter().all(connected));
}

#[test]
fn a_sink_that_took_the_place_of_a_listener_withdraws() {
    let (address, listeners) = listeners("127.0.0.1:0", 2);
    let sinks = join(address, &listeners).unwrap();
    let mut hooks = [sinks.hook(0), sinks.hook(1)];
    for _ in 0..2 {
        assert!(hooks.each_mut().iter_mut().all(|hook| hook.refused().is_ok()));
    }
    // Without withdrawal the kernel moves the last sink to the index of this listener.
    let [first, _second] = <[OwnedFd; 2]>::try_from(listeners).unwrap();
    drop(first);
    let clients: Vec<OwnedFd> = (0..50).map(|_| begin(address)).collect();
    let mut error = None;
    eventually("a sink that swallows connections is found out", || {
        error = hooks.each_mut().iter_mut().find_map(|hook| hook.refused().err());
        error.is_some()
    });
    assert!(error.unwrap().to_string().contains("admitted"));
    eventually("those that it swallowed are connected", || clients.iter().all(connected));
}
