//! The stage of an experiment: where servers run, with which resources, and what the kernel counts meanwhile.
//!
//! Owns two sides with CPUs and addresses ([`topology`]), a bound on CPU time ([`cgroup`]), the servers and their
//! configurations ([`server_under_test`]), the kernel's counters ([`kernel`]), and the removal of everything that a killed
//! run left behind ([`leftovers`], by the marks of [`owner`]). Offers no load.

pub mod cgroup;
pub mod kernel;
pub mod leftovers;
pub mod owner;
pub mod server_under_test;
pub mod topology;
