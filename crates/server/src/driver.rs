//! Drivers move bytes between sockets and the protocol machine; nothing else does.

pub mod blocking;
pub mod completion;
pub mod event_loop;
pub mod kernel_threads;
pub mod lender;
pub mod machine;
pub mod pools;
pub mod readiness;
pub mod socket_service;
pub mod stages;
pub mod transfer;
pub mod user_threads;
