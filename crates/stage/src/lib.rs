//! The stage of an experiment: the places of servers, their resources, and the kernel's counters.
//!
//! Owns two sides with CPUs and addresses ([`topology`]), a bound on CPU time ([`cgroup`]), and the servers with
//! their configurations ([`server_under_test`]), their certificate ([`identity`]) and their files ([`fileset`]). Reads
//! the kernel's counters ([`kernel`], by [`proc`]), a side's [`sockets`], and the [`memory`] of processes. [`leftovers`]
//! removes the remains of a killed run, which it finds by the marks of [`owner`]. Offers no load.
#![forbid(unsafe_code)]

pub mod cgroup;
pub mod fileset;
pub mod identity;
pub mod kernel;
pub mod leftovers;
pub mod memory;
pub mod owner;
pub mod proc;
pub mod server_under_test;
pub mod sockets;
pub mod topology;
