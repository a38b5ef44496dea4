//! The sentences of a study's report.

use std::collections::BTreeSet;

use record::{Study, TopologyKind, Trial, Verdict};

use super::summary::{LoadPoint, ServerSummary};
use crate::format::{multiple, percent, plural, rate, time};

/// What was run, in two sentences.
pub fn lede(study: &Study, servers: &[ServerSummary<'_>]) -> String {
    let points = || servers.iter().flat_map(|server| &server.points);
    let (low, high) = points()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), point| (point.factor.min(low), point.factor.max(high)));
    let run = servers.iter().filter(|server| !server.points.is_empty()).count();
    let loads = servers.iter().map(|server| server.points.len()).max().unwrap_or(0);
    let trials = points().map(|point| point.trials).max().unwrap_or(0);
    let place = match study.topology.kind {
        TopologyKind::Namespaces => "two network namespaces joined by a veth pair",
        TopologyKind::Loopback => "one network, the loopback interface",
    };
    let manifest = &study.manifest;
    let cpu = if manifest.cpu.is_empty() { "an unnamed processor" } else { &manifest.cpu };
    let machine = format!(
        "{cpu} with {} online, under Linux {}",
        plural(manifest.cpus, "CPU", "CPUs"),
        manifest.kernel
    );
    if run == 0 {
        return format!("No server was measured. Client and server were to share {place}, on {machine}.");
    }
    format!(
        "{} {} offered {} between {} and {} {} own capacity{}. Client and server ran in {place}, on {machine}.",
        if run == 1 { "One server".to_owned() } else { format!("{} servers", capitalised(run)) },
        if run == 1 { "was" } else { "were each" },
        if loads == 1 { "one load".to_owned() } else { format!("{} loads", in_words(loads)) },
        multiple(low),
        multiple(high),
        if run == 1 { "its" } else { "their" },
        match trials {
            0 | 1 => String::new(),
            2 => ", each load twice in random order".to_owned(),
            _ => format!(", each load {} times in random order", in_words(trials)),
        },
    )
}

/// A count as it is written in a sentence.
fn in_words(count: usize) -> String {
    const WORDS: [&str; 10] = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    WORDS.get(count).map_or_else(|| count.to_string(), |word| (*word).to_owned())
}

fn capitalised(count: usize) -> String {
    let word = in_words(count);
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// How one server did, after its name and a colon.
pub fn verdict(server: &ServerSummary<'_>) -> String {
    let (Some(best), Some(heaviest)) = (server.best(), server.heaviest()) else {
        let reason = server.entry.excluded.as_deref().unwrap_or("no trial of it reached it");
        return format!("not measured: {reason}");
    };
    let mut text = format!("{} at its best", rate(best.goodput.median));
    if let Some(kept) = server.kept()
        && server.points.len() > 1
    {
        let load = multiple(heaviest.factor);
        let there = match heaviest.p50 {
            Some(p50) => format!("answers at a median of {} there", time(p50.median)),
            None => "answers nobody there".to_owned(),
        };
        text.push_str(&format!(", keeps {} of it at {load} its capacity, {there}", percent(kept)));
    }
    if heaviest.limited > 0 {
        text.push_str(" (the generator was the limit there)");
    }
    text
}

/// What a reader must know before believing the figures.
pub fn warnings(study: &Study, servers: &[ServerSummary<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    if study.topology.kind == TopologyKind::Loopback {
        found.push(
            "Client and server shared the loopback interface, where the sender's CPU does the receiver's \
             network work: a refused connection costs the server less here than on a network, and what \
             happens past saturation looks better than it is."
                .to_owned(),
        );
    }
    found.extend(study.topology.warnings.iter().cloned());
    for server in servers {
        found.extend(limited(study, server));
    }
    let known: BTreeSet<&str> = study.servers.iter().map(|entry| entry.name.as_str()).collect();
    found.extend(study.trials.iter().filter_map(|trial| suspicious(trial, &known)));
    found
}

/// One sentence for all loads of a server at which the generator was the limit, with the first reason given.
fn limited(study: &Study, server: &ServerSummary<'_>) -> Option<String> {
    let points: Vec<&LoadPoint> = server.points.iter().filter(|point| point.limited > 0).collect();
    let name = &server.entry.name;
    let is_limited =
        |trial: &&Trial| trial.server == *name && trial.load.verdict == Verdict::GeneratorLimited;
    let reason = study.trials.iter().find(is_limited)?.load.reasons.first();
    let because = reason.map_or(String::new(), |reason| format!(" For one: {reason}"));
    let (limited, trials) = points
        .iter()
        .fold((0, 0), |(limited, trials), point| (limited + point.limited, trials + point.trials));
    let loads: Vec<String> = points.iter().map(|point| multiple(point.factor)).collect();
    Some(format!(
        "{name} at {}: in {limited} of {} the load generator was the limit, not the server.{because}",
        loads.join(", "),
        plural(trials, "trial", "trials"),
    ))
}

/// A trial that cannot be used as it stands.
fn suspicious(trial: &Trial, known: &BTreeSet<&str>) -> Option<String> {
    let which =
        format!("{} at {}, repetition {}", trial.server, multiple(trial.factor), u64::from(trial.repeat) + 1);
    if !known.contains(trial.server.as_str()) {
        return Some(format!("{which}: the study lists no such server; left out of the figures."));
    }
    if trial.load.verdict == Verdict::Unreachable {
        return Some(format!("{which}: the server was never reached; left out of the figures."));
    }
    let error = trial.load.balance().err()?;
    Some(format!("{which}: {error}. This is a fault of the load generator; do not trust this point."))
}
