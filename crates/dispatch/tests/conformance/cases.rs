//! Cases on interest, readiness, timeouts, drain rules and descriptor numbers.

use std::os::fd::AsFd;
use std::sync::mpsc::{RecvTimeoutError, channel};

use base::{Clock, Nanos, RealClock};
use dispatch::{Interest, Mechanism, Waited};
use sys::process::descriptors;
use sys::thread::{self, Thread};

use crate::bench::{Bench, Drained, LONG, drain, fill, pair, send};

pub fn what_was_ready_before_it_was_registered_is_reported<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    send(&peer, b"early");
    bench.register(&ours, 1, Interest::Both);
    let event = bench.report_where(1, |event| event.readable && event.writable);
    assert!(!event.failed);
}

pub fn what_becomes_ready_later_is_reported<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    bench.silent();
    send(&peer, b"late");
    let event = bench.report_of(1);
    assert!(event.readable && !event.writable && !event.failed);
}

pub fn registering_twice_changes_token_and_interest<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    bench.silent();
    bench.register(&ours, 2, Interest::Write);
    let event = bench.report_of(2);
    assert!(event.writable && !event.readable);

    bench.register(&ours, 3, Interest::Read);
    bench.silent();
    send(&peer, b"x");
    assert!(bench.report_of(3).readable);
}

pub fn modifying_changes_the_interest<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    bench.silent();
    bench.dispatcher.modify(ours.as_fd(), Interest::Write);
    send(&peer, b"x");
    let event = bench.report_of(1);
    assert!(event.writable && !event.readable);

    // The bytes that arrived while the interest was off can still be read.
    bench.dispatcher.modify(ours.as_fd(), Interest::Read);
    let event = bench.report_of(1);
    assert!(event.readable && !event.writable);

    drain(&ours);
    fill(&ours);
    bench.dispatcher.modify(ours.as_fd(), Interest::Both);
    assert!(bench.reports().values().all(|event| !event.writable));
    drain(&peer);
    assert!(bench.report_of(1).writable);
}

pub fn an_unknown_descriptor_is_neither_modified_nor_forgotten<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, _peer) = pair();
    bench.dispatcher.modify(ours.as_fd(), Interest::Write);
    bench.dispatcher.deregister(ours.as_fd());
    bench.dispatcher.closing(ours.as_fd());
    bench.silent();
    assert_eq!(bench.dispatcher.reconciled().applied, 0);
}

pub fn a_deregistered_descriptor_is_silent<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    bench.register(&ours, 1, Interest::Both);
    bench.report_of(1);
    bench.dispatcher.deregister(ours.as_fd());
    send(&peer, b"x");
    bench.silent();
    bench.dispatcher.modify(ours.as_fd(), Interest::Read);
    bench.silent();

    bench.register(&ours, 2, Interest::Read);
    assert!(bench.report_of(2).readable);
    // Bytes are pending when the descriptor is forgotten.
    send(&peer, b"x");
    bench.dispatcher.deregister(ours.as_fd());
    bench.silent();
}

pub fn without_interest_it_is_silent_until_there_is_some_again<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    bench.silent();
    bench.dispatcher.modify(ours.as_fd(), Interest::None);
    send(&peer, b"x");
    bench.silent();
    bench.dispatcher.modify(ours.as_fd(), Interest::Read);
    assert!(bench.report_of(1).readable);

    drain(&ours);
    bench.dispatcher.modify(ours.as_fd(), Interest::None);
    drop(peer);
    bench.silent();
    bench.dispatcher.modify(ours.as_fd(), Interest::Read);
    assert!(bench.report_of(1).readable);
    assert_eq!(drain(&ours), Drained::End);
}

pub fn a_level_is_reported_until_drained_and_an_edge_with_every_change<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    send(&peer, b"first");
    bench.report_of(1);
    if Bench::<M>::is_edge() {
        // More bytes are a new event, although the first were not drained.
        bench.reports();
        send(&peer, b"second");
        bench.report_of(1);
    } else {
        bench.report_of(1);
        assert_eq!(rustix::io::read(&ours, &mut [0; 2]), Ok(2));
        bench.report_of(1);
    }
    assert_eq!(drain(&ours), Drained::WouldBlock);
    // The edge may have been reported without need before the drain. Afterwards the descriptor is quiet.
    bench.reports();
    bench.silent();
    send(&peer, b"third");
    bench.report_of(1);
}

