//! The two sides of a connection, without sockets: what they read, answer and refuse, and when.

#[path = "../support/mod.rs"]
mod support;

mod client;
mod connection;
mod floods;
mod holding;
mod pace;
