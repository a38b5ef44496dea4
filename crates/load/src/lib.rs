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
//! Four rooms; each uses only the rooms above it in this list:
//!
//! - `plan`: the load that the user asks for. Settings, arrival processes, workloads, populations, and the preflight that
//!   makes a [`Plan`].
//! - `measurement`: the outcome of that load. Ledger, histograms, intervals, the verdict and the result.
//! - `engine`: one thread that offers load. The S-client, schedules, transports, and clients that hold connections.
//! - `execution`: the threads, processes and machines that carry out a plan together.
//!
//! `error` defines the errors of all four.
//!
//! ```no_run
//! use load::{Client, Config, Sockets, Snapshot, Stop};
//!
//! let client = Client::SClient { rate: "2k".parse()?, arrivals: "poisson".parse()?, sockets: Sockets::Auto };
//! let plan = load::prepare(Config::new(vec!["http://127.0.0.1:8080/".parse()?], client))?;
//! let mut print = |seen: &Snapshot<'_>| eprintln!("{} replies", seen.point.replies);
//! let result = load::run(&plan, &mut print, &Stop::new())?;
//! result.balance()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod engine;
mod error;
mod execution;
mod measurement;
mod plan;

pub use engine::TOO_LATE;
pub use error::LoadError;
pub use execution::agents::{AgentEnd, run_agent};
pub use execution::calibrate;
pub use execution::processes::{run_assignment, run_in_processes};
pub use execution::protocol::Assignment;
pub use execution::run::{Gathering, ThreadInterval, run};
pub use execution::stop::Stop;
pub use measurement::fail_if::{self, Threshold};
pub use measurement::histograms::LONGEST;
pub use measurement::observer::{AgentPhase, AgentStanding, Observer, Snapshot, Standing};
pub use measurement::result::Reports;
pub use plan::Plan;
pub use plan::choices::arrivals::Process;
pub use plan::choices::expected::{Expected, Statuses};
pub use plan::choices::population::Population;
pub use plan::choices::retry::Retry;
pub use plan::choices::source_addresses::SourceRange;
pub use plan::choices::tempo::Tempo;
pub use plan::choices::tls::{ClientIdentity, KeyExchange, TlsOptions, TlsVersion, Trust};
pub use plan::choices::workload::{
    self, Body, DataFile, DataOrder, Field, FileError, Form, Length, Method, Replay, RequestFile, Spec, Think,
};
pub use plan::config::{
    AGENTS_MAX, CONNECT_TIMEOUT, Client, Close, Config, Link, Processes, REQUEST_TIMEOUT, SOURCE_NET,
    SOURCE_NET_V6, Sockets, Stack,
};
pub use plan::outline::{Descriptors, Hurst, Outline, Rates, SourcePorts};
pub use plan::preflight::{self, prepare};
pub use plan::round_trip::round_trip_warning;
pub use plan::terms::digest::Digest;
pub use plan::terms::target::Url;
pub use plan::terms::target::addressing::{Addressing, ConnectTo, Family, Resolve, Target};
pub use plan::terms::window::Window;
pub use usertcp::{LinkError, SourceNet};
