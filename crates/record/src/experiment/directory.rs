//! The files of a run of an experiment.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{RunRecord, TrialRecord};
use crate::file::{self, RecordError};

/// A folder that holds one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The folder's path.
    pub path: PathBuf,
}

/// Everything that one folder holds.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDirectory {
    /// The run.
    pub run: RunRecord,
    /// The last attempt at each trial that was tried, by its place in the plan. Each speaks for its trial.
    pub trials: Vec<TrialRecord>,
    /// The attempts that a later attempt replaced.
    pub superseded: Vec<TrialRecord>,
}

impl Directory {
    /// Returns the folder at a path, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Directory {
        Directory { path: path.into() }
    }

    /// The run's file.
    pub fn run_file(&self) -> PathBuf {
        self.path.join("experiment.json")
    }

    /// The folder of the trials' files.
    pub fn trials_folder(&self) -> PathBuf {
        self.path.join("trials")
    }

    /// The file of an attempt.
    pub fn trial_file(&self, order: u32, attempt: u32) -> PathBuf {
        self.trials_folder().join(format!("{order:04}-{attempt}.json"))
    }

    /// Reads the run, or returns `None` if the file does not exist.
    ///
    /// # Errors
    /// [`RecordError`] if the file cannot be read.
    pub fn run(&self) -> Result<Option<RunRecord>, RecordError> {
        match file::read(&self.run_file()) {
            Ok(run) => Ok(Some(run)),
            Err(RecordError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the run and all its trials.
    ///
    /// # Errors
    /// [`RecordError`] of the first file that cannot be read.
    pub fn read(&self) -> Result<RunDirectory, RecordError> {
        let run = file::read(&self.run_file())?;
        let (trials, superseded) = self.attempts()?;
        Ok(RunDirectory { run, trials, superseded })
    }

    /// Returns the last attempt at each trial, and the earlier attempts. Both are empty before the first trial has
    /// ended.
    ///
    /// # Errors
    /// [`RecordError`] of the first file that cannot be read.
    pub fn attempts(&self) -> Result<(Vec<TrialRecord>, Vec<TrialRecord>), RecordError> {
        let mut all = Vec::new();
        for path in json_files(&self.trials_folder())? {
            all.push(file::read::<TrialRecord>(&path)?);
        }
        all.sort_by_key(|trial| (trial.order, trial.attempt));
        let mut last: BTreeMap<u32, TrialRecord> = BTreeMap::new();
        let earlier = all.into_iter().filter_map(|trial| last.insert(trial.order, trial)).collect();
        Ok((last.into_values().collect(), earlier))
    }
}

/// Lists the files of a folder that end in `.json`; the list is empty if the folder does not exist. A temporary file,
/// left by a writer that was killed, has another ending.
fn json_files(folder: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(RecordError::Io { verb: "read", path: folder.to_owned(), cause }),
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    Ok(files)
}
