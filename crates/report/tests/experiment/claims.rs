//! Claims whose truth is known.

use analysis::claims::{Judged, Judgement, SAMPLES_MIN, judge_all};
use base::Seed;
use experiment::Experiment;
use record::experiment::{Form, RunDirectory};

use super::fixture::{TEXT, run, run_with};

fn judged(run: &RunDirectory) -> Vec<Judged> {
    judge_all(&Experiment::parse(TEXT).unwrap(), run)
}

fn of<'a>(claims: &'a [Judged], start: &str) -> &'a Judged {
    claims.iter().find(|claim| claim.claim.starts_with(start)).unwrap()
}

#[test]
fn every_kind_of_claim_comes_out_as_the_formulas_have_it() {
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
    // Of three points past saturation one has no valid trial of the one side. One trial of the other side is flawed, and
    // its repetition does not count.
    assert_eq!((ratio.samples, ratio.left_out), (9, 11));
    let [low, high] = ratio.interval.unwrap();
    assert!(low > 1.08 && high < 1.75, "{ratio:?}");
    let even = of(&claims, "At half the capacity").interval.unwrap();
    assert!(even[1] - even[0] < 0.03, "{even:?}");
}

#[test]
fn why_a_claim_is_undecided_or_not_tested_is_said() {
    let claims = judged(&run());
    assert_eq!(of(&claims, "nginx").because, "nginx was not measured: nginx is not installed");
    assert_eq!(of(&claims, "At twice").because, "none of its 10 trials is valid");
    assert_eq!(of(&claims, "At half").because, "the interval reaches over the bound");
    let few = judged(&run_with(SAMPLES_MIN as u32 - 1, Seed(1), |_| 1.0));
    assert_eq!(of(&few, "Loss costs").judged, Judgement::NotTested);
    assert_eq!(of(&few, "Loss costs").because, "2 of at least 3 valid measurements");
    let four = judged(&run_with(4, Seed(1), |_| 1.0));
    assert_eq!(of(&four, "Loss costs").judged, Judgement::Undecided);
    assert_eq!(of(&four, "Loss costs").because, "4 of at least 5 measurements that can decide");
}

#[test]
fn what_the_quick_form_leaves_out_is_not_tested() {
    let mut quick = run();
    quick.run.form = Form::Quick;
    quick.trials.retain(|trial| trial.axes.get("offered").is_none_or(|value| value.number() == Some(1.5)));
    let experiment = Experiment::parse(TEXT).unwrap().in_form(Form::Quick);
    let claims = judge_all(&experiment, &quick);
    assert_eq!(of(&claims, "At half").because, "not measured in the quick form");
    assert_eq!(of(&claims, "Past saturation accepting all").judged, Judgement::Reproduced);
}

#[test]
fn other_claims_change_only_the_correction_and_other_seeds_hardly_do() {
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
