//! The open-loop load generator: offers load by a schedule, independent of the server's replies.
//!
//! ```text
//!   arrivals -> schedule --due--> engine <--> server
//!                workload -----------^ |
//!                                      +--> ledger, recorder --interval--> assembly --> observer
//!                                                       \------------ end ------------> result
//! ```
//!
//! [`prepare`] checks a [`Config`], resolves the target, names the limits that the run will reach, and
//! returns a [`Plan`]. [`run`] carries out the plan.
//!
//! Every offered request ends in exactly one outcome or was in flight at the end. Response latency counts
//! from the time the schedule *intended*; service latency counts from the time the request was sent. The
//! verdict says when the generator could not keep up.
//!
//! Owns arrival processes, workloads, the S-client engine (Banga 1997), ledger, histograms and thresholds.
//! Leaves out the command line, terminals and files; `http1::client` parses HTTP/1.1.
//!
//! The modules, in four groups:
//!
//! - The request: `config`, `target`, `workload` and `draws`, `arrivals`, `population`, `retry`, `expected`
//!   with `content`, `tls`, `fail_if`. `sources` chooses client addresses, `settings` takes a configuration to
//!   another machine, `outline` sums up a plan, and `preflight` checks the whole.
//! - One thread's engine: `engine`, `schedule` with `tempo`, `deadlines`, `transport`, `wire`, `receive`,
//!   `round_trip`.
//! - The figures: `ledger`, `recorder`, `books`, `buckets`, `series`, `verdict`, `conclusion`, `result`.
//! - Threads, processes and machines: `run`, `lanes`, `parts`, `pair`, `handover`, `agents`, `assembly`, `observer`, `stop`.
//!
//! `calibrate` searches the clean rate, and `error` defines the errors.
//!
//! ```no_run
//! use load::{Client, Config, Process, Sockets, Snapshot, Stop};
//!
//! let client = Client::SClient { rate: "2k".parse()?, arrivals: Process::Poisson, sockets: Sockets::Auto };
//! let plan = load::prepare(Config::new(vec!["http://127.0.0.1:8080/".parse()?], client))?;
//! let mut print = |seen: &Snapshot<'_>| eprintln!("{} replies", seen.point.replies);
//! let result = load::run(&plan, &mut print, &Stop::new())?;
//! result.balance()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod agents;
mod arrivals;
mod assembly;
mod books;
mod buckets;
pub mod calibrate;
mod conclusion;
mod config;
mod content;
mod deadlines;
mod draws;
mod engine;
mod error;
mod expected;
pub mod fail_if;
mod handover;
mod lanes;
mod ledger;
mod observer;
mod outline;
mod pair;
mod parts;
mod population;
pub mod preflight;
mod receive;
mod recorder;
mod result;
mod retry;
mod round_trip;
mod run;
mod schedule;
mod series;
mod settings;
mod sources;
mod stop;
mod target;
mod tempo;
mod tls;
mod transport;
pub mod verdict;
mod wire;
pub mod workload;

pub use agents::{AgentEnd, run_agent};
pub use arrivals::Process;
pub use config::{
    AGENTS_MAX, CONNECT_TIMEOUT, Client, Close, Config, Link, Processes, REQUEST_TIMEOUT, SOURCE_NET,
    SOURCE_NET_V6, Sockets, Stack,
};
pub use content::Digest;
pub use engine::TOO_LATE;
pub use error::LoadError;
pub use expected::{Expected, Statuses};
pub use fail_if::Threshold;
pub use ledger::Window;
pub use observer::{Observer, Snapshot, Standing};
pub use outline::{Descriptors, Hurst, Outline, Rates, SourcePorts};
pub use parts::{Part, run_in_processes, run_part};
pub use population::Population;
pub use preflight::{Plan, prepare};
pub use recorder::LONGEST;
pub use retry::Retry;
pub use round_trip::round_trip_warning;
pub use run::{Gathering, Reports, Told, run};
pub use sources::SourceRange;
pub use stop::Stop;
pub use target::Url;
pub use tempo::Tempo;
pub use tls::{TlsOptions, Trust};
pub use usertcp::{LinkError, SourceNet};
pub use workload::{Body, Field, Form, Length, Method, Spec, Think};
