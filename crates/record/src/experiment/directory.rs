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
    /// Where it is.
    pub path: PathBuf,
}

/// Everything that one folder holds.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDirectory {
    /// The run.
    pub run: RunRecord,
    /// The last attempt at each trial that was tried, by its place in the plan. Each speaks for its trial.
    pub trials: Vec<TrialRecord>,
    /// The attempts before those, which were not good enough.
    pub superseded: Vec<TrialRecord>,
}

impl Directory {
    /// The folder at a path, which need not exist yet.
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

    /// Reads the run; none where there is no such file.
    ///
    /// # Errors
    /// [`RecordError`] for one that cannot be read.
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
    /// [`RecordError`], of the first file that cannot be read.
    pub fn read(&self) -> Result<RunDirectory, RecordError> {
        let run = file::read(&self.run_file())?;
        let (trials, superseded) = self.attempts()?;
        Ok(RunDirectory { run, trials, superseded })
    }

    /// The last attempt at each trial, and the earlier ones. Both empty where no trial has ended yet.
    ///
    /// # Errors
    /// [`RecordError`], of the first file that cannot be read.
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

/// Files of a folder that end in `.json`; none where there is no such folder. Temporary files of a
/// writer that was killed do not end so.
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
