//! Mutation testing: what part of a changed program the tests notice.
//!
//! `cargo mutants` changes one expression or one function at a time, and runs the tests of the crate. A mutant that no
//! test notices is a survivor. This module starts it for each crate, reads its outcomes, and compares the share of
//! the caught mutants with the crate's goal.
//!
//! A crate's unit tests take less than a second, and decide most mutants. So they run alone at first, and all tests of the
//! crate only on what they left alive.
//!
//! Some mutants behave like the program itself. `equal_mutants.txt` lists them, each with the reason; they do not count.
//!
//! Leaves out: making mutants. `cargo install cargo-mutants` brings the program that does.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use report::columns::aligned;
use serde::Deserialize;
use sys::process::Streams;

use crate::test_bed::{TICK, cargo};

/// The crates whose tests must notice a mutant, with the files that are mutated and the part that must be caught.
const GOALS: [Goal; 12] = [
    Goal { krate: "inrush-overload", files: None, caught_least: 0.97 },
    Goal { krate: "inrush-http-semantics", files: None, caught_least: 0.97 },
    Goal { krate: "inrush-http1", files: None, caught_least: 0.97 },
    Goal { krate: "inrush-http2", files: None, caught_least: 0.97 },
    Goal { krate: "statistics", files: None, caught_least: 0.97 },
    Goal { krate: "analysis", files: None, caught_least: 0.97 },
    Goal { krate: "tls", files: None, caught_least: 0.97 },
    Goal { krate: "inrush-usertcp", files: None, caught_least: 0.97 },
    Goal { krate: "experiment", files: None, caught_least: 0.97 },
    Goal { krate: "inrush-dispatch", files: None, caught_least: 0.97 },
    Goal { krate: "site", files: None, caught_least: 0.90 },
    Goal { krate: "load", files: Some("crates/load/src/measurement/**"), caught_least: 0.90 },
];

struct Goal {
    krate: &'static str,
    /// The pattern of the mutated files; all files of the crate without one.
    files: Option<&'static str>,
    /// The least share of the caught mutants, between 0 and 1.
    caught_least: f64,
}

/// What `cargo mutants` calls a mutant that no test noticed.
const MISSED: &str = "MissedMutant";

/// Flags of `campaign mutants`.
#[derive(clap::Args)]
pub struct MutantOptions {
    /// Only these crates; all that have a goal without one
    #[arg(value_parser = GOALS.map(|goal| goal.krate))]
    crates: Vec<String>,
    /// Only part K of N of each crate's mutants, as K/N with K from 0
    #[arg(long)]
    shard: Option<String>,
}

/// The part of `outcomes.json` that is read here.
#[derive(Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    scenario: Scenario,
    summary: String,
}

#[derive(Deserialize)]
enum Scenario {
    Baseline,
    Mutant(Mutant),
}

#[derive(Deserialize)]
struct Mutant {
    /// `FILE:LINE:COLUMN: CHANGE`.
    name: String,
}

/// The outcome of one crate.
#[derive(Debug, PartialEq)]
struct Tally {
    /// Mutants that a test noticed, by failing or by not ending.
    caught: usize,
    survivors: Vec<String>,
    /// Survivors that behave like the program.
    equal: usize,
}

/// Runs the campaign. Blocks for seconds for each mutant.
///
/// # Errors
/// `cargo mutants` is missing, the unchanged tests fail, or a crate misses its goal.
pub fn run(options: &MutantOptions) -> anyhow::Result<()> {
    let wanted =
        |goal: &&Goal| options.crates.is_empty() || options.crates.iter().any(|name| name == goal.krate);
    let equal = equal_mutants();
    let mut rows = vec![["crate", "caught", "survived", "equal", "share", "goal", ""].map(str::to_owned)];
    let mut missed = Vec::new();
    for goal in GOALS.iter().filter(wanted) {
        let tally = Tally::of(test(goal, options.shard.as_deref())?, &equal)?;
        for survivor in &tally.survivors {
            println!("survived: {survivor}");
        }
        let holds = tally.share() >= goal.caught_least;
        if !holds {
            missed.push(goal.krate);
        }
        rows.push(tally.row(goal, holds));
    }
    println!("\n{}", aligned(&rows, &[]));
    ensure!(missed.is_empty(), "too many mutants survive in {}", missed.join(", "));
    Ok(())
}

