//! A run of an experiment, read from its folder and analysed as a whole.

use std::path::Path;

use anyhow::Context;
use experiment::Experiment;
use record::experiment::{Directory, RunDirectory};

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
    /// Reads a run's folder and analyses it.
    ///
    /// # Errors
    /// A file cannot be read, or this version does not understand the experiment's own text.
    pub fn read(dir: &Path) -> anyhow::Result<Analysed> {
        Analysed::of(Directory::new(dir).read()?).with_context(|| dir.display().to_string())
    }

    /// Analyses the records of a run.
    ///
    /// # Errors
    /// This version does not understand the experiment's own text.
    pub fn of(mut run: RunDirectory) -> anyhow::Result<Analysed> {
        let experiment = Experiment::parse(&run.run.text)
            .context("the experiment file in these records cannot be read")?
            .in_form(run.run.form);
        for trial in run.trials.iter_mut().chain(&mut run.superseded) {
            for derived in &experiment.metrics {
                let value = derived.of(&trial.metrics);
                trial.metrics.extend(value.map(|value| (derived.name.clone(), value)));
            }
        }
        let plots = experiment.figures.iter().map(|figure| plot(&experiment, figure, &run.trials)).collect();
        let claims = judge_all(&experiment, &run);
        Ok(Analysed { experiment, run, plots, claims })
    }
}
