//! The project's own chores: `cargo xtask bench serve|requests|load|accuracy|memory|dispatch|wan|usertcp`,
//! `cargo xtask campaign faults|fuzz|mutants|sanitize|suite`, `cargo xtask package`, `cargo xtask check-report`, `cargo xtask
//! docs` and `cargo xtask papers`.
//!
//! A benchmark measures Inrush and named rivals side by side, in runs that alternate in random order. It prints
//! ratios, because absolute figures do not travel from one machine to another. Anyone can run one again; a rival that
//! is not installed is left out and named.
//!
//! The modules: `bench` has the benchmarks, `rivals` the start of each rival, `test_bed` the place for both, and
//! `responder` the readiness limit. `campaign` tries faults. `package` builds what is released. `report` checks a report
//! and the records beside it. `papers` makes the report of the papers' runs. The crate `manual` writes the reference pages.
#![forbid(unsafe_code)]

mod bench;
mod campaign;
mod package;
mod papers;
mod report;
mod responder;
mod rivals;
mod test_bed;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use bench::usertcp::idle::{self, IdleOptions};
use responder::AfterReply;

/// Chores of the project.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Measure Inrush beside its rivals
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Measure a server's losses while parts of its environment fail
    #[command(subcommand)]
    Campaign(campaign::Campaign),
    /// Check the folder of a demonstration or an experiment: the records balance, and a browser can read the report
    CheckReport {
        /// The folder that `inrush demo --out` or `inrush lab run --out` was given
        folder: PathBuf,
    },
    /// Write the pages of docs/reference anew: commands, metrics, results
    Docs,
    /// Hold idle connections of TCP in user space (used by `bench usertcp`)
    Idle(IdleOptions),
    /// Build what is released into target/package, and start it: the static program, the Debian package, the container
    Package {
        /// Kinds of package; all without one
        #[arg(value_parser = ["static", "deb", "container"])]
        kinds: Vec<String>,
    },
    /// Make the report of the papers' runs in target/papers, and write anew what docs/papers shows of it
    Papers,
    /// The readiness limit as a server: answers any request with the same 1 KiB (used by `bench serve`)
    Responder {
        /// The address to listen on
        listen: SocketAddr,
        /// The fate of a connection that has its reply
        #[arg(long, value_enum, default_value = "keep")]
        after_reply: AfterReply,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Bench(bench) => bench::run(&bench),
        Chore::Campaign(campaign) => campaign::run(&campaign),
        Chore::CheckReport { folder } => report::check(&folder),
        Chore::Docs => manual::write().map(|pages| println!("{pages} pages in docs/reference")),
        Chore::Idle(options) => idle::run(&options),
        Chore::Package { kinds } => package::run(&kinds),
        Chore::Papers => papers::write(),
        Chore::Responder { listen, after_reply } => responder::run(listen, after_reply),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
