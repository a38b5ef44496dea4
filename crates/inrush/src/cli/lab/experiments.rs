//! The flags of `inrush lab`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::values::number::from_one_up;
use crate::cli::values::text_or_json::TextOrJson;

/// Controlled experiments: servers under loads, repeated, with records and a report.
#[derive(Args, Debug)]
pub struct LabFlags {
    /// The command of the lab.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// Commands of the lab.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List the experiments that come with this program, with the time of each
    List,
    /// List the metrics of a trial: the names for figures and claims, with their units
    Metrics,
    /// Check experiment files, and estimate their times
    Check {
        /// A file, or the name of an experiment that comes with this program
        #[arg(required = true, value_name = "FILE|NAME")]
        experiments: Vec<PathBuf>,
    },
    /// Carry out experiments, or continue interrupted ones
    Run {
        /// A file, or the name of an experiment that comes with this program
        #[arg(required = true, value_name = "FILE|NAME")]
        experiments: Vec<PathBuf>,
        #[command(flatten)]
        flags: LabRunFlags,
    },
    /// Carry out the experiments of the papers that come with this program: every figure
    Paper {
        #[command(flatten)]
        flags: LabRunFlags,
    },
    /// Write the report of a folder again from its records: of one experiment, or of all in the folder
    Report {
        /// Folder that lab run or lab paper wrote
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Compare two runs, such as of two builds of a server or two kernels; exit with 4 if a measure got worse or a server
    /// was lost
    Compare(CompareFlags),
    /// Remove the remains of a killed laboratory
    Clean,
}

/// Flags of a run of experiments.
#[derive(Args, Debug)]
pub struct LabRunFlags {
    /// Run the reduced form: fewer points and trials
    #[arg(long)]
    pub quick: bool,

    /// Number of repetitions of each point [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = from_one_up::<NonZeroU32>)]
    pub trials: Option<NonZeroU32>,

    /// Folder for the records, with a folder for each experiment
    #[arg(long, value_name = "FOLDER", default_value = "inrush-lab")]
    pub out: PathBuf,
}

/// Flags of a comparison.
#[derive(Args, Debug)]
pub struct CompareFlags {
    /// Folder of the first run, which lab run or lab paper wrote
    #[arg(value_name = "FIRST")]
    pub first: PathBuf,

    /// Folder of the second run, which may be better or worse
    #[arg(value_name = "SECOND")]
    pub second: PathBuf,

    /// Smallest change that counts, as a share
    #[arg(long, value_name = "SHARE", default_value = "2%")]
    pub matters: ::wan::Share,

    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    pub output: TextOrJson,
}
