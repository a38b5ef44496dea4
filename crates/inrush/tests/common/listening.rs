//! Programs of others that listen.

use std::net::TcpStream;

use base::{Clock, Nanos, RealClock};
use sys::process::{Child, Program};

/// The time for which a program may not listen.
const PATIENCE: Nanos = Nanos::from_secs(30);
/// Time between two connects.
const LOOK_EVERY: Nanos = Nanos::from_millis(5);

/// Starts a program, and waits until it takes a connection. `what` names it in a failure.
pub fn listening(
    what: &str,
    program: Program<'_>,
    connect: impl Fn() -> std::io::Result<TcpStream>,
) -> Child {
    let mut child = program.start().unwrap();
    let clock = RealClock::new();
    let give_up = clock.now() + PATIENCE;
    while connect().is_err() {
        assert!(child.wait(LOOK_EVERY).unwrap().is_none(), "{what} has ended");
        assert!(clock.now() < give_up, "{what} does not listen");
    }
    child
}
