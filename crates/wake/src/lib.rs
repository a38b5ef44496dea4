//! Wakes tasks that wait for the same event, in user space: the wait queue of Molloy and Lever (2000) and the
//! accept mutex of Apache and nginx.
//!
//! Owns two data structures in words of memory. Their users share the words: threads, or processes that map
//! the same memory. The server waits by these structures, and the herd experiment measures the same code.
//! Leaves out the event itself, and the work of a woken task.
//!
//! The modules: `queue` is the wait queue, `mutex` the accept mutex.
#![forbid(unsafe_code)]

mod mutex;
mod queue;

pub use mutex::Mutex;
pub use queue::{Event, Kind, Queue, Woken};
