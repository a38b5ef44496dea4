//! Claims whose truth is known.

use analysis::claims::{Judged, Judgement, SAMPLES_MIN, judge_all};
use base::Seed;
use experiment::Experiment;
use record::experiment::{Flaw, Form, RunDirectory, TrialRecord, Value};

use super::fixture::{TEXT, run, run_with};

fn judged(run: &RunDirectory) -> Vec<Judged> {
    judge_all(&Experiment::parse(TEXT).unwrap(), run)
}

fn of<'a>(claims: &'a [Judged], start: &str) -> &'a Judged {
    claims.iter().find(|claim| claim.claim.starts_with(start)).unwrap()
}

#[test]
fn every_kind_of_claim_follows_its_formula() {
    let claims = judged(&run());
    for (start, expected) in [
        ("Past saturation accepting all", Judgement::Reproduced),
        ("Past saturation accepting one", Judgement::Refuted),
        ("At half the capacity", Judgement::Undecided),
        ("Below its capacity", Judgement::Reproduced),
        ("The knee", Judgement::Reproduced),
        ("Accepting one is at its best", Judgement::Reproduced),
        ("A limit of one or ten", Judgement::Refuted),
        ("Loss costs nothing", Judgement::Refuted),
        ("nginx answers", Judgement::NotTested),
        ("At twice the capacity", Judgement::NotTested),
    ] {
        let claim = of(&claims, start);
        assert_eq!(claim.judged, expected, "{claim:#?}");
    }
}

#[test]
fn a_ratio_is_paired_so_that_drift_does_not_widen_it() {
    let claims = judged(&run());
    let ratio = of(&claims, "Past saturation accepting all");
    // One trial of one side is flawed, and its repetition does not count.
    assert_eq!((ratio.samples, ratio.left_out), (9, 1));
    let [low, high] = ratio.interval.unwrap();
    assert!(low > 1.08 && high < 1.75, "{ratio:?}");
    let even = of(&claims, "At half the capacity").interval.unwrap();
    assert!(even[1] - even[0] < 0.03, "{even:?}");
}

#[test]
fn why_a_claim_is_undecided_or_not_tested_is_said() {
    let claims = judged(&run());
    assert_eq!(of(&claims, "nginx").because, "nginx was not measured: nginx is not installed");
    assert_eq!(
        of(&claims, "At twice").because,
        "no repetition has a valid trial at every point; the usual flaw: server died"
    );
    assert_eq!(of(&claims, "At half").because, "the test excludes neither side of the bounds");
    let few = judged(&run_with(SAMPLES_MIN as u32 - 1, Seed(1), |_| 1.0));
    assert_eq!(of(&few, "Loss costs").judged, Judgement::NotTested);
    assert_eq!(of(&few, "Loss costs").because, "2 of at least 3 valid measurements");
    let four = judged(&run_with(4, Seed(1), |_| 1.0));
    assert_eq!(of(&four, "Loss costs").judged, Judgement::Undecided);
    assert_eq!(of(&four, "Loss costs").because, "4 of at least 5 measurements that can decide");
}

#[test]
fn declared_set_up_takes_the_verdict_away() {
    let mut run = run();
    let declared = "\nnot-tested = \"no server in the kernel\"\ndiffers = \"a process\"\n";
    run.run.text = run.run.text.replacen("\npaper = \"+71 %\"\n", declared, 1);
    let claims = analysis::Analysed::of(run).unwrap().claims;
    let claim = of(&claims, "Past saturation accepting all");
    assert_eq!((claim.judged, claim.because.as_str()), (Judgement::NotTested, "no server in the kernel"));
    assert_eq!(claim.differs.as_deref(), Some("a process"));
    assert!(claim.measured.is_some() && claim.together == 0, "{claim:?}");
    let others = |claims: &[Judged]| claims.iter().map(|claim| claim.together).max();
    assert_eq!(others(&claims).unwrap() + 1, others(&judged(&super::fixture::run())).unwrap());
}

/// Judges one claim alone, about the run as `change` changes it.
fn about(claim: &str, change: impl Fn(&mut TrialRecord)) -> Judged {
    let (head, _) = TEXT.split_once("[[claim]]").unwrap();
    let experiment = Experiment::parse(&format!("{head}[[claim]]\ntext = \"x\"\n{claim}")).unwrap();
    let mut run = run();
    run.trials.iter_mut().for_each(change);
    judge_all(&experiment, &run).remove(0)
}

