//! One suite over every architecture, on every event mechanism that it is allowed, with real sockets.
//!
//! What an architecture may not change: the bytes, their order, the limits, and that nothing is left behind.
//! Each case starts a server in this process and, when it is over, compares the descriptors and threads
//! with those before. A wait is for an event; only a failure takes time.

mod cases;
mod client;
mod harness;
