use super::*;

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Clock, RealClock};
use rustix::event::{EventfdFlags, eventfd};

use crate::connections::accept::AcceptLimit;
use crate::ground::listener::listen;

const WAITERS: usize = 4;

fn listeners() -> Vec<Listener> {
    listen("127.0.0.1:0".parse().unwrap(), 64, 1, false).unwrap()
}

fn stop() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn ask(stop: &OwnedFd) {
    rustix::io::write(stop, &1_u64.to_ne_bytes()).unwrap();
}

/// Longer than any test takes unless it fails.
const PATIENCE: Nanos = Nanos::from_secs(30);

/// Waits until the counter has reached `many`.
fn until(counted: &AtomicUsize, many: usize) {
    assert!(in_time(|| counted.load(Ordering::Acquire) >= many), "waited in vain for {many}");
}

/// Returns true as soon as the condition holds, and false if it never does.
fn in_time(mut holds: impl FnMut() -> bool) -> bool {
    let clock = RealClock::new();
    let end = clock.now() + PATIENCE;
    while !holds() {
        if clock.now() >= end {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Waits and takes one connection, if there is one, until the stop. Counts connections and wake-ups.
fn take_turns(waiter: &Waiter<'_>, stop: &OwnedFd, taken: &AtomicUsize, woken: &AtomicUsize) {
    loop {
        let turn = waiter.turn();
        for listener in waiter.listeners() {
            if rustix::net::accept(&listener.socket).is_ok() {
                taken.fetch_add(1, Ordering::AcqRel);
                waiter.found_connections().unwrap();
            }
        }
        if poll::wait(&mut [readable(stop)], Some(Nanos::ZERO)).unwrap() > 0 {
            return;
        }
        waiter.wait().unwrap();
        woken.fetch_add(1, Ordering::AcqRel);
        drop(turn);
    }
}

/// Acts as the waker until the stop.
fn wake_until(waiters: &Waiters, listeners: &[Listener], stop: &OwnedFd, limit: &LiveLimit) {
    let mut set = vec![readable(stop)];
    set.extend(waiters.calls_the_waker().iter().map(readable));
    loop {
        sleep(&mut set, None).unwrap();
        if set[0].reported() != 0 {
            return;
        }
        waiters.wake(listeners, limit).unwrap();
    }
}

#[test]
fn connection_finds_a_waiter_and_stop_finds_all() {
    for wake in [Wake::Exclusive, Wake::EpollExclusive, Wake::One, Wake::Mutex, Wake::All] {
        let (listeners, stop) = (listeners(), stop());
        let waiters = Waiters::new(wake, &listeners).unwrap();
        let (taken, woken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let limit = LiveLimit::new(AcceptLimit::Adaptive);
        std::thread::scope(|scope| {
            for index in 0..WAITERS {
                let waiter = waiters.waiter(index, &listeners, stop.as_fd()).unwrap();
                let (stop, taken, woken) = (&stop, &taken, &woken);
                scope.spawn(move || take_turns(&waiter, stop, taken, woken));
            }
            let waker = scope.spawn(|| wake_until(&waiters, &listeners, &stop, &limit));
            for round in 1..=50 {
                let clients = [(); 3].map(|()| TcpStream::connect(listeners[0].address).unwrap());
                until(&taken, 3 * round);
                drop(clients);
            }
            ask(&stop);
            waker.join().unwrap();
            waiters.wake_all();
        });
        println!("{wake}: {} wake-ups for 150 connections", woken.into_inner());
        assert_eq!(taken.into_inner(), 150, "{wake}");
    }
}

#[test]
fn waiter_finding_a_connection_leaves_the_queue() {
    for (wake, at_work) in [(Wake::Exclusive, 0), (Wake::EpollExclusive, 1)] {
        let (listeners, stop) = (listeners(), stop());
        let waiters = Waiters::new(wake, &listeners).unwrap();
        let waiter = waiters.waiter(0, &listeners, stop.as_fd()).unwrap();
        let set = waiter.exclusive.as_ref().unwrap().as_raw_fd();
        let entries = || {
            let watched = std::fs::read_to_string(format!("/proc/self/fdinfo/{set}")).unwrap();
            watched.lines().filter(|line| line.starts_with("tfd:")).count() - 1
        };
        assert_eq!(entries(), 0, "{wake}: besides the stop");
        let _client = TcpStream::connect(listeners[0].address).unwrap();
        waiter.wait().unwrap();
        waiter.found_connections().unwrap();
        assert_eq!(entries(), 1, "{wake}: it may sleep again soon");
        for _ in 0..2 {
            waiter.found_connections().unwrap();
            assert_eq!(entries(), at_work, "{wake}");
        }
        waiter.wait().unwrap();
        assert_eq!(entries(), 1, "{wake}: back in the queue");
    }
}

#[test]
fn the_waker_wakes_as_many_as_the_connections_need() {
    for (connections, limit, count) in [
        (1, Limit::AtMost(1), 1),
        (3, Limit::AtMost(1), 3),
        (3, Limit::AtMost(2), 2),
        (4, Limit::Infinite, 1),
        (0, Limit::AtMost(1), 1),
    ] {
        assert_eq!(needed(connections, limit), count, "{connections} connections, {limit:?}");
    }
}

#[test]
fn process_wakes_another_sleeper_for_a_dead_one() {
    let waiters = Waiters::new(Wake::One, &[]).unwrap();
    let memory = || waiters.memory().try_clone_to_owned().unwrap();
    let [first, second] = [3, 4].map(|index| Waiters::open(Wake::One, memory(), index).unwrap());
    let stop = stop();
    std::thread::scope(|scope| {
        let [own, other] = [(3, &first), (4, &second)].map(|(index, waiters)| {
            let stop = &stop;
            scope.spawn(move || waiters.waiter(index, &[], stop.as_fd()).unwrap().wait().unwrap())
        });
        // A thread that does not sleep yet is not woken. Each loop asks again until it was.
        let own_wakes = in_time(|| {
            first.wake_all();
            own.is_finished()
        });
        let other_sleeps = !other.is_finished();
        let other_wakes = in_time(|| {
            waiters.bury(9);
            other.is_finished()
        });
        ask(&stop);
        assert_eq!((own_wakes, other_sleeps, other_wakes), (true, true, true));
    });
}
