//! The program as its users meet it: a child process, its lines on stderr, its sockets, its exit code.
//!
//! Nothing here waits for luck. What the server does by itself is waited for by asking `/status` until it
//! shows ([`Server::eventually`]); everything else is a blocking read whose time-out, [`PATIENCE`],
//! only a failing test reaches.

mod client;
mod files;
mod prometheus;
mod server;

pub use client::{Client, Response};
pub use files::{Files, pattern, set_length};
pub use prometheus::{check_metrics, samples};
pub use server::{Server, Status, has_ended, sockets};

use std::time::Duration;

/// When a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

macro_rules! names {
    ($($name:literal => $mechanism:ty,)*) => { [$($name),*] };
}

/// Runs a test on every event mechanism; its output names the one that failed.
pub fn on_every_mechanism(test: impl Fn(&str)) {
    for name in dispatch::for_each_mechanism!(names) {
        println!("--dispatch {name}");
        test(name);
    }
}
