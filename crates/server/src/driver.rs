//! Drivers move bytes between sockets and the protocol machine; nothing else does.

pub mod blocking;
pub mod completion;
pub mod event_loop;
pub mod kernel_threads;
pub mod lender;
pub mod pools;
pub mod readiness;
pub mod stages;
pub mod user_threads;
