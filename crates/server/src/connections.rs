//! The life of a connection outside the driver: whether the server takes it, and for how long.
//!
//! - taking it: `accept`, `slots`, `overload_control`, and `refusals` for connections beyond the limit;
//! - keeping it: `idle`, the order of idle connections.
//!
//! Owns limits and policies. Does not move bytes: a [`driver`](crate::driver) does.

pub mod accept;
pub mod idle;
pub mod overload_control;
pub mod refusals;
pub mod slots;
