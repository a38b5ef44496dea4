//! Overload control: an accept queue that is bounded by time.
//!
//! An accept queue of 4096 connections is seconds of work, served in order of arrival. At ten times its
//! capacity, a server with such a queue answers almost no client in time. This crate bounds the wait. It
//! refuses the connections that cannot be served in time where a refusal costs least: before the kernel has
//! created them.
//!
//! ```text
//!   kernel: queue depth, drops ──┐                      ┌──> hook: which SYNs pass
//!   loop: accepted, queue found ─┼──> law ──> decision ─┼──> listener: the backlog
//!   empty, turn length, how full ┘   every 5 ms         └──> driver: treatment of open connections
//!
//!   loop: time of accepting and working ──> accept-limit of the next turn
//! ```
//!
//! - [`law`] decides, without I/O and without a clock, when to refuse connections, and how many.
//! - [`adaptive_limit`] bounds a turn of the loop by time, so that sessions come before strangers.
//! - [`law::sessions`] decides about open connections while new ones are refused.
//! - [`hook`] refuses, by a sink or by the backlog alone; other crates implement hooks on devices.
//! - [`QueueControl`] reads the signals of one accept queue, calls the law, and applies its decision to the
//!   hook and the kernel. A driver holds one for each accept queue.
//! - [`foreign`] is its counterpart for a listener that belongs to another program.
//!
//! The law alone, at a server of 1000 connections a second that is offered ten times as many:
//!
//! ```
//! use base::Nanos;
//! use overload::{Controller, Settings, Signals, State};
//!
//! let mut law = Controller::new(Settings::default(), Nanos::ZERO);
//! let mut signals = Signals::default();
//! for tick in 1..=400 {
//!     let now = Nanos::from_millis(5) * tick;
//!     signals.accepted += 5;
//!     // Nothing refuses SYNs here, so the queue grows until it is full.
//!     signals.queued = (signals.queued + 45).min(4096);
//!     law.tick(now, &signals);
//! }
//! assert_eq!(law.decision().state, State::Shedding);
//! assert!(law.decision().admission.share < 0.2);
//! ```
//!
//! `examples/server.rs` is a whole server with one loop.
//!
//! One controller belongs to one accept queue. Its owner is a loop with its own listeners, a dispatcher, or
//! the parent of worker processes that share a queue. Several loops in one SO_REUSEPORT group have a
//! controller each, since their processors are not equally busy. They share the hook, whose program keeps a
//! share for each.
//!
//! Leaves out the sockets of connections, HTTP, and drawing.
//!
//! Besides these, `queue_control` holds [`QueueControl`], and `total` widens the kernel's 32-bit counters.
#![forbid(unsafe_code)]

pub mod adaptive_limit;
pub mod foreign;
pub mod hook;
pub mod law;
mod queue_control;
mod total;

pub use adaptive_limit::AdaptiveLimit;
pub use foreign::{AcceptQueueReading, ForeignControl, ForeignDecision, Readings, RequestTotals};
pub use hook::{Admission, Hook, NoHook};
pub use law::{Change, Controller, Decision, Sessions, Settings, Signals, State};
pub use queue_control::{Progress, QueueControl, Ticked};
