//! Controlled experiments: servers under load, side by side, on this machine.
//!
//! Owns where server and client run ([`topology`]), what is served ([`fileset`]), the servers compared
//! ([`server_under_test`]), one run of load against one of them ([`trial`]), the search for a capacity
//! ([`capacity`], and [`knee`] for what is past it), the order and lengths of trials ([`plan`]), what the kernel did meanwhile
//! ([`kernel`]), what a person sees while it runs ([`progress`]), and the pictures of it all ([`report`]).
//! [`demo`] puts them together.
//!
//! Invariants: servers and clients are processes; this crate links neither. A result is a file before it
//! is a picture: every trial is written when it ends, and a report is a pure function of records.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod capacity;
pub mod cgroup;
pub mod demo;
pub mod doctor;
pub mod experiment;
pub mod fileset;
pub mod kernel;
pub mod knee;
pub mod leftovers;
pub mod library;
pub mod plan;
pub mod progress;
pub mod report;
pub mod run;
pub mod server_under_test;
pub mod topology;
pub mod trial;
