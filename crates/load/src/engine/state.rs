//! The state of an engine: what it knows of its clients between two events.
//!
//! `session` is a client's sequence of requests with its current connection, and `connections` are all of them with their
//! deadlines. `multiplex` has the streams of connections over HTTP/2, `retry_queue` the requests to be offered again, and
//! `unmade` the requests of broken sessions.
//!
//! Leaves out the work on it, which is the engine's; only the pool of kept connections has its work beside its state.

pub(super) mod connections;
pub(super) mod multiplex;
pub(super) mod retry_queue;
pub(super) mod session;
pub(super) mod unmade;
