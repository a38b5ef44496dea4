//! Connections dropped at their final ACK, beside SYNs that find the accept queue full, and all SYNs.

mod common;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bpf::counts::{FinalAcks, Syns};
use common::or_skip;
use common::packet::{ACK, SYN};
use common::wire::{Client, Offer, SERVER, TUN, Wire};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use sys::network::netlink::Route;

/// The kernel takes one connection more.
const BACKLOG: u16 = 4;

fn listener() -> (OwnedFd, SocketAddr) {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).unwrap();
    listen(&socket, BACKLOG.into()).unwrap();
    let port = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap().port();
    (socket, (SERVER, port).into())
}

/// `ListenOverflows` of the calling thread's network namespace.
fn overflows() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:")).map(str::split_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let found = names.zip(values).find(|(name, _)| *name == "ListenOverflows").unwrap();
    found.1.parse().unwrap()
}

#[test]
fn drop_at_final_ack_differs_from_drop_at_syn() {
    let Some(wire) = Wire::create().map(Rc::new) else { return };
    let Some(watched) = or_skip(FinalAcks::watch()) else { return };
    let (_socket, server) = wire.namespace.enter(listener).unwrap();
    let mut clients =
        (0..BACKLOG + 4).map(|number| Client::new(&wire, server, 2000 + number, Offer::default()));
    let mut half_open = |client: &mut Client| {
        client.transmit(client.next, 0, SYN, &[], &[]);
        client.next += 1;
        let answer = client.receive();
        assert!(answer.is(SYN | ACK), "{answer:?}");
        client.expected = answer.end();
    };
    for mut client in clients.by_ref().take(BACKLOG.into()) {
        half_open(&mut client);
        client.acknowledge();
    }
    let mut last: Vec<Client> = clients.by_ref().take(3).collect();
    last.iter_mut().for_each(&mut half_open);
    let before = watched.dropped();
    last.iter_mut().for_each(Client::acknowledge);
    assert_eq!(wire.namespace.enter(overflows).unwrap(), 2, "the first of them had room");
    assert!(
        watched.dropped() >= before + 2,
        "{} after {before}; others on this machine count",
        watched.dropped()
    );
    let mut late = clients.next().unwrap();
    late.transmit(late.next, 0, SYN, &[], &[]);
    assert_eq!(wire.namespace.enter(overflows).unwrap(), 3);
}

#[test]
fn syns_count_whether_they_are_dropped_or_not() {
    let Some(wire) = Wire::create().map(Rc::new) else { return };
    let watch = || {
        let links = Route::open().unwrap().links().unwrap();
        Syns::watch(&links.into_iter().filter(|link| link.name == TUN).collect::<Vec<_>>())
    };
    let Some(watched) = or_skip(wire.namespace.enter(watch).unwrap()) else { return };
    let (_socket, server) = wire.namespace.enter(listener).unwrap();
    for number in 0..BACKLOG + 4 {
        let mut client = Client::new(&wire, server, 3000 + number, Offer::default());
        client.transmit(client.next, 0, SYN, &[], &[]);
        assert_eq!(watched.arrived(), u64::from(number) + 1);
        if number <= BACKLOG {
            client.next += 1;
            client.expected = client.receive().end();
            client.acknowledge();
        }
        assert_eq!(watched.arrived(), u64::from(number) + 1, "a final ACK is no SYN");
    }
    assert_eq!(wire.namespace.enter(overflows).unwrap(), 3, "the queue was full for the last three");
}
