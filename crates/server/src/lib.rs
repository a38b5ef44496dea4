//! The web server: architectures, accepting, drivers, limits and counters.
//!
//! ```text
//!   start ── Architecture ── places loops on threads and processors
//!                 |
//!            driver::readiness   get events, accept, work, expire: one generic loop
//!             |       |      |
//!        Acceptor  http1   Service (site, admin)
//! ```
//!
//! A `driver` moves bytes between sockets and the [`http1`] machine, and an [`architecture`] decides which threads exist
//! and what each does. The admin interface is a small server on a thread of its own, so that it answers while the server
//! is overloaded.
//!
//! The other modules:
//!
//! - settings: `config`, `choices` and `setting`, already checked; `settings`, which may be replaced while the server
//!   runs;
//! - start and end: `run`, `upgrade`, `service_manager`, `plan`, `processes`, `scoreboard`, `config_text`, `threads`,
//!   `stop`, `error`; `confinement` and `privileges`, which give up rights at the start; `check`, which tries a
//!   configuration without starting a server;
//! - connections: `listener`, `accept`, `clients`, `proxy_protocol`, `slots`, `idle`, `refusals`, `refusal_loop`,
//!   `overload_control`, and `instructions`, its word to threads and processes that serve;
//! - answers: `hosts`, `service`, `unavailable`, `kernel_cache`, `certificates`, `access_log`, `load_report`;
//! - observation: `counters`, `admin`, `admin_access`, `side_servers`, the small servers beside the main one, and
//!   `agent_check`, which tells a load balancer the server's weight.
//!
//! Owns accepting, driving, limits, counters and shutting down. Does not parse HTTP and does not open files.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod accept;
mod access_log;
mod admin;
mod admin_access;
mod agent_check;
pub mod architecture;
mod certificates;
mod check;
mod choices;
mod clients;
mod config;
mod config_text;
mod confinement;
mod counters;
mod driver;
mod error;
mod hosts;
mod idle;
mod instructions;
mod kernel_cache;
mod listener;
mod load_report;
mod overload_control;
mod plan;
mod privileges;
pub mod processes;
pub mod proxy_protocol;
mod refusal_loop;
mod refusals;
mod run;
mod scoreboard;
mod service;
mod service_manager;
mod setting;
mod settings;
mod side_servers;
mod slots;
mod stop;
mod threads;
mod unavailable;
mod upgrade;

pub use accept::{AcceptLimit, LiveLimit};
pub use admin::metrics::samples as sample_metrics;
pub use admin_access::{AdminAddress, Token};
pub use architecture::Architecture;
pub use check::{Checked, check};
pub use choices::{Driver, OverloadHook, Switch, URING, queue_target};
pub use clients::{ClientSettings, Network};
pub use config::{AdminSettings, HostConfig, LogFormat, LogTarget, ServeConfig};
pub use confine::{Account, AccountError};
pub use confinement::Confined;
pub use counters::{AdmissionFigures, Counters, LoopCounts, StageFigures};
pub use error::ServeError;
pub use overload_control::{Overload, QueueFigures};
pub use plan::DEFAULT_DISPATCH;
pub use refusal_loop::DESCRIPTORS as REFUSAL_DESCRIPTORS;
pub use run::{Drained, Reread, Server};
pub use setting::{AnySetting, Chosen, Declaration};
pub use side_servers::Page;
pub use tls::Files as CertificateFiles;
pub use upgrade::run_starter;
