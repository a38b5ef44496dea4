//! A confined controller, in a process of its own: what it cannot do, and that it says so.

use std::io::ErrorKind::PermissionDenied;
use std::net::TcpListener;

use base::{Clock, Nanos, RealClock};
use guard::{Confinement, Guard, Place, Server, Settings, SignalChoice, Starter, Wanted};
use sys::process::Program;

/// Loads the guard's programs without asking first whether it may.
fn load() -> Result<aya::Ebpf, aya::EbpfError> {
    aya::Ebpf::load(aya::include_bytes_aligned!("../../bpf/programs/guard.o"))
}

fn text(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn confined_guard_works_and_can_do_nothing_else() {
    if confine::probe().contains(&confine::Facility::Missing) {
        return println!("skipped: this kernel lacks Landlock or seccomp");
    }
    let is_root = confine::is_root();
    if is_root {
        load().unwrap();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let place = Place::find(&Server::AtAddress, Some(address)).unwrap();
    let wanted = Wanted { signal: SignalChoice::Queue, ..Wanted::default() };
    let mut starter = Starter::open(place, wanted.clone()).unwrap();
    let (ours, theirs) = sys::socket::passing::pair().unwrap();
    // The thread exists before, as the starter's process does. Seccomp alone holds for it as well.
    let (go, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        wait.recv().unwrap();
        starter.serve(&theirs, None)
    });
    let clock = RealClock::new();
    let confinement = Confinement::begin().unwrap();
    go.send(()).unwrap();
    let settings = Settings { target: Nanos::from_millis(20), wanted };
    let mut guard = Guard::connect(ours, settings, clock.now()).unwrap();
    let (line, rights) = confinement.finish().unwrap();
    assert!(
        line.contains("no capabilities, files by") && line.ends_with("system calls by seccomp"),
        "{line}"
    );
    assert!(rights.capabilities.is_empty() && rights.filters_calls && rights.no_new_privileges, "{rights:?}");

    assert_eq!(std::fs::read("/etc/passwd").unwrap_err().kind(), PermissionDenied);
    assert_eq!(std::fs::write("/tmp/inrush-probe", "x").unwrap_err().kind(), PermissionDenied);
    assert_eq!(Program::new("/bin/true").start().unwrap_err().kind(), PermissionDenied);
    assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), PermissionDenied);
    let refused = text(&load().map(drop).unwrap_err());
    assert!(refused.contains("os error 1") || refused.contains("os error 13"), "{refused}");

    for _ in 0..3 {
        sys::readiness::poll::wait(&mut [], Some(guard.due().saturating_sub(clock.now()))).unwrap();
        let events = guard.tick(clock.now());
        assert!(events.is_empty(), "{events:?}");
    }
    assert_eq!((guard.status().state, guard.status().listeners), ("open", 1));
}
