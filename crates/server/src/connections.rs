//! The life of a connection outside the driver: whether the server takes it, for whom, and for how long.
//!
//! - taking it: `accept`, `slots`, `overload_control`, and `refusals` for connections beyond the limit;
//! - its client: `clients`, the limits of each one, and `proxy_protocol`, the address behind a load balancer;
//! - keeping it: `idle`, the order of idle connections, and `settings`, limits that may change meanwhile.
//!
//! Owns limits and policies. Does not move bytes: a [`driver`](crate::driver) does.

pub mod accept;
pub mod clients;
pub mod idle;
pub mod overload_control;
pub mod proxy_protocol;
pub mod refusals;
pub mod settings;
pub mod slots;
