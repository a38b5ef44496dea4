//! A run of an experiment, read from its folder and analysed as a whole.

use std::path::Path;

use anyhow::Context;
use experiment::{Experiment, Remarks, ServerKind};
use record::experiment::{Directory, Flaw, RunDirectory, TrialRecord};

use crate::claims::{Judged, judge_all};
use crate::points::{Plot, plot};

/// The records of a run, with their experiment and the results of the analysis.
pub struct Analysed {
    /// The experiment, in the form that was run.
    pub experiment: Experiment,
    /// The records, with the experiment's derived metrics.
    pub run: RunDirectory,
    /// The plot of each figure.
    pub plots: Vec<Plot>,
    /// The claims, judged.
    pub claims: Vec<Judged>,
}

impl Analysed {
    /// Reads a run's folder and the [`Remarks`] beside it, and analyses them.
    ///
    /// # Errors
    /// A file cannot be read, or this version does not understand the experiment's own text.
    pub fn read(dir: &Path) -> anyhow::Result<Analysed> {
        let remarks = Remarks::read(&dir.join(".."))?;
        let run = Directory::new(dir).read()?;
        Analysed::remarked(run, &remarks).with_context(|| dir.display().to_string())
    }

    /// Analyses the records of a run.
    ///
    /// # Errors
    /// This version does not understand the experiment's own text.
    pub fn of(run: RunDirectory) -> anyhow::Result<Analysed> {
        Analysed::remarked(run, &Remarks::default())
    }

    fn remarked(mut run: RunDirectory, remarks: &Remarks) -> anyhow::Result<Analysed> {
        let mut experiment = Experiment::parse(&run.run.text)
            .context("the experiment file in these records cannot be read")?
            .in_form(run.run.form);
        remarks.apply(&run.run.name, &mut experiment)?;
        for trial in run.trials.iter_mut().chain(&mut run.superseded) {
            for derived in &experiment.metrics {
                let value = derived.of(&trial.metrics);
                trial.metrics.extend(value.map(|value| (derived.name.clone(), value)));
            }
            if has_other_queue(&experiment, trial) {
                trial.flaws.push(Flaw::SettingsDiffer);
            }
            if has_cut_sessions(&experiment, trial) {
                trial.flaws.push(Flaw::SessionsCut);
            }
        }
        let plots = experiment.figures.iter().map(|figure| plot(&experiment, figure, &run.trials)).collect();
        let claims = judge_all(&experiment, &run);
        Ok(Analysed { experiment, run, plots, claims })
    }
}

/// Tells whether a record from before the read-back shows another accept queue than its file asks for. Our own servers
/// change theirs under load, and a command may have none from the file.
fn has_other_queue(experiment: &Experiment, trial: &TrialRecord) -> bool {
    let Some(queue) = trial.queue.filter(|_| trial.in_force.is_none()) else { return false };
    let server = experiment.servers.iter().find(|server| server.name == trial.server);
    server.is_some_and(|server| {
        let is_ours = matches!(server.kind, ServerKind::Inrush | ServerKind::Herd | ServerKind::Command);
        let asked = server.backlog.unwrap_or(experiment.common.backlog);
        !is_ours && server.kind != ServerKind::Installed && queue.limit != u64::from(asked)
    })
}

/// Tells whether a record from before the read-back shows that a repeated paper's server ended sessions for others. The
/// trial of a later record has judged itself.
fn has_cut_sessions(experiment: &Experiment, trial: &TrialRecord) -> bool {
    let server = experiment.servers.iter().find(|server| server.name == trial.server);
    let may_cut = experiment.paper.is_none() || server.is_some_and(|server| server.may_cut_sessions);
    !may_cut && trial.in_force.is_none() && trial.sessions_cut() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{InForce, QueueDepth};

    #[test]
    fn old_record_with_cut_sessions_is_flawed() {
        let of = |paper: &str, server: &str, reclaimed: u64| {
            let file = format!(
                "title = 't'\n{paper}\nload = [{{ name = 'l', rate = '9' }}]\n\
                 server = [{{ name = 'mp' }}, {{ name = 'reclaiming', may-cut-sessions = true }}]"
            );
            let trial = TrialRecord {
                server: server.to_owned(),
                server_status: Some(serde_json::json!({ "counters": { "reclaimed": reclaimed } })),
                ..TrialRecord::default()
            };
            has_cut_sessions(&Experiment::parse(&file).unwrap(), &trial)
        };
        assert!(of("paper = 'p'", "mp", 1));
        assert!(!of("paper = 'p'", "mp", 0) && !of("paper = 'p'", "reclaiming", 1) && !of("", "mp", 1));
    }

    #[test]
    fn a_longer_queue_than_the_files_is_a_flaw() {
        let file = "title = 't'\nload = [{ name = 'l', rate = '9' }]\n\
                    server = [{ name = 'h2o', kind = 'h2o', backlog = 4096 }, { name = 'ours', backlog = 4096 }]";
        let experiment = Experiment::parse(file).unwrap();
        let with = |server: &str, limit| TrialRecord {
            server: server.to_owned(),
            queue: Some(QueueDepth { limit, ..QueueDepth::default() }),
            ..TrialRecord::default()
        };
        assert!(has_other_queue(&experiment, &with("h2o", 65_535)));
        assert!(!has_other_queue(&experiment, &with("h2o", 4096)));
        assert!(!has_other_queue(&experiment, &with("ours", 2500)), "overload control shortens it");
        let read_back = TrialRecord { in_force: Some(InForce::default()), ..with("h2o", 65_535) };
        assert!(!has_other_queue(&experiment, &read_back), "the trial has judged itself");
    }
}
