//! The program as users see it: a child process, its lines on stderr, its sockets, its exit code.
//!
//! No test here depends on luck. A test awaits the server's own actions by polling `/status` until it shows
//! them ([`Server::eventually`]). Every other wait on a socket ends after [`PATIENCE`], which only a failing test
//! reaches. A server's messages are awaited without a limit, because they end with the server.
//!
//! The modules: `server` and `client` are the two ends, `files` the served directory, and `prometheus` checks
//! metrics. Included by themselves: `listening` starts programs of others, `stand_ins` makes some, `closed_port` is one, and
//! `schema` checks JSON.

mod client;
mod files;
mod prometheus;
mod server;

pub use client::{Client, Response};
pub use files::{Files, pattern, set_length};
pub use prometheus::{check_metrics, samples};
pub use server::{PROGRAM, Server, Status, eventually, has_ended, pause, send, sockets};

use std::time::Duration;

/// Timeout of a test.
pub const PATIENCE: Duration = Duration::from_secs(30);

macro_rules! names {
    ($($name:literal => $mechanism:ty,)*) => { [$($name),*] };
}

/// Runs a test on every event mechanism, and on the completion driver. The output names the one that failed.
pub fn on_every_mechanism(test: impl Fn(&str)) {
    on_every_readiness_mechanism(&test);
    println!("--dispatch {}", ::server::URING);
    test(::server::URING);
}

/// Runs a test on every event mechanism of the readiness loop.
pub fn on_every_readiness_mechanism(test: impl Fn(&str)) {
    for name in dispatch::for_each_mechanism!(names) {
        println!("--dispatch {name}");
        test(name);
    }
}
