//! The flags of `inrush lab`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Controlled experiments: servers under loads, repeated, with records and a report.
#[derive(Args, Debug)]
pub struct LabFlags {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What to do with experiments.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// The experiments that come with this program, and how long each takes
    List,
    /// Say what is wrong with experiment files, and how long they take
    Check {
        /// A file, or the name of an experiment that comes with this program
        #[arg(required = true, value_name = "FILE|NAME")]
        experiments: Vec<PathBuf>,
    },
    /// Carry out experiments; one that was broken off goes on
    Run {
        /// A file, or the name of an experiment that comes with this program
        #[arg(required = true, value_name = "FILE|NAME")]
        experiments: Vec<PathBuf>,
        #[command(flatten)]
        flags: LabRunFlags,
    },
    /// Carry out all experiments that come with this program: every figure of the papers
    Paper {
        #[command(flatten)]
        flags: LabRunFlags,
    },
    /// Make the report of a folder again, from its records: of one experiment, or of all in it
    Report {
        /// What lab run or lab paper wrote
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Set a second run beside a first one: two builds of a server, two kernels; ends with 4 where something got worse
    Compare(CompareFlags),
    /// Take away what a laboratory that was killed left behind
    Clean,
}

/// How experiments are carried out.
#[derive(Args, Debug)]
pub struct LabRunFlags {
    /// The reduced form: fewer points and trials
    #[arg(long)]
    pub quick: bool,

    /// Repetitions of each point, instead of the experiment's own
    #[arg(long, value_name = "N")]
    pub trials: Option<NonZeroU32>,

    /// Where records go: a folder for each experiment
    #[arg(long, value_name = "FOLDER", default_value = "inrush-lab")]
    pub out: PathBuf,
}

/// What is compared.
#[derive(Args, Debug)]
pub struct CompareFlags {
    /// What lab run or lab paper wrote: the run that is compared with
    #[arg(value_name = "FIRST")]
    pub first: PathBuf,

    /// The run that may be better or worse
    #[arg(value_name = "SECOND")]
    pub second: PathBuf,

    /// Changes below this share count as none
    #[arg(long, value_name = "SHARE", default_value = "2%")]
    pub matters: ::wan::Share,

    /// What is written to stdout
    #[arg(long, value_enum, default_value = "text")]
    pub output: CompareOutput,
}

/// What is written to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareOutput {
    /// A table to read
    Text,
    /// An array with an object for each experiment
    Json,
}
