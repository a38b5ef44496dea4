//! What a guard stands on goes and comes back: its devices, and the listeners of a group.

mod common;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use base::{Clock, Nanos, RealClock};
use common::programs::namespace;
use common::{guard_at, guard_with, place, tick_until, tick_until_said};
use guard::{Guard, HookChoice, Place, Settings, SignalChoice, Starter, Status, Wanted};
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, connect, socket_with, sockopt};
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;

const DEVICE: &str = "veth9";

/// A device with an address, whose other end is a namespace of its own. Both end with that.
fn device() -> Option<NetworkNamespace> {
    let there = namespace()?;
    let mut here = Route::open().unwrap();
    here.create_veth(DEVICE, there.as_fd(), DEVICE).unwrap();
    let link = here.link_index(DEVICE).unwrap();
    here.add_address(link, Ipv4Addr::new(10, 87, 0, 1), 24).unwrap();
    here.set_up(link).unwrap();
    Some(there)
}

#[test]
fn device_of_a_listener_goes_and_returns() {
    let Some(server) = namespace() else { return };
    let inside = server.enter(|| {
        let first = device()?;
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut guard = guard_with(address, SignalChoice::Queue, HookChoice::Tc)?;
        assert!(guard.description().contains(DEVICE), "{}", guard.description());
        drop(first);
        tick_until_said(&mut guard, &format!("{DEVICE} is gone"));
        let local = (Ipv4Addr::LOCALHOST, address.port());
        TcpStream::connect(local).expect("the other device's clients are admitted");
        let second = device()?;
        tick_until_said(&mut guard, &format!("{DEVICE} is new, and has tc"));
        assert_eq!(guard.status().state, "open");
        guard.close();
        Some((second, listener))
    });
    drop(inside.unwrap());
}

#[test]
fn new_device_of_another_namespace_is_followed() {
    // The guard's own namespace has no device of that number.
    let (Some(server), Some(own)) = (namespace(), namespace()) else { return };
    let listener = server.enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    own.enter(|| {
        let namespace = Some(NetworkNamespace::of_another(&server.path()).unwrap());
        let place = Place { namespace, ..place(address) };
        let mut guard = guard_at(place, SignalChoice::Queue, HookChoice::Tc)?;
        let client = server.enter(device).unwrap()?;
        tick_until_said(&mut guard, &format!("{DEVICE} is new, and has tc"));
        guard.close();
        Some(client)
    })
    .unwrap();
}

/// The address of listeners that close and open again: nobody else takes its ports.
const OWN: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 2);

#[test]
fn guard_rests_while_its_server_is_away() {
    let listener = TcpListener::bind((OWN, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let Some(mut guard) = guard_with(address, SignalChoice::Queue, HookChoice::Auto) else { return };
    drop(listener);
    tick_until(&mut guard, |status| status.state == "gone");
    let now = RealClock::new().now();
    guard.tick(now);
    assert!(guard.due() >= now + Nanos::from_millis(20));
    guard.close();
}

/// A starter in a thread, which has run `first`, and the controller's end of its socket with settings.
fn started(place: Place, hook: Option<HookChoice>, first: fn(&Starter)) -> Option<(OwnedFd, Settings)> {
    let wanted = Wanted { signal: SignalChoice::Queue, hook, ..Wanted::default() };
    let mut starter =
        Starter::open(place, wanted.clone()).map_err(|error| println!("skipped: {error}")).ok()?;
    let (ours, theirs) = sys::socket::passing::pair().unwrap();
    std::thread::spawn(move || {
        first(&starter);
        starter.serve(&theirs, None)
    });
    Some((ours, Settings { target: Nanos::from_millis(20), wanted }))
}

#[test]
fn controller_may_begin_while_its_server_is_away() {
    let listener = TcpListener::bind((OWN, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let Some((link, settings)) = started(place(address), None, |_| {}) else { return };
    // A child that another test is starting may hold a copy of the listener until its exec.
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
    drop(listener);
    let mut guard = Guard::connect(link, settings, RealClock::new().now()).unwrap();
    assert_eq!(guard.status().state, "gone");
    let _again = TcpListener::bind(address).unwrap();
    tick_until(&mut guard, |status| status.state == "open");
    guard.close();
}

#[test]
fn confined_starter_has_a_sink_beside_a_low_port() {
    let Some(server) = namespace() else { return };
    let inside = server.enter(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 80)).unwrap();
        let give_up = |starter: &Starter| drop(starter.give_up_rights(false).unwrap());
        let at = place(listener.local_addr().unwrap());
        let (link, settings) = started(at, Some(HookChoice::Sink), give_up)?;
        let guard = Guard::connect(link, settings, RealClock::new().now()).unwrap();
        assert_eq!(guard.status().hook, "sink");
        guard.close();
        Some(listener)
    });
    drop(inside.unwrap());
}

/// A listener of a group. Its kernel gives each member its share of the connections.
fn member(address: SocketAddr) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 4096).unwrap();
    socket
}

/// Begins to connect.
fn client(address: SocketAddr) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    let _ = connect(&socket, &address);
    socket
}

#[test]
fn group_is_guarded_as_one_server() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let members = [(); 3].map(|()| member(address));
    let Some(mut guard) = guard_with(address, SignalChoice::Queue, HookChoice::Cgroup) else { return };
    assert_eq!(guard.status().listeners, members.len());
    // Nobody accepts: they wait in all queues together, and the guard begins to refuse.
    let mut clients = Vec::new();
    let refuses = |status: &Status| {
        if status.refused == 0 {
            clients.push(client(address));
        }
        status.refused > 0
    };
    tick_until(&mut guard, refuses);
    let depths = members.each_ref().map(|member| sys::socket::accept_queue(member.as_fd()).unwrap().depth);
    assert!(depths.iter().all(|depth| *depth > 0), "{depths:?}");
    assert_eq!(guard.status().queue_depth, depths.iter().sum::<u32>(), "of all members");
    // Everybody is accepted: the queue is over, and so is the refusal.
    tick_until(&mut guard, |status| {
        for member in &members {
            while accept_with(member, SocketFlags::CLOEXEC).is_ok() {}
        }
        status.state == "open"
    });
    let refused = guard.status().refused;
    TcpStream::connect(address).unwrap();
    tick_until(&mut guard, |status| status.queue_depth == 1);
    assert_eq!(guard.status().refused, refused);
    guard.close();
}
