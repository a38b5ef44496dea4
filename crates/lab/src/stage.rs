//! The stage of an experiment: where servers run, with which resources, and what the kernel counts meanwhile.
//!
//! Owns two sides with CPUs and addresses ([`topology`]), a bound on CPU time ([`cgroup`]), the servers and their
//! configurations ([`server_under_test`]), and the kernel's counters ([`kernel`], read by [`proc`]). [`leftovers`] removes
//! the remains of a killed run, which it finds by the marks of [`owner`]. Offers no load.

pub mod cgroup;
pub mod kernel;
pub mod leftovers;
pub mod owner;
pub mod proc;
pub mod server_under_test;
pub mod topology;
