//! The open-loop load generator: it offers what it was asked to, whatever the server does with it.
//!
//! ```text
//!   arrivals -> schedule --due--> engine <--> server
//!                workload -----------^ |
//!                                      +--> ledger, recorder --interval--> assembly --> observer
//!                                                       \------------ end ------------> result
//! ```
//!
//! A [`Config`] is checked by construction and becomes a [`Plan`] by [`prepare`], which resolves the
//! target and says which limits will bite; [`run`] carries it out. Every request that was offered ends
//! in exactly one outcome or was in flight at the end; latency is measured from the time the
//! request was *meant* to be sent, and apart from that from the time it was; and a generator that could
//! not keep up says so in the verdict.
//!
//! Owns arrival processes, workloads, the S-client engine (Banga 1997), ledger, histograms and
//! thresholds. Does not know the command line, terminals or files; speaks HTTP/1.1 by `http1::client`.
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
mod sources;
mod stop;
mod target;
mod tempo;
mod tls;
mod transport;
pub mod verdict;
mod wire;
pub mod workload;

pub use arrivals::Process;
pub use config::{
    CONNECT_TIMEOUT, Client, Close, Config, Link, Processes, REQUEST_TIMEOUT, SOURCE_NET, SOURCE_NET_V6,
    Sockets, Stack,
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
pub use run::run;
pub use sources::SourceRange;
pub use stop::Stop;
pub use target::Url;
pub use tempo::Tempo;
pub use tls::{TlsOptions, Trust};
pub use usertcp::{LinkError, SourceNet};
pub use workload::{Body, Field, Form, Length, Method, Spec, Think};
