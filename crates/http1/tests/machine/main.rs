//! The two sides of a connection, without sockets: what they read, answer and refuse, and when.

#[path = "../support/mod.rs"]
mod support;

mod client;
mod deadlines;
mod early;
mod pace;
mod refusals;
mod server;
mod smuggling;
mod splits;
mod syntax;
mod transport;
mod waiting;
