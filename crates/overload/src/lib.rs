//! Overload control: refuses connections that cannot be served in time, before the kernel has made them.
#![forbid(unsafe_code)]

pub mod hook;
mod total;

pub use hook::{Admission, Hook, NoHook};
