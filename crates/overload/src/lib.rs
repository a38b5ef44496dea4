//! Overload control: an accept queue that is bounded by time.
//!
//! An accept queue of 4096 connections is seconds of work, served in order of arrival: at ten times its capacity a
//! server with such a queue answers almost nobody in time. This crate bounds the wait, and refuses what cannot be
//! served in time where refusing costs least, before the kernel has made a connection of it.
//!
//! ```text
//!   kernel: queue depth, drops ──┐                      ┌──> hook: which SYNs pass
//!   loop: accepted, queue found ─┼──> law ──> decision ─┼──> listener: the backlog
//!   empty, turn length, how full ┘   every 5 ms         └──> driver: what becomes of open connections
//!
//!   loop: time of accepting and working ──> accept-limit of the next turn
//! ```
//!
//! - [`law`] decides, without I/O and without a clock: when to refuse, and how many.
//! - [`accept_limit`] bounds a turn of the loop by time, so that sessions come before strangers.
//! - [`sessions`] says what becomes of open connections while connections are refused.
//! - [`hook`] refuses: a sink, or nothing but the backlog; hooks on devices are implementations elsewhere.
//! - [`QueueControl`] reads the signals of one accept queue, asks the law, and tells the hook and the kernel. A driver
//!   holds one for each accept queue.
//!
//! One controller belongs to one accept queue: to a loop with listeners of its own, to a dispatcher, or to the parent
//! of worker processes that accept from one queue. Several loops in one SO_REUSEPORT group have a controller each,
//! since their processors are not equally busy; they share the sinks, whose program keeps a share for each.
//!
//! Leaves out sockets of connections, HTTP, and drawing what it knows.
//!
//! Besides these, `queue_control` holds [`QueueControl`], and `total` widens the kernel's 32-bit counters.
#![forbid(unsafe_code)]

pub mod accept_limit;
pub mod hook;
pub mod law;
mod queue_control;
pub mod sessions;
mod total;

pub use accept_limit::AcceptLimit;
pub use hook::{Admission, Hook, NoHook};
pub use law::{Change, Controller, Decision, Settings, Signals, State};
pub use queue_control::{Progress, QueueControl, Ticked};
pub use sessions::Sessions;
