//! One experiment on a page; a document of several experiments has one section for each.

use analysis::Analysed;
use experiment::Experiment;
use record::experiment::Form;
use record::{Manifest, TopologyKind};
use serde::Serialize;

use super::claims::{self, ClaimRow, score_sentences};
use super::figures::{self, FigureView};
use super::tables::{self, TrialTable};
use super::{anchor, headline, warnings};
use crate::format::{date, plural};
use crate::page::table::{Table, command_line, machine};

/// One experiment on a page.
#[derive(Serialize)]
pub struct Section {
    /// Unique on the page.
    pub anchor: String,
    /// Its title.
    pub title: String,
    /// The question, in paragraphs.
    pub about: Vec<String>,
    /// The differences from the paper's setting, in one paragraph; empty if it says none.
    pub differs: String,
    /// The paper that it repeats.
    pub paper: Option<String>,
    /// The main finding in one sentence; empty if the experiment has none.
    pub headline: String,
    /// Servers with a sentence about each.
    pub about_servers: Vec<[String; 2]>,
    /// The form, time and place of the run, in a sentence or two.
    pub how: String,
    /// The claims, judged.
    pub claims: Vec<ClaimRow>,
    /// The score of the claims.
    pub score_sentence: String,
    /// The warnings, which a reader needs first.
    pub warnings: Vec<String>,
    /// The figure of the main finding, shown first.
    pub leading: Option<FigureView>,
    /// The other figures.
    pub figures: Vec<FigureView>,
    /// The most lines of a figure.
    pub lines_most: usize,
    /// The servers' capacities.
    pub capacities: Table,
    /// Every attempt at every trial.
    pub trials: TrialTable,
    /// The servers' command lines.
    pub servers: Table,
    /// The origin of the run.
    pub manifest: Table,
    /// The experiment file.
    pub text: String,
    /// The command line that does it again.
    pub again: String,
    /// The path from the page to the run's folder: empty, or ending in a slash.
    pub base: String,
}

impl Section {
    /// The section of a run whose folder lies at `base`, seen from the page.
    pub fn new(analysed: &Analysed, base: &str) -> Section {
        let (experiment, run) = (&analysed.experiment, &analysed.run.run);
        let mut figures = figures::views(analysed, base);
        let leading = headline::leading(analysed).map(|(place, sentence)| (figures.remove(place), sentence));
        let (leading, headline) = leading.unzip();
        let about = experiment.servers.iter().filter(|server| !server.about.is_empty());
        Section {
            anchor: anchor(&run.name),
            title: experiment.title.clone(),
            about: paragraphs(&experiment.about),
            differs: paragraphs(&experiment.differs).join(" "),
            paper: experiment.paper.clone(),
            headline: headline.unwrap_or_default(),
            about_servers: about.map(|server| [server.name.clone(), server.about.clone()]).collect(),
            how: how(analysed),
            score_sentence: score_sentences(analysed.claims.iter()),
            claims: analysed.claims.iter().map(claims::row).collect(),
            warnings: warnings::warnings(analysed),
            lines_most: analysed.plots.iter().map(|plot| plot.lines.len()).max().unwrap_or(0),
            leading,
            figures,
            capacities: tables::capacities(run),
            trials: tables::trials(analysed, base),
            servers: tables::servers(run),
            manifest: machine(&run.schema, &run.manifest),
            text: run.text.clone(),
            again: command_line(&run.manifest.command),
            base: base.to_owned(),
        }
    }
}

/// Text between empty lines, each on one line.
fn paragraphs(text: &str) -> Vec<String> {
    let joined = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(joined).filter(|part| !part.is_empty()).collect()
}

fn how(analysed: &Analysed) -> String {
    let run = &analysed.run.run;
    let Manifest { kernel, cpu, started_unix_s, .. } = &run.manifest;
    let form = match run.form {
        Form::Full => "The full form",
        Form::Quick => "The quick form",
    };
    let place = match run.topology.kind {
        TopologyKind::Namespaces => "in two network namespaces",
        TopologyKind::Loopback => "on loopback",
    };
    let each = match analysed.experiment.plan.curve_trials.filter(|curve| *curve < run.trials) {
        Some(curve) => format!("point with a claim, {curve} of the others"),
        None => "point".to_owned(),
    };
    format!(
        "{form}: {}, {} of each {each}, {place}; Linux {kernel}, {cpu}, {}.{}",
        plural(analysed.run.trials.len(), "trial", "trials"),
        plural(run.trials as usize, "repetition", "repetitions"),
        date(*started_unix_s),
        kernel_settings(&analysed.experiment),
    )
}

/// Names the kernel settings that an experiment has of its own; empty if it has none.
fn kernel_settings(experiment: &Experiment) -> String {
    let settings = experiment.topology.sysctls.iter().map(|(name, value)| format!("{name} = {value}"));
    let settings: Vec<String> = settings.collect();
    if settings.is_empty() {
        return String::new();
    }
    format!(" Kernel settings that differ from the kernel's own: {}.", settings.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_settings_of_an_experiment_are_named() {
        let file = "title = 't'\nserver = [{ name = 's' }]\nload = [{ name = 'l', rate = '9' }]\n";
        let settings = |more: &str| kernel_settings(&Experiment::parse(&format!("{file}{more}")).unwrap());
        assert_eq!(settings(""), "");
        assert_eq!(
            settings("topology = { sysctls = { 'net.ipv4.tcp_syncookies' = 0 } }"),
            " Kernel settings that differ from the kernel's own: net.ipv4.tcp_syncookies = 0."
        );
    }

    #[test]
    fn lines_of_a_paragraph_are_joined() {
        assert_eq!(paragraphs(" One\n  two.\n\n\nThree.\n"), ["One two.", "Three."]);
        assert!(paragraphs("").is_empty());
    }
}
