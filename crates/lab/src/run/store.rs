//! The files of a run while it goes on.
//!
//! Owns writing each attempt when it ends, keeping a record that a full disk refused and writing it later, and resuming an
//! interrupted run. Invariant: a file is a whole record or not there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use record::Manifest;
use record::experiment::{Directory, Flaw, RunRecord, TrialRecord};
use record::file::{self, RecordError};

/// The state of a planned trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Attempts so far.
    pub attempts: u32,
    /// True if the last attempt is valid.
    pub valid: bool,
    /// True if the last attempt has a result, flawed or not.
    pub has_result: bool,
}

impl Known {
    fn of(trial: &TrialRecord) -> Known {
        Known {
            attempts: trial.attempt,
            valid: trial.is_valid(),
            has_result: !trial.flaws.contains(&Flaw::Failed),
        }
    }
}

/// A run and its files.
#[derive(Debug)]
pub struct Store {
    directory: Directory,
    /// The run as it stands.
    pub run: RunRecord,
    known: BTreeMap<u32, Known>,
    unwritten: Vec<TrialRecord>,
}

impl Store {
    /// Begins a run in a folder, or resumes the interrupted run there.
    ///
    /// # Errors
    /// The folder cannot be written or read, or holds a run of another experiment.
    pub fn open(path: PathBuf, fresh: RunRecord) -> anyhow::Result<Store> {
        let directory = Directory::new(path);
        let folder = directory.trials_folder();
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut run = fresh;
        if let Some(earlier) = directory.run()? {
            let same = (&earlier.text, earlier.form, earlier.trials, earlier.planned)
                == (&run.text, run.form, run.trials, run.planned);
            if !same {
                bail!(
                    "{} holds a run of another form or version of {}; give another --out or remove it",
                    directory.path.display(),
                    run.name
                );
            }
            if !earlier.finished && earlier.topology.kind != run.topology.kind {
                bail!(
                    "{} holds a part of a run whose two sides were joined otherwise (see inrush doctor); continue it \
                     with the same rights, give another --out or remove it",
                    directory.path.display(),
                );
            }
            let (first, now) = (machine(&earlier.manifest), machine(&run.manifest));
            run = earlier;
            if !run.finished {
                // A run that was broken off tries the excluded servers again.
                run.servers.iter_mut().for_each(|server| server.excluded = None);
                let moved =
                    format!("The run began on {first} and continued on {now}; do not compare their trials.");
                if first != now && !run.warnings.contains(&moved) {
                    run.warnings.push(moved);
                }
            }
        }
        let mut known: BTreeMap<u32, Known> = BTreeMap::new();
        for trial in directory.attempts()?.0 {
            known.insert(trial.order, Known::of(&trial));
        }
        let store = Store { directory, run, known, unwritten: Vec::new() };
        store.write_run()?;
        Ok(store)
    }

    /// Returns the state of the trial at a place of the plan.
    pub fn known(&self, order: u32) -> Known {
        self.known.get(&order).copied().unwrap_or_default()
    }

    /// Returns the number of places whose last attempt is valid.
    pub fn valid(&self) -> usize {
        self.known.values().filter(|known| known.valid).count()
    }

    /// Returns the number of places whose last attempt has a result.
    pub fn results(&self) -> usize {
        self.known.values().filter(|known| known.has_result).count()
    }

    /// Returns the number of attempts beyond the first of each place.
    pub fn repeated(&self) -> usize {
        self.known.values().map(|known| known.attempts.saturating_sub(1) as usize).sum()
    }

    /// Adds an attempt and writes it. Keeps a record that cannot be written, and retries with the next attempt.
    ///
    /// # Errors
    /// [`RecordError`] of the first record that could not be written. The store keeps it.
    pub fn add(&mut self, trial: TrialRecord) -> Result<(), RecordError> {
        self.known.insert(trial.order, Known::of(&trial));
        self.unwritten.push(trial);
        self.write_trials()
    }

    /// Adds a flaw to the last attempts at the places that a rule names, and writes them again. The rule sees all last
    /// attempts. Returns the number of attempts that did not have the flaw. Keeps a record that cannot be written for
    /// the next [`Store::flush`].
    ///
    /// # Errors
    /// A record that cannot be read.
    pub fn flaw(
        &mut self,
        flaw: Flaw,
        rule: impl FnOnce(&[TrialRecord]) -> Vec<u32>,
    ) -> anyhow::Result<usize> {
        let mut last: BTreeMap<u32, TrialRecord> = BTreeMap::new();
        let written = self.directory.attempts()?.0.into_iter();
        last.extend(written.chain(self.unwritten.iter().cloned()).map(|trial| (trial.order, trial)));
        let trials: Vec<TrialRecord> = last.into_values().collect();
        let named = rule(&trials);
        let mut added = 0;
        for mut trial in trials.into_iter().filter(|trial| named.contains(&trial.order)) {
            if !trial.flaws.contains(&flaw) {
                added += 1;
                trial.flaws.push(flaw);
                // A full disk must not end the run: the store keeps the record, and the next flush tells.
                let _ = self.add(trial);
            }
        }
        Ok(added)
    }

