//! The web server: architectures, accepting, drivers, limits and counters.
//!
//! ```text
//!   start ── Architecture ── places loops on threads and processors
//!                 |
//!            driver::readiness   get events, accept, work, expire: one generic loop
//!             |       |      |
//!        Acceptor connection Service (site)
//! ```
//!
//! A `driver` waits for sockets and lets each [`connection`] work. An [`architecture`] decides which threads exist and what
//! each does. The admin interface is a small server on a thread of its own, so that it answers while the server is
//! overloaded.
//!
//! Each room uses only rooms below it:
//!
//! - `run` starts and stops a server, or tries a configuration without starting one;
//! - [`architecture`]: which threads and processes exist, and what each does;
//! - `operation`: the admin interface, upgrades, confinement, systemd;
//! - [`processes`], the workers that are processes;
//! - `plan`: what an architecture gets from `run`, for its threads, and the loop that answers refused connections;
//! - `service`, the answers, and `kernel_cache`, the answers that the kernel gives;
//! - `driver`: who waits for which socket, and when a connection works;
//! - `observation`: the access log and reports to load balancers;
//! - `config`, checked settings, and `connections`, the connections that are let in, and for how long;
//! - `ground`: counters, errors, threads, listeners.
//!
//! Owns accepting, driving, limits, counters and shutting down. Does not parse HTTP and does not open files.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod architecture;
mod config;
mod connections;
mod driver;
mod ground;
mod kernel_cache;
mod observation;
mod operation;
mod plan;
pub mod processes;
mod run;
mod service;

pub use architecture::Architecture;
pub use bpf::Exempt;
pub use config::driver::ChosenDriver;
pub use config::serve::{AdminSettings, HostConfig, LogFormat, LogTarget, ServeConfig};
pub use confine::{Account, AccountError};
pub use connection::clients::ClientSettings;
pub use connections::accept::{AcceptLimit, LiveLimit};
pub use connections::overload_control::{Overload, QueueFigures};
pub use ground::choices::{Choice, Driver, OverloadHook, Switch, URING, queue_target};
pub use ground::counters::{AdmissionFigures, Counters, LoopCounts, StageFigures};
pub use ground::error::ServeError;
pub use operation::admin::metrics::samples as sample_metrics;
pub use operation::confinement::Confined;
pub use operation::upgrade::run_starter;
pub use plan::DEFAULT_DISPATCH;
pub use plan::refusal_loop::DESCRIPTORS as REFUSAL_DESCRIPTORS;
pub use run::check::{Checked, check};
pub use run::{Drained, Reread, Server};
pub use side_servers::{AdminAddress, Token};
pub use tls::Files as CertificateFiles;