/// Tests the mutants of one crate: all by its unit tests, and by all its tests those that live. A part of them is tested by all
/// tests at once, because a second run would take its part of what the first one left.
fn test(goal: &Goal, shard: Option<&str>) -> anyhow::Result<Outcomes> {
    if let Some(part) = shard {
        return mutate(goal, &["--shard", part]);
    }
    let by_unit_tests = mutate(goal, &["--cargo-test-arg=--lib"])?;
    match by_unit_tests.outcomes.iter().any(|outcome| outcome.summary == MISSED) {
        true => Ok(by_unit_tests.revised(mutate(goal, &["--iterate"])?)),
        false => Ok(by_unit_tests),
    }
}

/// Tests mutants of one crate, in a copy of the source, and returns the outcomes.
fn mutate(goal: &Goal, flags: &[&str]) -> anyhow::Result<Outcomes> {
    let folder = Path::new("target/mutants").join(goal.krate);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let output = folder.to_string_lossy();
    let mut arguments = vec!["mutants", "--package", goal.krate, "--output", &output, "--no-shuffle"];
    arguments.extend(goal.files.iter().flat_map(|files| ["--file", files]));
    arguments.extend(flags);
    let child =
        cargo().arguments(arguments).with_streams(Streams::Messages).start().context("cannot start cargo")?;
    let exit = child.output(TICK, || true)?.exit.status;
    // 2: some survived; 3: some did not end. Anything else is a failure of the run itself.
    if !matches!(exit.code(), Some(0 | 2 | 3)) {
        bail!("cargo mutants failed ({exit}); `cargo install cargo-mutants` installs it");
    }
    let path = folder.join("mutants.out/outcomes.json");
    let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not what was expected", path.display()))
}

/// The names of the mutants that behave like the program.
fn equal_mutants() -> BTreeSet<&'static str> {
    let lines = include_str!("equal_mutants.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" | ")).map(|(name, _)| name.trim()).collect()
}

impl Outcomes {
    /// With the outcomes of a later run in place of those of the same mutants.
    fn revised(self, mut later: Outcomes) -> Outcomes {
        let again: BTreeSet<String> =
            later.outcomes.iter().filter_map(Outcome::name).map(str::to_owned).collect();
        let stays = |outcome: &Outcome| outcome.name().is_some_and(|name| !again.contains(name));
        later.outcomes.extend(self.outcomes.into_iter().filter(stays));
        later
    }
}

impl Outcome {
    /// The mutant's name; absent for the unchanged program.
    fn name(&self) -> Option<&str> {
        match &self.scenario {
            Scenario::Baseline => None,
            Scenario::Mutant(mutant) => Some(&mutant.name),
        }
    }
}

impl Tally {
    /// # Errors
    /// The unchanged tests failed, or no mutant was tested.
    fn of(outcomes: Outcomes, equal: &BTreeSet<&str>) -> anyhow::Result<Tally> {
        let mut tally = Tally { caught: 0, survivors: Vec::new(), equal: 0 };
        for Outcome { scenario, summary } in outcomes.outcomes {
            let Scenario::Mutant(Mutant { name }) = scenario else {
                ensure!(summary == "Success", "the unchanged tests fail: {summary}");
                continue;
            };
            match summary.as_str() {
                "CaughtMutant" | "Timeout" => tally.caught += 1,
                MISSED if equal.contains(without_position(&name).as_str()) => tally.equal += 1,
                MISSED => tally.survivors.push(name),
                // A mutant that does not compile says nothing about the tests.
                "Unviable" => {}
                other => bail!("{name}: unknown outcome {other}"),
            }
        }
        ensure!(tally.caught + tally.survivors.len() > 0, "no mutant was tested");
        Ok(tally)
    }

    /// The part of the mutants that a test noticed.
    fn share(&self) -> f64 {
        self.caught as f64 / (self.caught + self.survivors.len()) as f64
    }

    fn row(&self, goal: &Goal, holds: bool) -> [String; 7] {
        [
            goal.krate.to_owned(),
            self.caught.to_string(),
            self.survivors.len().to_string(),
            self.equal.to_string(),
            format!("{:.1} %", self.share() * 100.0),
            format!("{:.0} %", goal.caught_least * 100.0),
            if holds { "holds" } else { "MISSED" }.to_owned(),
        ]
    }
}