    fn write_trials(&mut self) -> Result<(), RecordError> {
        while let Some(trial) = self.unwritten.first() {
            file::write(&self.directory.trial_file(trial.order, trial.attempt), trial)?;
            self.unwritten.remove(0);
        }
        Ok(())
    }

    /// Writes the outstanding records, and the run itself.
    ///
    /// # Errors
    /// [`RecordError`] of the first file that could not be written.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        self.write_trials()?;
        self.write_run()
    }

    fn write_run(&self) -> Result<(), RecordError> {
        file::write(&self.directory.run_file(), &self.run)
    }
}

/// Returns the parts of a machine that decide a trial's figures, in words. Our own servers are a part.
fn machine(manifest: &Manifest) -> String {
    let cpus = |side: &str| manifest.config.get(side).map_or("", String::as_str);
    let (server, client) = (cpus("server_cpus"), cpus("client_cpus"));
    let Manifest { cpu, kernel, version, .. } = manifest;
    format!("{cpu} with Linux {kernel} and Inrush {version} (server's CPUs {server}, client's {client})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::experiment::{Form, RUN_SCHEMA, ServerRecord, TRIAL_SCHEMA};
    use record::{Topology, TopologyKind};

    fn run(text: &str) -> RunRecord {
        RunRecord {
            schema: RUN_SCHEMA.to_owned(),
            name: "x".to_owned(),
            text: text.to_owned(),
            form: Form::Full,
            trials: 2,
            topology: Topology { kind: TopologyKind::Loopback, warnings: Vec::new() },
            servers: Vec::new(),
            capacities: Vec::new(),
            planned: 4,
            finished: false,
            warnings: Vec::new(),
            manifest: Manifest::default(),
        }
    }

    fn trial(order: u32, attempt: u32, flaws: Vec<Flaw>) -> TrialRecord {
        TrialRecord {
            schema: TRIAL_SCHEMA.to_owned(),
            server: "a".to_owned(),
            order,
            attempt,
            flaws,
            ..TrialRecord::default()
        }
    }

    #[test]
    fn a_broken_off_run_is_taken_up_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path().to_owned(), run("a")).unwrap();
        store.add(trial(0, 1, vec![])).unwrap();
        store.add(trial(3, 1, vec![Flaw::Noisy])).unwrap();
        store.add(trial(3, 2, vec![Flaw::Noisy])).unwrap();
        drop(store);
        let store = Store::open(folder.path().to_owned(), run("a")).unwrap();
        assert_eq!(store.known(0), Known { attempts: 1, valid: true, has_result: true });
        assert_eq!(store.known(3), Known { attempts: 2, valid: false, has_result: true });
        assert_eq!(store.known(1), Known::default());
        assert_eq!((store.valid(), store.results(), store.repeated()), (1, 2, 1));
        let read = Directory::new(folder.path()).read().unwrap();
        assert_eq!(read.trials.iter().map(|t| (t.order, t.attempt)).collect::<Vec<_>>(), [(0, 1), (3, 2)]);
        assert_eq!(read.superseded.len(), 1);
    }

    #[test]
    fn a_flaw_is_added_to_last_attempts_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path().to_owned(), run("a")).unwrap();
        store.add(trial(0, 1, vec![Flaw::Noisy])).unwrap();
        store.add(trial(0, 2, vec![])).unwrap();
        store.add(trial(1, 1, vec![])).unwrap();
        let all = |trials: &[TrialRecord]| {
            assert_eq!(trials.iter().map(|trial| trial.attempt).collect::<Vec<_>>(), [2, 1]);
            vec![0]
        };
        assert_eq!(store.flaw(Flaw::MachineSlowed, all).unwrap(), 1);
        assert_eq!((store.known(0).valid, store.known(1).valid), (false, true));
        assert_eq!(store.flaw(Flaw::MachineSlowed, |_| vec![0]).unwrap(), 0, "it has it already");
        let read = Directory::new(folder.path()).read().unwrap();
        assert_eq!(read.trials[0].flaws, [Flaw::MachineSlowed]);
        assert_eq!(read.superseded[0].flaws, [Flaw::Noisy]);
    }

    #[test]
    fn a_part_of_a_run_keeps_its_network_and_its_warnings() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path().to_owned(), run("a")).unwrap();
        store.run.warnings.push("a lower bound".to_owned());
        store.flush().unwrap();
        let other = Topology { kind: TopologyKind::Namespaces, warnings: Vec::new() };
        let elsewhere = RunRecord { topology: other.clone(), ..run("a") };
        let error = Store::open(folder.path().to_owned(), elsewhere.clone()).unwrap_err().to_string();
        assert!(error.contains("were joined otherwise"), "{error}");
        let mut store = Store::open(folder.path().to_owned(), run("a")).unwrap();
        assert_eq!(store.run.warnings, ["a lower bound"]);
        store.run.finished = true;
        store.flush().unwrap();
        let store = Store::open(folder.path().to_owned(), elsewhere).unwrap();
        assert_eq!(store.run.topology.kind, TopologyKind::Loopback);
    }

    #[test]
    fn resumed_run_keeps_lines_and_retries_excluded() {
        let folder = tempfile::tempdir().unwrap();
        let server = ServerRecord { name: "b".to_owned(), command: Vec::new(), excluded: None };
        let fresh = RunRecord { servers: vec![server], ..run("a") };
        let mut store = Store::open(folder.path().to_owned(), fresh.clone()).unwrap();
        store.run.servers[0].command = vec!["inrush".to_owned()];
        store.run.servers[0].excluded = Some("no start".to_owned());
        store.flush().unwrap();
        let mut store = Store::open(folder.path().to_owned(), fresh.clone()).unwrap();
        assert_eq!(store.run.servers[0].command, ["inrush"]);
        assert_eq!(store.run.servers[0].excluded, None);
        store.run.servers[0].excluded = Some("no start".to_owned());
        store.run.finished = true;
        store.flush().unwrap();
        let store = Store::open(folder.path().to_owned(), fresh).unwrap();
        assert!(store.run.servers[0].excluded.is_some());
    }

    #[test]
    fn run_resumed_elsewhere_names_both_machines_once() {
        let folder = tempfile::tempdir().unwrap();
        let on = |kernel: &str| {
            let manifest = Manifest { kernel: kernel.to_owned(), cpu: "X".to_owned(), ..Manifest::default() };
            Store::open(folder.path().to_owned(), RunRecord { manifest, ..run("a") }).unwrap().run
        };
        assert!(on("6.1").warnings.is_empty() && on("6.1").warnings.is_empty());
        let (first, second) = (on("6.2"), on("6.2"));
        assert_eq!(first.warnings.len(), 1);
        assert!(["Linux 6.1", "Linux 6.2"].iter().all(|name| first.warnings[0].contains(name)), "{first:?}");
        assert_eq!((&second.warnings, &second.manifest.kernel[..]), (&first.warnings, "6.1"));
    }

    #[test]
    fn run_resumed_by_another_version_names_both() {
        let folder = tempfile::tempdir().unwrap();
        let by = |version: &str| {
            let manifest = Manifest { version: version.to_owned(), ..Manifest::default() };
            Store::open(folder.path().to_owned(), RunRecord { manifest, ..run("a") }).unwrap().run
        };
        assert!(by("0.1.0").warnings.is_empty());
        let resumed = by("0.2.0");
        assert!(["0.1.0", "0.2.0"].iter().all(|name| resumed.warnings[0].contains(name)), "{resumed:?}");
    }

    #[test]
    fn a_run_of_something_else_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        drop(Store::open(folder.path().to_owned(), run("a")).unwrap());
        let error = Store::open(folder.path().to_owned(), run("b")).unwrap_err().to_string();
        assert!(error.contains("holds a run of another form or version of x"), "{error}");
    }

    #[test]
    fn what_could_not_be_written_is_written_with_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path().to_owned(), run("a")).unwrap();
        let trials = folder.path().join("trials");
        std::fs::remove_dir(&trials).unwrap();
        assert!(store.add(trial(0, 1, vec![])).is_err());
        std::fs::create_dir(&trials).unwrap();
        store.add(trial(1, 1, vec![])).unwrap();
        assert_eq!(Directory::new(folder.path()).attempts().unwrap().0.len(), 2);
    }

    #[test]
    fn full_disk_neither_reverts_attempts_nor_ends_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path().to_owned(), run("a")).unwrap();
        store.add(trial(0, 1, vec![Flaw::Noisy])).unwrap();
        // A folder in the place of its file keeps a record from being written.
        let place = Directory::new(folder.path()).trial_file(0, 2);
        std::fs::create_dir(&place).unwrap();
        assert!(store.add(trial(0, 2, vec![])).is_err());
        std::fs::remove_dir(&place).unwrap();
        let rule = |trials: &[TrialRecord]| {
            assert_eq!(trials.iter().map(|trial| trial.attempt).collect::<Vec<_>>(), [2]);
            std::fs::create_dir(&place).unwrap();
            vec![0]
        };
        assert_eq!(store.flaw(Flaw::MachineSlowed, rule).unwrap(), 1);
        assert_eq!(store.known(0), Known { attempts: 2, valid: false, has_result: true });
        std::fs::remove_dir(&place).unwrap();
        store.flush().unwrap();
        assert_eq!(Directory::new(folder.path()).read().unwrap().trials[0].flaws, [Flaw::MachineSlowed]);
    }
}
