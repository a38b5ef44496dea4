//! One suite over every architecture, on every event mechanism that it is allowed, with real sockets.
//!
//! An architecture must not change the bytes, their order or the limits, and must leave nothing behind. Each case
//! starts a server in this process. At its end the case compares the descriptors and threads with those before. A
//! wait is for an event; only a failure takes time.
//!
//! Worker processes are the program started again, and this test is not that program.
//! `inrush/tests/serve/architectures.rs` tests their architectures from outside.

mod cases;
mod client;
mod harness;
mod legal;
mod paced;
mod secure;
