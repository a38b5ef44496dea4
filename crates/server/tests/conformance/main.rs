//! One suite over every architecture, on every event mechanism that it is allowed, with real sockets.
//!
//! What an architecture may not change: the bytes, their order, the limits, and that nothing is left behind.
//! Each case starts a server in this process and, when it is over, compares the descriptors and threads
//! with those before. A wait is for an event; only a failure takes time.
//!
//! Worker processes are the program started again, and this test is not that program: the architectures that have
//! them go through such a suite from outside (`inrush/tests/serve/architectures.rs`).

mod cases;
mod client;
mod harness;
mod secure;
