//! Tests against Linux's own TCP in a private network namespace, over links that lose, duplicate and reorder
//! packets.
//!
//! The tests need root, or a user namespace, for namespaces and devices. A test without them prints that it
//! is skipped.

mod support;

use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use base::{Clock, Nanos, RealClock, Seed};
use bpf::BpfError;
use support::client::{Client, Outcome, TASK_LENGTH, Task};
use support::impaired::{Conditions, Impaired};
use support::pattern;
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;
use sys::process::{Child, Program, this_program};
use usertcp::link::{AfXdp, Tun};
use usertcp::{Config, Link, LinkError, SourceNet, Stack};

const NET: &str = "10.94.0.0/24";
/// The address of a server behind a link.
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
/// Looks for something that the kernel does in a moment.
const LOOKS: u32 = 10_000;

/// A namespace with its loopback link up; `None`, and a printed reason, without namespaces.
fn namespace() -> Option<(NetworkNamespace, Route)> {
    let namespace = NetworkNamespace::create()
        .inspect_err(|error| println!("skipped: no network namespaces here: {error}"))
        .ok()?;
    let mut route = namespace.enter(Route::open).unwrap().unwrap();
    route.set_up(1).unwrap();
    Some((namespace, route))
}

/// The link; `None`, and a printed reason, if this machine has none. Panics for any other failure.
fn link<L>(opened: Result<L, LinkError>) -> Option<L> {
    match opened {
        Ok(link) => Some(link),
        Err(LinkError::System { operation, source })
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
        {
            println!("skipped: cannot {operation}: {source}");
            None
        }
        Err(LinkError::Program(
            error @ (BpfError::Capability { .. } | BpfError::Refused { .. } | BpfError::Kernel { .. }),
        )) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Starts a server on Linux's sockets: it reads a task, checks the request, and sends the reply. Returns its
/// name, and a counter of requests with a wrong byte.
fn serve(namespace: &NetworkNamespace, at: SocketAddr) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = namespace.enter(|| TcpListener::bind(at)).unwrap().unwrap();
    let name = listener.local_addr().unwrap();
    let wrong = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&wrong);
    // The thread lives until the process ends.
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                if answer(connection).is_ok_and(|right| !right) {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    (name, wrong)
}

/// Answers one request; returns true for a correct one.
fn answer(mut connection: TcpStream) -> io::Result<bool> {
    let mut task = [0; TASK_LENGTH];
    connection.read_exact(&mut task)?;
    let task = Task::read(task);
    let mut request = vec![0; task.request as usize];
    connection.read_exact(&mut request)?;
    let right = request.iter().enumerate().all(|(n, byte)| *byte == pattern(n as u64, false));
    let reply: Vec<u8> = (0..u64::from(task.reply)).map(|n| pattern(n, true)).collect();
    connection.write_all(&reply)?;
    Ok(right)
}

fn stack<L: Link>(link: L, server: SocketAddr, net: SourceNet, seed: Seed, clock: &RealClock) -> Stack<L> {
    Stack::new(link, Config { server, net, seed, epoch: Nanos::ZERO, syn_linear_timeouts: 4 }, clock.now())
}

/// Runs `exchanges` exchanges, at most 50 at a time, until no connection is left. Returns their outcomes.
fn run<L: Link>(
    stack: &mut Stack<L>,
    clock: &RealClock,
    seed: Seed,
    exchanges: usize,
    longest: u32,
) -> Vec<Outcome> {
    println!("seed {seed}");
    let mut client = Client::new(seed.child("client").rng(), longest);
    let mut begun = 0;
    while begun < exchanges || !client.is_done() || !stack.is_empty() {
        let now = clock.now();
        while begun < exchanges && begun - client.outcomes.len() < 50 {
            client.begin(stack, now);
            begun += 1;
        }
        stack.flush(now).unwrap();
        let due = stack.next_due().map_or(Nanos::from_millis(50), |due| due.saturating_sub(now));
        stack.wait(due.min(Nanos::from_millis(50))).unwrap();
        let now = clock.now();
        stack.expire(now);
        client.attend(stack, now);
    }
    assert_eq!(stack.stored(), 0, "nothing stays in the store");
    println!("{:?}", stack.counts().named().filter(|(_, count)| *count > 0).collect::<Vec<_>>());
    client.outcomes
}

#[track_caller]
fn all_complete(outcomes: &[Outcome], wrong: &AtomicU32) {
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Complete), "{outcomes:?}");
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "requests with a wrong byte");
}

