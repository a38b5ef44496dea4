//! Pools whose members, threads or processes, wait for one connection at a time.
//!
//! Owns the decisions that all such pools share. Leaves out how a member waits, accepts and serves.
//!
//! The modules: `waiters` wakes a member for a connection. `full_pool` decides what becomes of connections while every
//! member is busy, and `idle_threads` which idle connection gives way.

pub mod full_pool;
pub mod idle_threads;
pub mod waiters;
