//! Protocols in words of memory that threads, processes and BPF programs share.
//!
//! Owns the order of loads and stores by which each protocol keeps its promise. A protocol is a few functions over
//! [`Word`], the atomic integer. The tests run the same functions over words of a model checker: it tries every
//! interleaving of a few tasks, and every value that the memory model lets a load return (`tests/models`).
//!
//! Leaves out the memory, which is `sys::shared`, and the meaning of the words. The wait queue and the mutex of crate
//! `wake` stand on the same words.
//!
//! The modules: `word` is the atomic integer and the sleep on it, `version` a sequence lock, `limit` a limit whose
//! counters lie apart, `claims` numbered things that one of two tasks gets, and `bell` the wake-up of sleepers that look
//! elsewhere for work.
#![forbid(unsafe_code)]

pub mod bell;
pub mod claims;
pub mod limit;
pub mod version;
mod word;

pub use word::{EVERY_SLEEPER, Futex, Word};
