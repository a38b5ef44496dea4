//! A starter answers its four words and nothing else. Starter and controller as two processes: whichever is killed first,
//! everybody is admitted.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use base::{Clock, RealClock};
use bpf::admission::LimitTable;
use proptest::prelude::*;
use sys::process::{Program, Streams, inherited, this_program};

use super::*;
use crate::attachment::tests::{FOR_EVER, choice, knock, namespace, refuse};
use crate::attachment::{HookChoice, SignalChoice};
use crate::parts::Parts;

/// The part, the hook and the address, in the environment of a process of this test.
const PART: &str = "INRUSH_TEST_GUARD_PART";
/// The limit of a wait in a test.
const LIMIT: Nanos = Nanos::from_secs(60);
const TEST: &str = "starter::tests::killed_parts_leave_every_hook_open";

fn wanted(hook: &str) -> Wanted {
    let signal = if hook == "sink" { SignalChoice::Queue } else { SignalChoice::Auto };
    Wanted { signal, hook: Some(choice(hook)), ..Wanted::default() }
}

fn place(address: SocketAddr) -> Place {
    Place { address: address.to_string().parse().unwrap(), namespace: None }
}

/// The process of the starter. Starts that of the controller, and serves it.
fn run_starter(hook: &str, address: &str) {
    let mut starter = match Starter::open(place(address.parse().unwrap()), wanted(hook)) {
        Ok(starter) => starter,
        Err(error) => return println!("skipped: {error}"),
    };
    starter.give_up_rights(false).unwrap();
    let (ours, theirs) = passing::pair().unwrap();
    let controller = Program::new(this_program().unwrap())
        .arguments(["--exact", TEST, "--nocapture"])
        .environment(PART, format!("controller {hook} {address}"))
        .reading_from(theirs.as_fd())
        .with_streams(Streams::Ours)
        .start()
        .unwrap();
    drop(theirs);
    println!("controller {}", controller.id());
    starter.serve(&ours, None).unwrap();
    println!("detached");
    std::thread::park();
}

/// The process of the controller: refuses nearly everything, for ever, and without rights.
fn run_controller(hook: &str) {
    let confinement = crate::Confinement::begin().unwrap();
    let (link, _) = Link::open(inherited(0).unwrap()).unwrap();
    confinement.finish().unwrap();
    let (description, descriptors) = link.attach().unwrap();
    // The memory of the bucket is the last that begins with a table.
    let at = if hook == "cgroup" { 0 } else { descriptors.len().saturating_sub(2) };
    let table = (hook != "sink").then(|| {
        let copies = [at, at + 1].map(|at| descriptors[at].try_clone().unwrap());
        LimitTable::open(copies).unwrap()
    });
    let mut parts = Parts::open(description, descriptors, 7, &bpf::Exempt::NONE).unwrap();
    let clock = RealClock::new();
    let until = clock.now() + LIMIT;
    refuse(&mut parts);
    println!("attached");
    while parts.syns().1 == 0 && clock.now() < until {
        refuse(&mut parts);
        poll::wait(&mut [], Some(Nanos::MILLISECOND)).unwrap();
    }
    if let Some(table) = table {
        table.limit(0, &FOR_EVER);
    }
    println!("refused {}", parts.syns().1);
    std::thread::park();
}