/// Tells whether the device of a dropped link goes. A child that another test starts holds its descriptor for a moment.
fn goes(route: &mut Route, device: &str) -> bool {
    (0..LOOKS).any(|_| {
        thread::yield_now();
        route.link_index(device).is_err()
    })
}

#[test]
fn exchanges_over_tun_complete() {
    let Some((namespace, mut route)) = namespace() else { return };
    route.add_address(1, Ipv4Addr::new(10, 91, 0, 1), 32).unwrap();
    let (server, wrong) = serve(&namespace, "10.91.0.1:0".parse().unwrap());
    let net = NET.parse().unwrap();
    let Some(tun) = link(namespace.enter(|| Tun::open(server.ip(), net)).unwrap()) else { return };
    let name = tun.name().to_owned();
    let clock = RealClock::new();
    let mut stack = stack(tun, server, net, Seed(1), &clock);
    all_complete(&run(&mut stack, &clock, Seed(1), 300, 300_000), &wrong);
    drop(stack);
    assert!(goes(&mut route, &name), "the device is gone");
    assert!(!route.networks(net.network()).unwrap().contains(&(net.network(), 24)), "the route is gone");
}

#[test]
fn exchanges_complete_over_a_faulty_link() {
    let Some((namespace, mut route)) = namespace() else { return };
    let (server, wrong) = serve(&namespace, "127.0.0.1:0".parse().unwrap());
    let net = NET.parse().unwrap();
    for (number, (lost, doubled, reordered)) in
        [(0.05, 0.0, 0.0), (0.0, 0.2, 0.0), (0.0, 0.0, 0.2), (0.05, 0.1, 0.1)].into_iter().enumerate()
    {
        let Some(tun) = link(namespace.enter(|| Tun::open(server.ip(), net)).unwrap()) else { return };
        let name = tun.name().to_owned();
        let (clock, seed) = (RealClock::new(), Seed(number as u64));
        let conditions = Conditions { lost, doubled, reordered };
        println!("{conditions:?}");
        let mut stack = stack(Impaired::new(tun, conditions, seed), server, net, seed, &clock);
        all_complete(&run(&mut stack, &clock, seed, 60, 60_000), &wrong);
        drop(stack);
        assert!(goes(&mut route, &name));
    }
}

#[test]
fn exchanges_over_ipv6_complete() {
    let Some((namespace, mut route)) = namespace() else { return };
    let address: Ipv6Addr = "fd91::1".parse().unwrap();
    if let Err(error) = route.add_address(1, address, 128) {
        return println!("skipped: no IPv6 here: {error}");
    }
    // The kernel adds the route to a new address in a work queue.
    while !route.destination(address.into()).is_ok_and(|destination| destination.is_local) {
        thread::yield_now();
    }
    let net: SourceNet = "fd94::/64".parse().unwrap();
    let refused = namespace.enter(|| Tun::open(Ipv6Addr::LOCALHOST.into(), net)).unwrap();
    if !matches!(refused, Err(LinkError::Loopback { .. })) {
        panic!("the kernel takes no packets for ::1 from a device");
    }
    let (server, wrong) = serve(&namespace, SocketAddr::from((address, 0)));
    let Some(tun) = link(namespace.enter(|| Tun::open(server.ip(), net)).unwrap()) else { return };
    let (clock, seed) = (RealClock::new(), Seed(1));
    let mut stack = stack(tun, server, net, seed, &clock);
    all_complete(&run(&mut stack, &clock, seed, 100, 100_000), &wrong);
}

