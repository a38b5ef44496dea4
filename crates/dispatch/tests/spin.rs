//! The wait of the FDM paper's servers, over every mechanism: no event is missed, and the timeout holds.

use std::os::fd::{AsFd, OwnedFd};

use base::setting::Chosen;
use base::{Clock, Nanos, RealClock};
use dispatch::table::settings;
use dispatch::{Dispatcher, Interest, Mechanism, Token};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
}

fn finds_events_and_ends_in_time<M: Mechanism>() {
    let mut chosen = Chosen::default();
    for (flag, text) in [("--wait", "spin"), ("--sleep-threshold", "2")] {
        let setting = settings().into_iter().find(|known| known.declaration().flag == flag).unwrap();
        chosen.add(setting, text).unwrap();
    }
    let mut dispatcher = Dispatcher::<M>::configured(&chosen).unwrap();
    let pairs: Vec<_> = (0..20).map(|_| pair()).collect();
    for (index, (ours, _)) in pairs.iter().enumerate() {
        dispatcher.register(ours.as_fd(), Token(index as u64), Interest::Read);
    }
    let (mut events, clock) = (Vec::new(), RealClock::new());
    for round in 0..3 {
        let (began, timeout) = (clock.now(), Nanos::from_millis(3));
        dispatcher.wait(&mut events, Some(timeout)).unwrap();
        assert!(events.is_empty() && clock.now() - began >= timeout, "round {round}");
        for (index, (ours, peer)) in pairs.iter().enumerate() {
            rustix::net::send(peer, b"x", SendFlags::NOSIGNAL).unwrap();
            // A mechanism may report an edge without need before the new one.
            while !events.iter().any(|event| event.token == Token(index as u64) && event.readable) {
                dispatcher.wait(&mut events, None).unwrap();
            }
            while rustix::io::read(ours, &mut [0; 8]).is_ok() {}
            events.clear();
        }
        // Takes late reports.
        dispatcher.wait(&mut events, Some(Nanos::ZERO)).unwrap();
        events.clear();
    }
}

#[test]
fn every_mechanism_can_spin() {
    macro_rules! each {
        ($($name:literal => $mechanism:ty,)*) => {
            [$(($name, finds_events_and_ends_in_time::<$mechanism> as fn()),)*]
        };
    }
    for (name, case) in dispatch::for_each_mechanism!(each) {
        // A mechanism may keep state for its thread.
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(case).unwrap();
        thread.join().unwrap_or_else(|_| panic!("{name} failed"));
    }
}