/// Kills a part and checks that everybody is admitted, then the other one.
fn check_kill(hook: &str, first: &str) {
    let Some(here) = namespace() else { return };
    let listener = here.enter(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let mut starter = Program::new(this_program().unwrap())
        .arguments(["--exact", TEST, "--nocapture"])
        .environment(PART, format!("starter {hook} {address}"))
        .in_namespace(Some(here.as_fd()))
        .start()
        .unwrap();
    let mut lines = BufReader::new(starter.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut wait_for = |words: &[&str]| {
        let found = lines.find_map(|line| {
            let at = words.iter().filter_map(|word| line.find(word)).next()?;
            Some(line[at..].to_owned())
        });
        found.unwrap_or_else(|| panic!("{hook}, {first} first: it ended before {words:?}"))
    };
    let said = wait_for(&["controller ", "skipped"]);
    let Some(controller) = said.strip_prefix("controller ") else { return println!("{hook}: {said}") };
    let controller = rustix::process::Pid::from_raw(controller.parse().unwrap()).unwrap();
    wait_for(&["attached"]);
    let waiting = here.enter(|| knock(address)).unwrap();
    assert_ne!(wait_for(&["refused "]), "refused 0", "{hook}, {first} first");
    let admitted = || {
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(30)).unwrap();
        here.enter(|| (0..16).for_each(|_| drop(connect()))).unwrap();
    };
    let kill_controller = || _ = rustix::process::kill_process(controller, rustix::process::Signal::KILL);
    drop(waiting);
    if first == "controller" {
        kill_controller();
        wait_for(&["detached"]);
    } else {
        starter.kill().unwrap();
        while starter.wait(Nanos::SECOND).unwrap().is_none() {}
    }
    admitted();
    kill_controller();
    let _ = starter.kill();
    admitted();
}

#[test]
fn killed_parts_leave_every_hook_open() {
    if let Ok(part) = std::env::var(PART) {
        let [part, hook, address] = part.split(' ').collect::<Vec<_>>().try_into().unwrap();
        return if part == "starter" { run_starter(hook, address) } else { run_controller(hook) };
    }
    for hook in ["cgroup", "tc", "xdp", "sink"] {
        for first in ["controller", "starter"] {
            check_kill(hook, first);
        }
    }
}

/// A starter in a thread, for a listener here.
fn served(wanted: Wanted, listener: &TcpListener, ask: impl FnOnce(&OwnedFd)) -> Option<io::Result<()>> {
    let mut starter = match Starter::open(place(listener.local_addr().unwrap()), wanted) {
        Ok(starter) => starter,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let (ours, theirs) = passing::pair().unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || starter.serve(&theirs, None));
        ask(&ours);
        drop(ours);
        Some(serving.join().unwrap())
    })
}

/// Observes, which needs no right.
fn observing() -> Wanted {
    Wanted { signal: SignalChoice::Queue, hook: None, ..Wanted::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn unknown_requests_end_the_service(word in proptest::collection::vec(any::<u8>(), 1..40)) {
        prop_assume!(Request::parse(&word).is_none());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ended = served(observing(), &listener, |socket| {
            passing::send(socket.as_fd(), &[IoSlice::new(&word)], &[]).unwrap();
            wait_until_gone(socket);
        });
        prop_assert_eq!(ended.unwrap().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

/// Waits until the starter has hung up, without an answer.
fn wait_until_gone(socket: &OwnedFd) {
    assert!(wait_readable(socket.as_fd(), Some(LIMIT)).unwrap());
    let heard = passing::receive(socket.as_fd(), &mut [IoSliceMut::new(&mut [0; 16])]).unwrap().unwrap();
    assert_eq!((heard.bytes, heard.descriptors.len()), (0, 0));
}

#[test]
fn words_with_something_behind_them_are_unknown() {
    for request in Request::ALL {
        assert_eq!(Request::parse(request.word()), Some(request));
        assert_eq!(Request::parse(&[request.word(), b" "].concat()), None);
    }
    assert_eq!(Request::parse(b""), None);
}

#[test]
fn releases_and_attaches_again_on_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let wanted = Wanted { signal: SignalChoice::Queue, hook: Some(HookChoice::Sink), ..Wanted::default() };
    let shares = || rustix::net::sockopt::socket_reuseport(&listener).unwrap();
    let served = served(wanted.clone(), &listener, |socket| {
        let (link, ready) = Link::open(socket.try_clone().unwrap()).unwrap();
        assert_eq!(ready.address.port, listener.local_addr().unwrap().port());
        for _ in 0..2 {
            let (description, descriptors) = link.attach().unwrap();
            // A program that another test starts holds the listener, too, until it executes.
            assert!(description.owner_count >= 1);
            assert_eq!(descriptors.len(), 1);
            assert!(shares());
            drop(descriptors);
            link.release().unwrap();
            assert!(!shares());
        }
        assert!(!link.is_gone());
    });
    if let Some(served) = served {
        served.unwrap();
    }
}
