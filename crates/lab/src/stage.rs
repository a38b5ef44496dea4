//! The stage of an experiment: where servers run, with which resources, and what the kernel counts meanwhile.
//!
//! Owns two sides with CPUs and addresses ([`topology`]), a bound on CPU time ([`cgroup`]), the servers and their
//! configurations ([`server_under_test`]), the kernel's counters ([`kernel`], read by [`proc`]), a side's [`sockets`], and
//! the [`memory`] of processes. [`leftovers`] removes
//! the remains of a killed run, which it finds by the marks of [`owner`]. Offers no load.

pub mod cgroup;
pub mod kernel;
pub mod leftovers;
pub mod memory;
pub mod owner;
pub mod proc;
pub mod server_under_test;
pub mod sockets;
pub mod topology;
