//! The rates of wrong verdicts and of missed effects, on simulated records with a known truth. Prints the table of
//! `docs/method.md`: `cargo test -p analysis --test verdicts -- --nocapture`.

use std::collections::BTreeMap;

use analysis::claims::{Judged, Judgement, judge_all};
use base::{Rng, Seed};
use experiment::Experiment;
use rand::RngExt;
use record::experiment::{RunDirectory, TrialRecord, Value};
use serde_json::json;

/// The numbers of trials.
const COUNTS: [u32; 5] = [3, 5, 6, 10, 20];

/// Simulated runs for each share. A share of 0.05 is then known to 0.014 (two standard errors).
const RUNS: u32 = 1_000;

/// The most wrong verdicts that a test accepts: 5 %, and the error of the simulation.
const WRONG_MAX: f64 = 0.064;

/// An experiment of two servers at some places along an axis, with one claim a place.
fn experiment(trials: u32, places: u32, claim: &str) -> Experiment {
    let of_place = |place: u32| claim.replace("PLACE", &place.to_string());
    let claims: Vec<String> = (1..=places).map(of_place).collect();
    let values: Vec<String> = (1..=places).map(|place| place.to_string()).collect();
    Experiment::parse(&format!(
        r#"
title = "t"
plan = {{ trials = {trials} }}
axis = [{{ name = "x", values = [{}] }}]
server = [{{ name = "a" }}, {{ name = "b" }}]
load = [{{ name = "l", rate = "{{x}} x capacity" }}]
claim = [{}]
"#,
        values.join(", "),
        claims.join(", ")
    ))
    .unwrap()
}