#[test]
fn exchanges_over_af_xdp_complete() {
    let Some((here, there)) = two_ends() else { return };
    let net: SourceNet = NET.parse().unwrap();
    let (server, wrong) = serve(&there, SocketAddr::from((BEHIND, 0)));
    let clock = RealClock::new();
    let refused = here.enter(|| AfXdp::open("client", server.ip(), net, false, &clock)).unwrap();
    assert!(matches!(refused, Err(LinkError::NotOurs { .. })));
    let wide = "10.0.0.0/8".parse().unwrap();
    let mut route = here.enter(Route::open).unwrap().unwrap();
    let link_here = route.link_index("client").unwrap();
    route.add_address(link_here, Ipv4Addr::new(10, 91, 0, 2), 24).unwrap();
    let refused = here.enter(|| AfXdp::open("client", server.ip(), wide, true, &clock)).unwrap();
    assert_eq!(
        refused.err().unwrap().to_string(),
        "the source net 10.0.0.0/8 contains 10.91.0.2, an address of this machine; name a free one with --source-net"
    );
    let Some(af_xdp) = link(here.enter(open_af_xdp).unwrap()) else { return };
    let mut stack = stack(af_xdp, server, net, Seed(1), &clock);
    all_complete(&run(&mut stack, &clock, Seed(1), 300, 300_000), &wrong);
}

#[test]
fn a_port_that_nobody_listens_on_refuses() {
    let Some((namespace, _route)) = namespace() else { return };
    let net = NET.parse().unwrap();
    let server: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let Some(tun) = link(namespace.enter(|| Tun::open(server.ip(), net)).unwrap()) else { return };
    let clock = RealClock::new();
    let mut stack = stack(tun, server, net, Seed(1), &clock);
    let outcomes = run(&mut stack, &clock, Seed(1), 10, 100);
    assert_eq!(outcomes, [Outcome::Failed(usertcp::Failure::Refused); 10]);
}

#[test]
fn what_is_not_ours_is_refused() {
    let Some((namespace, mut route)) = namespace() else { return };
    route.add_address(1, Ipv4Addr::new(10, 94, 0, 77), 32).unwrap();
    let net: SourceNet = NET.parse().unwrap();
    let open = |server: &str, net: &str| {
        let (server, net): (IpAddr, SourceNet) = (server.parse().unwrap(), net.parse().unwrap());
        namespace.enter(|| Tun::open(server, net)).unwrap().err().map(|error| error.to_string())
    };
    assert_eq!(
        open("127.0.0.1", NET).unwrap(),
        "the source net 10.94.0.0/24 overlaps the route to 10.94.0.77/32 of this machine; \
         name a free one with --source-net"
    );
    assert_eq!(
        open("192.0.2.1", "10.95.0.0/16").unwrap(),
        "192.0.2.1 is not an address of this network namespace, so a TUN device cannot reach it; \
         run beside the server, or name the interface towards it with --link af-xdp:IFACE"
    );
    assert_eq!(
        open("127.0.0.1", "fd94::/64").unwrap(),
        "127.0.0.1 cannot be reached from fd94::/64: one is IPv4 and the other IPv6"
    );
    assert!(net.contains(Ipv4Addr::new(10, 94, 0, 77).into()));
}

