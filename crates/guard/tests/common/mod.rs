//! A guard in the process of a test, and what the tests of its programs have: networks and cgroups.
#![allow(dead_code, reason = "each test program uses its own part of this")]

#[path = "../../../bpf/tests/common/mod.rs"]
pub mod programs;

use std::net::SocketAddr;

use base::{Clock, Nanos, RealClock};
use guard::{Guard, GuardError, HookChoice, Place, Server, Settings, SignalChoice, Status, Wanted};

/// The time that anything here may take.
pub const PATIENCE: Nanos = Nanos::from_secs(60);

/// Guards an address by what the machine allows, or prints why not.
pub fn guard(address: SocketAddr, signal: SignalChoice) -> Option<Guard> {
    guard_with(address, signal, HookChoice::Auto)
}

/// The same with a hook.
pub fn guard_with(address: SocketAddr, signal: SignalChoice, hook: HookChoice) -> Option<Guard> {
    guard_at(place(address), signal, hook)
}

/// An address in this network namespace.
pub fn place(address: SocketAddr) -> Place {
    Place::find(&Server::AtAddress, Some(address.to_string().parse().unwrap())).unwrap()
}

/// The same at a place.
pub fn guard_at(place: Place, signal: SignalChoice, hook: HookChoice) -> Option<Guard> {
    let wanted = Wanted { signal, hook: Some(hook), ..Wanted::default() };
    let settings = Settings { target: Nanos::from_millis(20), wanted };
    match Guard::open(place, settings, RealClock::new().now()) {
        Ok(guard) => Some(guard),
        Err(error @ GuardError::NoListener { .. }) => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Ticks until `done`, and returns the lines that the guard has said.
pub fn tick_until(guard: &mut Guard, mut done: impl FnMut(&Status) -> bool) -> Vec<String> {
    ticks(guard, |status, _| done(status))
}

/// Ticks until the guard has said a line with these words.
pub fn tick_until_said(guard: &mut Guard, words: &str) {
    ticks(guard, |_, lines| lines.iter().any(|line| line.contains(words)));
}

fn ticks(guard: &mut Guard, mut done: impl FnMut(&Status, &[String]) -> bool) -> Vec<String> {
    let clock = RealClock::new();
    let until = clock.now() + PATIENCE;
    let mut lines = Vec::new();
    while !done(&guard.status(), &lines) {
        assert!(clock.now() < until, "it never came to that: {:?} {lines:?}", guard.status());
        sys::readiness::poll::wait(&mut [], Some(Nanos::from_millis(2))).unwrap();
        lines.extend(guard.tick(clock.now()).iter().map(ToString::to_string));
    }
    lines
}