fn without(server: &'static str) -> impl Fn(&mut TrialRecord) {
    move |trial| {
        if trial.server == server {
            trial.flaws = vec![Flaw::GeneratorLimited];
        }
    }
}

#[test]
fn claim_covers_all_its_points_and_servers() {
    const AT_LEAST: &str = "at-least = 1";
    let ratio = |at: &str| {
        format!(
            "ratio = {{ metric = \"replies_per_s\", of = {{ server = \"inf\" }}, over = {{ server = \"one\" }}, at = {{ \
             offered = {at} }} }}\n{AT_LEAST}"
        )
    };
    // All trials of one server at twice the capacity have a flaw.
    assert_eq!(about(&ratio("[1.5, 3]"), |_| ()).judged, Judgement::Reproduced);
    let partly = about(&ratio("{ from = 1.4 }"), |_| ());
    assert_eq!(partly.judged, Judgement::NotTested, "{partly:?}");
    let best = "best = { metric = \"replies_per_s\", among = [\"one\", \"ten\", \"inf\"], at = { offered = 3 }, expected = \
                [\"ten\"] }";
    let without_inf = about(best, without("inf"));
    assert_eq!(without_inf.judged, Judgement::NotTested);
    assert_eq!(without_inf.because, "inf has no valid trial; the usual flaw: generator-limited");
    let crossing = "crossing = { metric = \"replies_per_s\", x = \"offered\", of = { server = \"ten\" }, over = { server = \
                    \"inf\" } }\nat-least = 1";
    assert_eq!(about(crossing, without("inf")).judged, Judgement::NotTested);
    let knee =
        "knee = { metric = \"replies_per_s\", x = \"offered\", of = { server = \"one\" } }\nat-least = 1";
    assert_eq!(about(knee, |_| ()).judged, Judgement::NotTested);
}

#[test]
fn load_without_axis_leaves_it_to_other_pairs() {
    let claim = "ratio = { metric = \"replies_per_s\", of = { server = \"inf\" }, over = { server = \"one\" } }\n\
                 at-least = 0.99\nat-most = 1.01";
    let alike = |trial: &mut TrialRecord| {
        let offered = trial.quantity("offered").unwrap_or_default();
        trial.metrics.insert("replies_per_s".to_owned(), 1000.0 * (1.0 + offered));
        trial.flaws.clear();
        if offered == 3.0 {
            trial.axes.remove("offered");
            trial.load = Some("another".to_owned());
        }
    };
    let judged = about(claim, alike);
    assert_eq!(judged.judged, Judgement::Reproduced, "{judged:?}");
}

#[test]
fn a_crossing_is_one_to_above() {
    let crossing = |of: &str, over: &str| {
        format!(
            "crossing = {{ metric = \"replies_per_s\", x = \"offered\", of = {{ server = \"{of}\" }}, over = {{ server = \
             \"{over}\" }} }}\nat-least = 0.5\nat-most = 3"
        )
    };
    // One server falls behind the other past the capacity.
    let turn = |trial: &mut TrialRecord| {
        let past = trial.axes.get("offered").and_then(Value::number).is_some_and(|offered| offered > 1.2);
        let factor = match (trial.server.as_str(), past) {
            ("ten", false) => 0.8,
            ("ten", true) => 1.5,
            _ => 1.0,
        };
        trial.metrics.entry("replies_per_s".to_owned()).and_modify(|replies| *replies *= factor);
    };
    let at = |of, over| {
        let claim = about(&crossing(of, over), |trial| {
            turn(trial);
            trial.flaws.clear();
        });
        (claim.judged, claim.because)
    };
    assert_eq!(at("ten", "inf").0, Judgement::Reproduced);
    assert_eq!(at("inf", "ten"), (Judgement::Refuted, "it does not exist".to_owned()));
}

#[test]
fn a_collapse_to_nothing_counts() {
    let claim = "ratio = { metric = \"replies_per_s\", of = { server = \"ten\" }, over = { server = \"inf\" }, at = { offered = \
                 1.5 } }\nat-most = 0.5";
    let collapses = |trial: &mut TrialRecord| {
        if trial.server == "ten" && trial.repeat < 7 {
            trial.metrics.insert("replies_per_s".to_owned(), 0.0);
        }
    };
    let judged = about(claim, collapses);
    assert_eq!((judged.measured, judged.samples, judged.left_out), (Some(0.0), 10, 0));
    assert_ne!(judged.judged, Judgement::Refuted, "{judged:?}");
}