/// A mutant's name without line and column, which change with every edit: `FILE: CHANGE`.
fn without_position(name: &str) -> String {
    let Some((place, change)) = name.split_once(": ") else { return name.to_owned() };
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {change}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(summaries: &[(&str, &str)]) -> Outcomes {
        let outcome = |(name, summary): &(&str, &str)| Outcome {
            scenario: Scenario::Mutant(Mutant { name: (*name).to_owned() }),
            summary: (*summary).to_owned(),
        };
        Outcomes { outcomes: summaries.iter().map(outcome).collect() }
    }

    #[test]
    fn mutant_names_lose_line_and_column() {
        let name = "crates/overload/src/law.rs:323:20: replace > with >= in Controller::elapsed";
        assert_eq!(
            without_position(name),
            "crates/overload/src/law.rs: replace > with >= in Controller::elapsed"
        );
    }

    #[test]
    fn equal_and_unviable_mutants_do_not_count() {
        let given = outcomes(&[
            ("a.rs:1:1: one", "CaughtMutant"),
            ("a.rs:2:1: two", "Timeout"),
            ("a.rs:3:1: three", "MissedMutant"),
            ("a.rs:4:1: four", "MissedMutant"),
            ("a.rs:5:1: five", "Unviable"),
        ]);
        let tally = Tally::of(given, &BTreeSet::from(["a.rs: four"])).expect("tests passed");
        let survivors = vec!["a.rs:3:1: three".to_owned()];
        assert_eq!(tally, Tally { caught: 2, survivors, equal: 1 });
    }

    #[test]
    fn all_tests_decide_what_unit_tests_leave_alive() {
        let by_unit_tests = outcomes(&[
            ("a.rs:1:1: one", "CaughtMutant"),
            ("a.rs:2:1: two", "Timeout"),
            ("a.rs:3:1: three", "MissedMutant"),
            ("a.rs:4:1: four", "MissedMutant"),
        ]);
        let by_all = outcomes(&[
            ("a.rs:2:1: two", "Timeout"),
            ("a.rs:3:1: three", "CaughtMutant"),
            ("a.rs:4:1: four", "MissedMutant"),
        ]);
        let tally = Tally::of(by_unit_tests.revised(by_all), &BTreeSet::new()).expect("tests passed");
        assert_eq!(tally, Tally { caught: 3, survivors: vec!["a.rs:4:1: four".to_owned()], equal: 0 });
    }

    #[test]
    fn a_run_without_a_mutant_is_an_error() {
        assert!(Tally::of(outcomes(&[]), &BTreeSet::new()).is_err());
    }

    #[test]
    fn failing_unchanged_tests_are_an_error() {
        let text = r#"{"outcomes": [{"scenario": "Baseline", "summary": "Failure"}]}"#;
        let given: Outcomes = serde_json::from_str(text).expect("the form of outcomes.json");
        assert!(Tally::of(given, &BTreeSet::new()).is_err());
    }

    /// The mistake in a line of `equal_mutants.txt`; `exists` tells whether a path from the repository's root exists.
    fn mistake(line: &str, exists: impl Fn(&str) -> bool) -> Option<&'static str> {
        let Some((name, reason)) = line.split_once(" | ") else { return Some("no reason") };
        let Some((file, change)) = name.split_once(": ") else { return Some("no change") };
        let checks = [
            (exists(file), "no such file"),
            (!change.trim().is_empty(), "no change"),
            (reason.trim().len() > 10, "a short reason"),
        ];
        checks.into_iter().find(|(holds, _)| !holds).map(|(_, mistake)| mistake)
    }

    #[test]
    fn equal_mutants_need_a_file_and_a_reason() {
        let of = |line| mistake(line, |path| path == "crates/a.rs");
        assert_eq!(of("crates/a.rs: replace f -> () with () | Nothing reads the result."), None);
        assert_eq!(of("crates/a.rs: replace f -> () with ()"), Some("no reason"));
        assert_eq!(of("crates/a.rs: replace f -> () with () | equal"), Some("a short reason"));
        assert_eq!(of("crates/a.rs | Nothing reads the result."), Some("no change"));
        assert_eq!(
            of("crates/b.rs: replace f -> () with () | Nothing reads the result."),
            Some("no such file")
        );
        // A name with its position would never match.
        assert_eq!(of("crates/a.rs:1:2: replace f | Nothing reads the result."), Some("no such file"));
    }

    #[test]
    fn every_listed_mutant_is_in_a_file_of_ours() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for line in include_str!("equal_mutants.txt").lines().filter(|line| !line.starts_with('#')) {
            assert_eq!(mistake(line, |path| root.join(path).is_file()), None, "{line}");
        }
    }
}