fn ratio(bounds: &str) -> String {
    let measure =
        r#"{ metric = "goodput_per_s", of = { server = "a" }, over = { server = "b" }, at = { x = PLACE } }"#;
    format!(r#"{{ text = "at PLACE", ratio = {measure}, {bounds} }}"#)
}

/// The truth of the simulated runs.
#[derive(Clone, Copy)]
struct Truth {
    /// The yield of server a over that of b.
    ratio: f64,
    /// The share that both lose over the run.
    drift: f64,
    /// The places along the axis, with a claim each.
    places: u32,
}

fn truth(ratio: f64) -> Truth {
    Truth { ratio, drift: 0.2, places: 1 }
}

/// Judges a simulated run. Both halves of a pair share the drift, and have noise with a slow tail: a tenth of a trial's
/// value on average.
fn judged(experiment: &Experiment, truth: Truth, template: &RunDirectory, rng: &mut Rng) -> Vec<Judged> {
    let mut run = template.clone();
    for repeat in 0..experiment.plan.trials {
        let drift = 1.0 - truth.drift * f64::from(repeat) / f64::from(experiment.plan.trials);
        for place in experiment.axes[0].values.iter().filter_map(Value::number) {
            for (server, yields) in [("a", truth.ratio), ("b", 1.0)] {
                let slower = -0.1 * (1.0 - rng.random::<f64>()).ln();
                let goodput_per_s = 1_000.0 * yields * drift * (-slower).exp();
                run.trials.push(TrialRecord {
                    server: server.to_owned(),
                    axes: BTreeMap::from([("x".to_owned(), Value::Number(place))]),
                    repeat,
                    metrics: BTreeMap::from([("goodput_per_s".to_owned(), goodput_per_s)]),
                    ..template.trials[0].clone()
                });
            }
        }
    }
    run.trials.remove(0);
    judge_all(experiment, &run)
}

/// A run with one trial, which is the pattern of all.
fn template() -> RunDirectory {
    let trial = serde_json::from_value(json!({
        "schema": "inrush.lab-trial/1", "server": "a", "load": "l", "axes": {}, "repeat": 0, "order": 0,
        "attempt": 1, "flaws": [], "failure": null, "capacity_per_s": null, "metrics": {}, "client": null,
        "herd": null, "kernel": null, "queue": null, "cpu_busy": {}, "server_status": null, "started_unix_s": 0,
    }));
    let run = serde_json::from_value(json!({
        "schema": "inrush.lab-run/1", "name": "simulated", "text": "", "form": "full", "trials": 1,
        "topology": { "kind": "loopback", "warnings": [] }, "servers": [], "capacities": [], "planned": 1,
        "finished": true, "warnings": [],
        "manifest": {
            "version": "0", "command": [], "config": {}, "seed": 1, "started_unix_s": 0, "kernel": "", "cpu": "",
            "cpus": 1, "cpus_allowed": "0", "descriptor_limit": null, "sysctls": {},
        },
    }));
    RunDirectory { run: run.unwrap(), trials: vec![trial.unwrap()], superseded: Vec::new() }
}

/// The share of runs of which something is so, for each number of trials.
fn share(name: &str, truth: Truth, claim: &str, is_so: fn(&Judged) -> bool) -> [f64; 5] {
    let runs = if truth.places > 1 { RUNS / 4 } else { RUNS };
    let template = template();
    let shares = COUNTS.map(|count| {
        let experiment = experiment(count, truth.places, claim);
        let mut rng = Seed(u64::from(count)).child(name).rng();
        let so = (0..runs).filter(|_| judged(&experiment, truth, &template, &mut rng).iter().any(is_so));
        so.count() as f64 / f64::from(runs)
    });
    println!("| {name} | {} |", shares.map(|share| format!("{share:.3}")).join(" | "));
    shares
}

fn is_reproduced(claim: &Judged) -> bool {
    claim.judged == Judgement::Reproduced
}

fn is_refuted(claim: &Judged) -> bool {
    claim.judged == Judgement::Refuted
}

fn is_either(claim: &Judged) -> bool {
    is_reproduced(claim) || is_refuted(claim)
}

#[test]
fn quantity_at_its_bound_is_rarely_judged() {
    let at_least = ratio("at-least = 1.0");
    for (name, is_so) in
        [("no gain, reproduced", is_reproduced as fn(&Judged) -> bool), ("no loss, refuted", is_refuted)]
    {
        let wrong = share(name, truth(1.0), &at_least, is_so);
        assert!(wrong.iter().all(|share| *share <= WRONG_MAX), "{wrong:?}");
    }
}

#[test]
fn equality_is_found_well_within_and_rarely_at_border() {
    let within = ratio("at-least = 0.8, at-most = 1.25");
    let wrong = share("25 % apart, called equal to 25 %", truth(1.25), &within, is_reproduced);
    assert!(wrong.iter().all(|share| *share <= WRONG_MAX), "{wrong:?}");
    let missed = share("equal, missed", truth(1.0), &within, |claim| !is_reproduced(claim));
    assert!(missed[3] < 0.05 && missed[0] > 0.4, "{missed:?}");
    let refuted = share("25 % apart, refuted", truth(1.25), &within, is_refuted);
    assert!(refuted.iter().all(|share| *share <= WRONG_MAX), "{refuted:?}");
}

#[test]
fn more_trials_miss_fewer_gains_beyond_the_bound() {
    let missed = |claim: &Judged| !is_reproduced(claim);
    let shares = share("a gain of 30 %, missed at 15 %", truth(1.3), &ratio("at-least = 1.15"), missed);
    assert!(shares.is_sorted_by(|few, many| few > many) && shares[4] < 0.05, "{shares:?}");
    let at = share("a gain of 15 %, missed at 15 %", truth(1.15), &ratio("at-least = 1.15"), missed);
    assert!(at.iter().all(|share| *share >= 1.0 - WRONG_MAX), "{at:?}");
}

/// Without a drift the median of b is known: its noise has the median ln 2 / 10.
#[test]
fn a_value_needs_five_trials() {
    let still = Truth { drift: 0.0, ..truth(1.0) };
    let median = 1_000.0 * (-0.1 * 2.0_f64.ln()).exp();
    let value = r#"{ metric = "goodput_per_s", of = { server = "b" } }"#;
    let far = format!(r#"{{ text = "at PLACE", value = {value}, at-least = {} }}"#, median / 1.4);
    let found = share("a median 40 % above the bound, found", still, &far, is_reproduced);
    assert!(found[0] == 0.0 && found[1] > 0.9, "{found:?}");
    let above = format!(r#"{{ text = "at PLACE", value = {value}, at-least = {median} }}"#);
    let wrong = share("a median at the bound, called above", still, &above, is_reproduced);
    assert!(wrong.iter().all(|share| *share <= WRONG_MAX), "{wrong:?}");
}

#[test]
fn ten_claims_together_are_rarely_wrong_anywhere() {
    let at_least = ratio("at-least = 1.0");
    let wrong = share(
        "ten without a gain, any reproduced",
        Truth { places: 10, ..truth(1.0) },
        &at_least,
        is_reproduced,
    );
    // A quarter of the runs: the simulation's error is 0.028.
    assert!(wrong.iter().all(|share| *share <= 0.078), "{wrong:?}");
    let alone = share("one without a gain, judged at all", truth(1.0), &at_least, is_either);
    // At the bound itself one of both verdicts is right, and each comes with at most 5 %.
    assert!(alone.iter().all(|share| *share <= 2.0 * WRONG_MAX), "{alone:?}");
}

/// A client's result over three seconds, of which the analysis reads the measured time alone.
fn client() -> record::LoadResult {
    let none = record::Distribution::default();
    serde_json::from_value(json!({
        "schema": record::load::SCHEMA, "duration_s": 3.0, "offered": 0, "in_flight_at_end": 0, "not_due_at_end": 0,
        "outcomes": {}, "connections": { "attempted": 0, "established": 0, "sockets_peak": 0 },
        "offered_per_s": 0.0, "sent_per_s": 0.0, "replies_per_s": 0.0, "goodput_per_s": 0.0,
        "content_bytes_per_s": 0.0, "latency_intended_ns": none, "latency_sent_ns": none, "connect_ns": none,
        "lateness_ns": none, "generator_cpu": 0.0, "populations": {}, "series": [], "verdict": "valid",
        "reasons": [], "manifest": record::Manifest::default(),
    }))
    .unwrap()
}

/// The judged ratio of a's goodput in three repetitions to a goodput of b.
fn judged_ratio(client: Option<record::LoadResult>, bounds: &str, of_b: f64) -> Judged {
    let mut run = template();
    let pattern = TrialRecord { client, ..run.trials.remove(0) };
    for (repeat, goodput) in (0..).zip([16_500.0, 16_200.0, 16_900.0]) {
        run.trials.extend([("a", goodput), ("b", of_b)].map(|(server, goodput)| TrialRecord {
            server: server.to_owned(),
            axes: BTreeMap::from([("x".to_owned(), Value::Number(1.0))]),
            repeat,
            metrics: BTreeMap::from([("goodput_per_s".to_owned(), goodput)]),
            ..pattern.clone()
        }));
    }
    judge_all(&experiment(3, 1, &ratio(bounds)), &run).remove(0)
}

#[test]
fn infinite_interval_is_read_back_from_its_nulls() {
    let judged = judged_ratio(None, "at-least = 2", 0.0);
    assert_eq!(judged.interval, Some([f64::INFINITY; 2]));
    let written = serde_json::to_value(&judged).unwrap();
    assert_eq!(written["interval"], json!([null, null]));
    let read: Judged = serde_json::from_value(written).unwrap();
    assert_eq!(read.interval, judged.interval);
}

#[test]
fn a_ratio_to_nothing_is_decided_by_three_trials() {
    let judged = |bounds: &str, of_b: f64| judged_ratio(Some(client()), bounds, of_b);
    let endless = judged("at-least = 2", 0.0);
    assert_eq!(endless.judged, Judgement::Reproduced, "{endless:?}");
    assert!(
        (90_000.0..110_000.0).contains(&endless.measured.unwrap()),
        "half a reply in three seconds: {endless:?}"
    );
    assert_eq!(judged("at-most = 2", 0.0).judged, Judgement::Refuted);
    assert_eq!(judged("at-least = 1.9", 16_000.0 / 2.0).judged, Judgement::Reproduced);
}
