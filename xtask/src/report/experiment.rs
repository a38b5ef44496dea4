//! Checks of the files of an experiment, or of several.

use std::fs;
use std::path::Path;

use analysis::Analysed;
use anyhow::{Context, ensure};
use record::experiment::Directory;
use report::experiment::html;
use report::paper::runs_in;

use super::{browser, check_page};

/// Checks the folder of one run. Its ledgers balance, its report is a function of its records, its figures have their
/// files, and the page is valid.
///
/// # Errors
/// The first defect.
pub fn check(folder: &Path) -> anyhow::Result<()> {
    let analysed = Analysed::read(folder)?;
    for trial in analysed.run.trials.iter().chain(&analysed.run.superseded) {
        let Some(client) = &trial.client else { continue };
        client.balance().with_context(|| format!("trial {:04}-{}", trial.order, trial.attempt))?;
    }
    let path = folder.join("report.html");
    let page = check_page(&path)?;
    ensure!(page == html(&analysed), "{} is not what its records say", path.display());
    let drawn = page.matches("<svg class=\"chart wide\"").count();
    for (figure, plot) in analysed.experiment.figures.iter().zip(&analysed.plots) {
        let picture = folder.join("figures").join(format!("{}.svg", figure.id));
        let is_empty = fs::metadata(&picture).map_or(true, |file| file.len() == 0);
        ensure!(plot.lines.is_empty() || !is_empty, "{} is missing", picture.display());
    }
    let trials = analysed.run.trials.len();
    println!("{trials} trials and {} claims: {} says what they say", analysed.claims.len(), path.display());
    browser::check(&path, drawn)
}

/// Checks a folder of several runs, and the document of them all.
///
/// # Errors
/// The first defect.
pub fn check_all(folder: &Path) -> anyhow::Result<()> {
    let runs = runs_in(folder)?;
    ensure!(!runs.is_empty(), "{} holds no experiment", folder.display());
    for run in &runs {
        check(&folder.join(run))?;
    }
    let path = folder.join("report.html");
    let page = check_page(&path)?;
    browser::check(&path, page.matches("<svg class=\"chart wide\"").count())
}

/// Tells whether a folder holds a run.
///
/// # Errors
/// The record exists, but cannot be read.
pub fn is_run(folder: &Path) -> anyhow::Result<bool> {
    Ok(Directory::new(folder).run()?.is_some())
}