/// The two ends of a link: the namespace of `client`, and that of a server at [`BEHIND`]. `None` without namespaces.
fn two_ends() -> Option<(NetworkNamespace, NetworkNamespace)> {
    let (Some((here, mut route)), Some((there, mut other))) = (namespace(), namespace()) else { return None };
    route.create_veth("client", there.as_fd(), "server").unwrap();
    let link_there = other.link_index("server").unwrap();
    other.add_address(link_there, BEHIND, 24).unwrap();
    other.set_up(link_there).unwrap();
    let link_here = route.link_index("client").unwrap();
    route.set_up(link_here).unwrap();
    let net: SourceNet = NET.parse().unwrap();
    other.add_route(net.network(), net.prefix_length(), link_there, None).unwrap();
    Some((here, there))
}

fn open_af_xdp() -> Result<AfXdp, LinkError> {
    AfXdp::open("client", BEHIND.into(), NET.parse().unwrap(), true, &RealClock::new())
}

/// The children of the tests below: each opens a link and waits to be killed.
#[test]
#[ignore = "started by other tests"]
fn child_over_tun() {
    hold(Tun::open(Ipv4Addr::LOCALHOST.into(), NET.parse().unwrap()).unwrap());
}

#[test]
#[ignore = "started by other tests"]
fn child_over_af_xdp() {
    hold(open_af_xdp().unwrap());
}

fn hold<L>(_link: L) {
    println!("the link is there");
    io::stdout().flush().unwrap();
    sys::readiness::poll::wait(&mut [], None).unwrap();
}

fn start(child: &str, namespace: &NetworkNamespace) -> Child {
    let program =
        Program::new(this_program().unwrap()).arguments(["--exact", child, "--ignored", "--nocapture"]);
    program.in_namespace(Some(namespace.as_fd())).start().unwrap()
}

/// Kills a child with its link open, and children a while after their start, one 2 ms later than the other. Calls
/// `check` after each.
fn kill_at_many_moments(child: &str, namespace: &NetworkNamespace, mut check: impl FnMut()) {
    let mut holding = start(child, namespace);
    let mut said = io::BufReader::new(holding.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().ends_with("the link is there")), "it has ended");
    for (mut child, after) in
        std::iter::once((holding, 0)).chain((0..20).map(|moment| (start(child, namespace), 2 * moment)))
    {
        sys::readiness::poll::wait(&mut [], Some(Nanos::from_millis(after))).unwrap();
        child.kill().unwrap();
        child.wait(Nanos::MAX).unwrap();
        check();
    }
}

#[test]
fn killed_process_leaves_no_device_and_no_route() {
    let Some((namespace, mut route)) = namespace() else { return };
    let net: SourceNet = NET.parse().unwrap();
    let Some(tun) = link(namespace.enter(|| Tun::open(Ipv4Addr::LOCALHOST.into(), net)).unwrap()) else {
        return;
    };
    let name = tun.name().to_owned();
    drop(tun);
    assert!(goes(&mut route, &name));
    let names = |route: &mut Route| -> Vec<String> {
        route.links().unwrap().into_iter().map(|link| link.name).collect()
    };
    let before = names(&mut route);
    kill_at_many_moments("child_over_tun", &namespace, || {
        assert_eq!(names(&mut route), before);
        assert!(!route.networks(net.network()).unwrap().contains(&(net.network(), 24)));
    });
}

#[test]
fn killed_process_leaves_no_program_on_an_interface() {
    let Some((here, _there)) = two_ends() else { return };
    let open = || here.enter(open_af_xdp).unwrap();
    if link(open()).is_none() {
        return;
    }
    kill_at_many_moments("child_over_af_xdp", &here, || {
        // The kernel releases a program and a socket in a work queue, a moment after their process.
        let is_occupied = |opened: &Result<AfXdp, LinkError>| match opened {
            Err(LinkError::Program(error)) => matches!(error, BpfError::Occupied { .. }),
            Err(LinkError::System { source, .. }) => source.kind() == io::ErrorKind::ResourceBusy,
            _ => false,
        };
        let opened = (0..LOOKS).map(|_| open()).find(|opened| !is_occupied(opened));
        if let Err(error) = opened.expect("the program of a killed process is still there") {
            panic!("{error}");
        }
    });
}
