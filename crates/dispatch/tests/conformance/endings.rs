//! Cases on closing, reused descriptor numbers, hang-ups, resets and connects.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use dispatch::{Interest, Mechanism};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};

use crate::bench::{Bench, Drained, drain, pair, send, tcp_pair, until_readable};

pub fn a_pending_event_of_a_closed_descriptor_is_not_reported<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let ((ours, peer), (other, other_peer)) = (pair(), pair());
    bench.register(&ours, 1, Interest::Read);
    bench.register(&other, 2, Interest::Read);
    bench.silent();
    send(&peer, b"x");
    send(&other_peer, b"x");
    bench.dispatcher.closing(ours.as_fd());
    drop(ours);
    bench.report_of(2);
}

/// Reuses a descriptor's number in the moment of its closing, while an event of its old life is pending. No
/// event of the old life may reach the new one.
pub fn a_number_used_again_at_once_has_a_new_life<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (mut ours, mut peer) = pair();
    bench.register(&ours, 0, Interest::Read);
    bench.silent();
    for life in 1..=20_u64 {
        for _ in 0..3 {
            send(&peer, b"of the old life");
        }
        if life % 2 == 0 {
            bench.report_of(life - 1);
        }
        let (fresh, fresh_peer) = pair();
        bench.dispatcher.closing(ours.as_fd());
        let number = ours.as_raw_fd();
        // Closes the old descriptor and gives its number to the new one in a single step.
        rustix::io::dup2(&fresh, &mut ours).unwrap();
        drop(fresh);
        assert_eq!(ours.as_raw_fd(), number);
        bench.register(&ours, life, Interest::Read);
        if life % 3 != 0 {
            bench.silent();
        }
        peer = fresh_peer;
    }
    send(&peer, b"x");
    let event = bench.report_of(20);
    assert!(event.readable && !event.failed);
}

pub fn closing_a_descriptor_that_is_watched_ends_the_connection<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = tcp_pair();
    bench.register(&ours, 1, Interest::Read);
    bench.silent();
    bench.dispatcher.closing(ours.as_fd());
    drop(ours);
    bench.silent();
    // No mechanism may keep the socket open: the peer reads the end of the stream.
    until_readable(&peer);
    assert_eq!(drain(&peer), Drained::End);
}

/// Closes a listener whose file stays open, as after a hand-over to another process.
pub fn shared_listener_is_silent_after_its_close<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, copy) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
    bench.register(&listener, 1, Interest::Read);
    bench.silent();
    bench.dispatcher.closing_shared(listener.as_fd());
    drop(listener);
    let _client = connecting(address);
    until_readable(&copy);
    bench.silent();

    // Neither an unknown descriptor nor one without interest is a change.
    bench.dispatcher.closing_shared(copy.as_fd());
    bench.register(&copy, 2, Interest::None);
    bench.silent();
    bench.dispatcher.closing_shared(copy.as_fd());
    bench.register(&copy, 3, Interest::Read);
    assert!(bench.report_of(3).readable);
}

pub fn a_hang_up_is_readable<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    bench.silent();
    send(&peer, b"last words");
    drop(peer);
    assert!(bench.report_of(1).readable);
    assert_eq!(drain(&ours), Drained::End);
}

pub fn a_half_close_is_readable_and_the_other_half_still_works<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    for (token, (ours, peer)) in [(1, pair()), (2, tcp_pair())] {
        bench.register(&ours, token, Interest::Read);
        bench.silent();
        rustix::net::shutdown(&peer, Shutdown::Write).unwrap();
        let event = bench.report_of(token);
        assert!(event.readable && !event.failed);
        assert_eq!(drain(&ours), Drained::End);
        bench.dispatcher.modify(ours.as_fd(), Interest::Both);
        assert!(bench.report_where(token, |event| event.writable).writable);
        send(&ours, b"still here");
        until_readable(&peer);
        assert_eq!(rustix::io::read(&peer, &mut [0; 10]), Ok(10));
        bench.dispatcher.closing(ours.as_fd());
    }
}

pub fn a_reset_is_reported<M: Mechanism>() {
    for interest in [Interest::Read, Interest::Both] {
        let mut bench = Bench::<M>::new();
        let (ours, peer) = tcp_pair();
        bench.register(&ours, 1, interest);
        bench.reports();
        sockopt::set_socket_linger(&peer, Some(std::time::Duration::ZERO)).unwrap();
        drop(peer);
        bench.report_where(1, |event| event.readable);
        assert_eq!(drain(&ours), Drained::Failed(Errno::CONNRESET));
    }
}

/// A socket whose connect to the address has begun.
fn connecting(to: SocketAddr) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::CONNREFUSED) => socket,
        Err(errno) => panic!("cannot begin to connect: {errno}"),
    }
}

pub fn a_refused_connect_is_reported<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    // The socket is bound and does not listen, so that no other process can take the port.
    let closed = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&closed, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = rustix::net::getsockname(&closed).unwrap().try_into().unwrap();
    let socket = connecting(address);
    bench.register(&socket, 1, Interest::Write);
    bench.report_where(1, |event| event.writable);
    assert_eq!(sockopt::socket_error(&socket).unwrap(), Err(Errno::CONNREFUSED));
}

pub fn a_connect_that_completes_is_writable<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = connecting(listener.local_addr().unwrap());
    bench.register(&socket, 1, Interest::Write);
    let event = bench.report_where(1, |event| event.writable);
    assert!(!event.failed);
    assert_eq!(sockopt::socket_error(&socket).unwrap(), Ok(()));
}

pub fn a_listener_reports_connections<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    bench.register(&listener, 1, Interest::Read);
    bench.silent();
    for _ in 0..3 {
        let client = connecting(listener.local_addr().unwrap());
        assert!(bench.report_of(1).readable);
        while listener.accept().is_ok() {}
        bench.reports();
        drop(client);
    }
    bench.silent();
    bench.dispatcher.closing(listener.as_fd());
}
