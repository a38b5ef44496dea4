//! A signal queue that is too short, and signals that outlive their descriptor. An overflow is an ordinary
//! outcome and loses no event. Signals of a past life are not believed.
//!
//! This is a program of its own, because the queue's limit (RLIMIT_SIGPENDING) holds for the whole process.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::Nanos;
use base::setting::Chosen;
use dispatch::mechanism::{RtFetch, RtPerFd, RtSignals, RtSignalsSelect};
use dispatch::{Dispatcher, Interest, Mechanism, Token};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SOCKETS: u64 = 200;
const QUEUE: u64 = 20;
/// Held by the test that uses the queue. A full queue loses the signals of every other socket.
static THE_QUEUE: Mutex<()> = Mutex::new(());

fn the_queue() -> MutexGuard<'static, ()> {
    THE_QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
}

fn read_all(fd: &OwnedFd) {
    while rustix::io::read(fd, &mut [0; 64]).is_ok_and(|count| count > 0) {}
}

/// Every reported token, until a wait reports none.
fn reported<M: Mechanism>(dispatcher: &mut Dispatcher<M>) -> BTreeSet<u64> {
    let mut tokens = BTreeSet::new();
    loop {
        let mut events = Vec::new();
        dispatcher.wait(&mut events, Some(Nanos::ZERO)).unwrap();
        if events.is_empty() {
            return tokens;
        }
        tokens.extend(events.iter().map(|event| event.token.0));
    }
}

fn overflows_and_loses_nothing<M: Mechanism>(mechanism: M) {
    let mut dispatcher = Dispatcher::on(mechanism);
    let pairs: Vec<_> = (0..SOCKETS).map(|_| pair()).collect();
    for (index, (ours, _)) in pairs.iter().enumerate() {
        dispatcher.register(ours.as_fd(), Token(index as u64), Interest::Read);
    }
    assert_eq!(reported(&mut dispatcher).len(), 0);

    for round in 1..=3 {
        for (_, peer) in &pairs {
            rustix::net::send(peer, b"x", SendFlags::NOSIGNAL).unwrap();
        }
        assert_eq!(reported(&mut dispatcher), (0..SOCKETS).collect());
        assert_eq!(dispatcher.counts().overflows, round);
        pairs.iter().for_each(|(ours, _)| read_all(ours));
    }

    // After the overflow the queue works as before.
    for (index, (ours, peer)) in pairs.iter().enumerate() {
        rustix::net::send(peer, b"x", SendFlags::NOSIGNAL).unwrap();
        assert_eq!(reported(&mut dispatcher), BTreeSet::from([index as u64]));
        read_all(ours);
    }
    assert_eq!(dispatcher.counts().overflows, 3);
}

fn with_upkeep<M: Mechanism>(fetches: &str) -> M {
    let mut chosen = Chosen::default();
    let setting = M::CAPABILITIES.settings.iter().find(|known| known.declaration().flag == "--rt-upkeep");
    chosen.add(*setting.unwrap(), fetches).unwrap();
    M::configured(&chosen).unwrap()
}

fn keeps_up_between_overflows(mut dispatcher: Dispatcher<RtPerFd>) {
    let (ours, peer) = pair();
    dispatcher.register(ours.as_fd(), Token(1), Interest::Read);
    reported(&mut dispatcher);
    for _ in 0..QUEUE * 10 {
        for _ in 0..QUEUE / 2 {
            rustix::net::send(&peer, b"x", SendFlags::NOSIGNAL).unwrap();
        }
        let mut events = Vec::new();
        dispatcher.wait(&mut events, None).unwrap();
        assert_eq!(events.len(), 1, "announcements of one descriptor are one report");
        read_all(&ours);
    }
    assert_eq!(dispatcher.counts().overflows, 0);
}

#[test]
fn signal_mechanisms_recover_from_queue_overflow() {
    let _alone = the_queue();
    let limit = getrlimit(Resource::Sigpending);
    setrlimit(Resource::Sigpending, Rlimit { current: Some(QUEUE), ..limit }).unwrap();
    for fetch in [RtFetch::Batch, RtFetch::One] {
        overflows_and_loses_nothing(RtSignals::with(fetch).unwrap());
        overflows_and_loses_nothing(RtSignalsSelect::with(fetch).unwrap());
        overflows_and_loses_nothing(RtPerFd::with(fetch).unwrap());
        keeps_up_between_overflows(Dispatcher::on(RtPerFd::with(fetch).unwrap()));
    }
    for fetches in ["1", "3"] {
        overflows_and_loses_nothing(with_upkeep::<RtSignals>(fetches));
        overflows_and_loses_nothing(with_upkeep::<RtSignalsSelect>(fetches));
        overflows_and_loses_nothing(with_upkeep::<RtPerFd>(fetches));
    }
}

#[test]
fn announcements_of_a_past_life_are_not_believed() {
    let _alone = the_queue();
    let mut dispatcher = Dispatcher::<RtSignals>::new().unwrap();
    let (mut ours, peer) = pair();
    dispatcher.register(ours.as_fd(), Token(1), Interest::Read);
    reported(&mut dispatcher);
    for _ in 0..3 {
        rustix::net::send(&peer, b"x", SendFlags::NOSIGNAL).unwrap();
    }
    let (fresh, fresh_peer) = pair();
    dispatcher.closing(ours.as_fd());
    rustix::io::dup2(&fresh, &mut ours).unwrap();
    dispatcher.register(ours.as_fd(), Token(2), Interest::Read);
    assert_eq!(reported(&mut dispatcher), BTreeSet::new());
    assert_eq!(dispatcher.counts().disbelieved, 3);

    rustix::net::send(&fresh_peer, b"x", SendFlags::NOSIGNAL).unwrap();
    assert_eq!(reported(&mut dispatcher), BTreeSet::from([2]));
    assert_eq!(dispatcher.counts().disbelieved, 3);
}

/// The earlier set is that of another thread, as it could be that of another process.
#[test]
fn later_set_gets_reports_of_an_earlier_sets_file() {
    let _alone = the_queue();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let copy = listener.try_clone().unwrap();
    let earlier = std::thread::spawn(move || {
        let mut dispatcher = Dispatcher::<RtSignals>::new().unwrap();
        dispatcher.register(copy.as_fd(), Token(1), Interest::Read);
        reported(&mut dispatcher)
    });
    assert_eq!(earlier.join().unwrap(), BTreeSet::new());

    let mut dispatcher = Dispatcher::<RtSignals>::new().unwrap();
    dispatcher.register(listener.as_fd(), Token(2), Interest::Read);
    assert_eq!(reported(&mut dispatcher), BTreeSet::new());
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut events = Vec::new();
    dispatcher.wait(&mut events, Some(Nanos::from_secs(20))).unwrap();
    assert_eq!(events.first().map(|event| event.token), Some(Token(2)));
}