#[test]
fn two_servers_that_answer_nobody_are_not_compared() {
    let claim = "ratio = { metric = \"replies_per_s\", of = { server = \"ten\" }, over = { server = \"inf\" }, at = { offered = \
                 1.5 } }\nat-most = 0.5";
    let judged = about(claim, |trial| {
        trial.metrics.insert("replies_per_s".to_owned(), 0.0);
    });
    assert_eq!(
        (judged.judged, judged.measured, judged.samples),
        (Judgement::NotTested, None, 0),
        "{judged:?}"
    );
}

#[test]
fn what_the_quick_form_leaves_out_is_not_tested() {
    let mut quick = run();
    quick.run.form = Form::Quick;
    quick.trials.retain(|trial| trial.axes.get("offered").is_none_or(|value| value.number() == Some(1.5)));
    let experiment = Experiment::parse(TEXT).unwrap().in_form(Form::Quick);
    let claims = judge_all(&experiment, &quick);
    assert_eq!(of(&claims, "At half").because, "not measured in the quick form");
    let partly = of(&claims, "Past saturation accepting all");
    assert_eq!(partly.because, "offered 3 was not measured in the quick form");
}

/// Judges a claim alone, about the trials of the quick form of a file that keeps some servers.
fn quick_about(claim: &str) -> Judged {
    let (head, _) = TEXT.split_once("[[claim]]").unwrap();
    let text = format!("{head}[quick]\nservers = [\"one\", \"inf\"]\n[[claim]]\ntext = \"x\"\n{claim}");
    let mut quick = run();
    quick.run.form = Form::Quick;
    quick.trials.retain(|trial| {
        let offered = trial.axes.get("offered").and_then(Value::number);
        ["one", "inf"].contains(&trial.server.as_str()) && offered == Some(1.5)
    });
    judge_all(&Experiment::parse(&text).unwrap().in_form(Form::Quick), &quick).remove(0)
}

#[test]
fn claim_is_untested_without_one_of_its_servers() {
    let of = |servers: &str| {
        quick_about(&format!(
            "value = {{ metric = \"replies_per_s\", of = {{ server = [{servers}], offered = 1.5 }} }}\nat-least = 1"
        ))
    };
    assert_eq!(of("\"one\", \"inf\"").judged, Judgement::Reproduced);
    let without = of("\"one\", \"ten\"");
    assert_eq!(without.judged, Judgement::NotTested);
    assert_eq!(without.because, "server ten was not measured in the quick form");
    let at = quick_about(
        "value = { metric = \"replies_per_s\", of = { server = \"one\", offered = [1.5, 3] } }\nat-least = 1",
    );
    assert_eq!(at.because, "offered 3 was not measured in the quick form");
    let best = |among: &str| {
        quick_about(&format!(
            "best = {{ metric = \"replies_per_s\", at = {{ offered = 1.5 }}, {among} expected = [\"inf\"] }}"
        ))
    };
    assert_eq!(best("among = [\"one\", \"inf\"],").judged, Judgement::Reproduced);
    let best_of_all = best("");
    assert_eq!(best_of_all.judged, Judgement::NotTested);
    assert_eq!(best_of_all.because, "server ten was not measured in the quick form");
}

#[test]
fn other_claims_change_only_the_correction() {
    let alone: String = {
        let (head, claims) = TEXT.split_once("[[claim]]").unwrap();
        let knee = claims.split("[[claim]]").find(|claim| claim.contains("The knee")).unwrap();
        format!("{head}[[claim]]{knee}")
    };
    let alone = judge_all(&Experiment::parse(&alone).unwrap(), &run());
    let among = judged(&run());
    let knee = of(&among, "The knee");
    assert_eq!((alone[0].measured, alone[0].interval), (knee.measured, knee.interval));
    assert_eq!((alone[0].chance_within, alone[0].judged), (knee.chance_within, knee.judged));
    assert!(alone[0].chance < knee.chance && knee.together == 10, "corrected for ten claims");
    for seed in 2..12 {
        let judgements: Vec<Judgement> =
            judged(&run_with(10, Seed(seed), |_| 1.0)).iter().map(|claim| claim.judged).collect();
        let first: Vec<Judgement> = judged(&run()).iter().map(|claim| claim.judged).collect();
        assert_eq!(judgements, first, "seed {seed}");
    }
}