pub fn pipes_and_counters_are_watched_too<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let flags = rustix::pipe::PipeFlags::NONBLOCK | rustix::pipe::PipeFlags::CLOEXEC;
    let (reader, writer) = rustix::pipe::pipe_with(flags).expect("a pipe");
    let flags = rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC;
    let counter = rustix::event::eventfd(0, flags).expect("a counter");
    bench.register(&reader, 1, Interest::Read);
    bench.register(&counter, 2, Interest::Read);
    bench.silent();

    rustix::io::write(&writer, b"x").expect("room");
    assert!(bench.report_of(1).readable);
    drain(&reader);
    bench.reports();
    rustix::io::write(&counter, &1_u64.to_ne_bytes()).expect("room");
    assert!(bench.report_of(2).readable);
    drain(&counter);
    bench.reports();
    bench.silent();
    drop(writer);
    assert!(bench.report_of(1).readable);
}

pub fn a_zero_timeout_returns_at_once<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, _peer) = pair();
    let mut events = Vec::new();
    assert_eq!(bench.dispatcher.wait(&mut events, Some(Nanos::ZERO)).unwrap(), Waited::Ready);
    bench.register(&ours, 1, Interest::Read);
    assert_eq!(bench.dispatcher.wait(&mut events, Some(Nanos::ZERO)).unwrap(), Waited::Ready);
    assert!(events.is_empty());
}

pub fn a_short_timeout_ends_not_before_its_time<M: Mechanism>() {
    let clock = RealClock::new();
    let mut bench = Bench::<M>::new();
    let (ours, _peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    for timeout in [Nanos::from_micros(50), Nanos::from_micros(1500), Nanos::from_millis(20)] {
        let start = clock.now();
        let mut events = Vec::new();
        let waited = bench.dispatcher.wait(&mut events, Some(timeout)).unwrap();
        assert_eq!((waited, events.as_slice()), (Waited::Ready, [].as_slice()));
        assert!(clock.now() - start >= timeout);
    }
}

pub fn without_a_timeout_the_wait_ends_with_an_event<M: Mechanism>() {
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    bench.silent();
    let writer = std::thread::spawn(move || {
        send(&peer, b"x");
        peer
    });
    let mut events = Vec::new();
    while events.is_empty() {
        bench.dispatcher.wait(&mut events, None).unwrap();
    }
    assert!(events[0].readable);
    writer.join().unwrap();
}

pub fn a_signal_interrupts_and_nothing_is_lost<M: Mechanism>() {
    thread::interruptible().unwrap();
    let mut bench = Bench::<M>::new();
    let (ours, peer) = pair();
    bench.register(&ours, 1, Interest::Read);
    bench.silent();

    let waiter = Thread::current();
    let (interrupted, told) = channel();
    let helper = std::thread::spawn(move || {
        // The waiter may not be waiting yet. The test repeats the signal until the waiter reports one.
        while told.recv_timeout(std::time::Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
            waiter.interrupt().unwrap();
        }
        send(&peer, b"x");
        peer
    });
    let mut events = Vec::new();
    while bench.dispatcher.wait(&mut events, Some(LONG)).unwrap() != Waited::Interrupted {}
    assert!(events.is_empty());
    interrupted.send(()).unwrap();
    assert!(bench.report_of(1).readable);
    helper.join().unwrap();
}

pub fn five_thousand_descriptors_are_all_reported<M: Mechanism>() {
    const COUNT: u64 = 5_000;
    let needed = 2 * COUNT + 500;
    if let Some(limit) = descriptors::raise_limit(u64::MAX).filter(|limit| *limit < needed) {
        println!("skipped: needs {needed} descriptors, the limit is {limit}");
        return;
    }

    let mut bench = Bench::<M>::new();
    let pairs: Vec<_> = (0..COUNT).map(|_| pair()).collect();
    for (index, (ours, _)) in pairs.iter().enumerate() {
        bench.register(ours, index as u64, Interest::Read);
    }
    bench.silent();
    for (_, peer) in &pairs {
        send(peer, b"x");
    }
    let reports = bench.reports();
    assert_eq!(reports.len() as u64, COUNT);
    assert!(reports.values().all(|event| event.readable && !event.failed));
    for (index, (ours, _)) in pairs.iter().enumerate() {
        drain(ours);
        if index % 2 == 0 {
            bench.dispatcher.closing(ours.as_fd());
        }
    }
    let kept: Vec<_> = pairs.into_iter().skip(1).step_by(2).collect();
    bench.reports();
    send(&kept[1000].1, b"x");
    assert!(bench.report_of(2001).readable);
}
