//! How tasks that wait for the same thing are woken, in user space: the wait queue of Molloy and Lever (2000)
//! and the accept mutex of Apache and nginx.
//!
//! Owns two data structures in words of memory that whoever takes part in them shares: threads, or processes
//! that map the same words. The server waits by them, and the herd experiment measures the same code.
//! Leaves out what is waited for, and what a task does when it has been woken.
//!
//! The modules: `queue` is the wait queue, `mutex` the accept mutex.
#![forbid(unsafe_code)]

mod mutex;
mod queue;

pub use mutex::Mutex;
pub use queue::{Event, Kind, Queue, Woken};
