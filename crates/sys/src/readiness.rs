//! Readiness: which of many descriptors can be read or written without blocking, and waiting for one of them.
//!
//! One module for each of the kernel's interfaces: `epoll`, `poll`, `select`, `rt_signal` (signal-driven I/O) and `uring_poll`
//! (poll requests on an io_uring).
//!
//! Leaves out operations that the kernel carries out itself: [`completion`](crate::completion). The `dispatch` crate makes
//! event mechanisms of the system calls here.

pub mod epoll;
pub mod poll;
pub mod rt_signal;
pub mod select;
pub mod uring_poll;
