//! What the findings mean: a verdict, where requests are lost, and the record of it all.

use std::collections::BTreeMap;

use record::capacity::SCHEMA;
use record::{CapacityResult, CapacityVerdict, Manifest, Outcome, Step};

use super::{Findings, KEEPS_UP, measured, words};

/// Of its capacity, what a server still answers at the largest load if it holds. Event-driven servers
/// with a bounded accept queue keep 80 to 90 % of their peak at 1.2 times their capacity (Brecht 2004,
/// section 6, and our own measurements of the usual servers); to hold is to be better than that.
const HOLDS: f64 = 0.9;
/// And if it only sags: with less than half, most of the work is done for nobody.
const SAGS: f64 = 0.5;
/// At the same load on the way down, the share of what it answered on the way up below which the
/// overload is said to have an after-effect: twice the noise of a step.
const AFTER_EFFECT: f64 = 0.9;

/// The name of requests that had not ended, beside the outcomes'.
pub(super) const IN_FLIGHT: &str = "in_flight_at_end";

/// The record of a survey.
pub fn conclude(findings: Findings, slo: Option<String>, manifest: Manifest) -> CapacityResult {
    let verdict = verdict(&findings);
    let mut result = CapacityResult {
        schema: SCHEMA.to_owned(),
        capacity_per_s: findings.estimate.per_s,
        interval_per_s: findings.estimate.interval_per_s,
        slo,
        loss: largest_offered(&findings.past).map(loss).unwrap_or_default(),
        search: findings.search,
        knee: findings.knee,
        past: findings.past,
        back: findings.back,
        recovery_s: findings.recovery_s,
        verdict,
        text: String::new(),
        manifest,
    };
    result.text = words::paragraph(&result);
    result
}

/// The record of a survey that was ended by hand.
pub fn interrupted(findings: Findings, slo: Option<String>, manifest: Manifest) -> CapacityResult {
    let was_found = findings.estimate.enclosed && findings.estimate.per_s > 0.0;
    let mut result = conclude(findings, slo, manifest);
    result.verdict = CapacityVerdict::Interrupted;
    if !was_found {
        let (kept_up_with, too_much) = bounds(&result);
        result.capacity_per_s = 0.0;
        result.interval_per_s = [kept_up_with, too_much.unwrap_or(0.0)];
    }
    result.text = words::paragraph(&result);
    result
}

/// Of all single runs, the highest load that was kept up with below the lowest that was too much, and that one.
pub(super) fn bounds(result: &CapacityResult) -> (f64, Option<f64>) {
    let steps = || result.search.iter().chain(&result.knee);
    let kept_up_with = |step: &&Step| measured(step).is_clear();
    let lost = steps().filter(|step| !kept_up_with(step) && !step.generator_limited);
    let too_much = lost.map(|step| step.asked_per_s).reduce(f64::min);
    let below = |step: &&Step| too_much.is_none_or(|too_much| step.asked_per_s < too_much);
    let kept = steps().filter(kept_up_with).filter(below).map(|step| step.asked_per_s).fold(0.0, f64::max);
    (kept, too_much)
}

/// The record of a probe that nobody answered correctly.
pub fn unreachable(probe: &Step, slo: Option<String>, manifest: Manifest) -> CapacityResult {
    let mut result = CapacityResult {
        schema: SCHEMA.to_owned(),
        capacity_per_s: 0.0,
        interval_per_s: [0.0, 0.0],
        slo,
        search: vec![probe.clone()],
        knee: Vec::new(),
        past: Vec::new(),
        back: Vec::new(),
        recovery_s: None,
        loss: loss(probe),
        verdict: CapacityVerdict::Unreachable,
        text: String::new(),
        manifest,
    };
    result.text = words::paragraph(&result);
    result
}

fn verdict(findings: &Findings) -> CapacityVerdict {
    if findings.lower_bound_only {
        return CapacityVerdict::GeneratorLimited;
    }
    if findings.estimate.per_s <= 0.0 {
        // It answered a probe, and no load that was tried.
        return CapacityVerdict::Collapses;
    }
    let Some(largest) = largest_offered(&findings.past) else { return CapacityVerdict::GeneratorLimited };
    match largest.goodput_per_s / findings.estimate.per_s {
        kept if kept >= HOLDS => CapacityVerdict::Holds,
        kept if kept >= SAGS => CapacityVerdict::Sags,
        _ => CapacityVerdict::Collapses,
    }
}

/// Whether the generator really offered what it was asked to; a step need not have a whole number of requests.
pub(super) fn is_brought_about(step: &Step) -> bool {
    let missing_per_s = KEEPS_UP * step.asked_per_s - step.offered_per_s * step.sent_share();
    missing_per_s * step.duration_s <= 1.0
}

/// The step with the largest load that the generator really brought about.
pub(super) fn largest_offered(past: &[Step]) -> Option<&Step> {
    past.iter()
        .filter(|step| is_brought_about(step))
        .max_by(|one, other| one.asked_per_s.total_cmp(&other.asked_per_s))
}

/// The first load on the way down at which markedly less was answered than on the way up, and both steps:
/// up, down. Loads that the generator did not bring about are no comparison.
pub(super) fn after_effect<'a>(past: &'a [Step], back: &'a [Step]) -> Option<(&'a Step, &'a Step)> {
    back.iter().find_map(|down| {
        let up = past.iter().find(|up| up.asked_per_s == down.asked_per_s)?;
        let comparable = is_brought_about(up) && is_brought_about(down);
        (comparable && down.goodput_per_s < AFTER_EFFECT * up.goodput_per_s).then_some((up, down))
    })
}

fn loss(step: &Step) -> BTreeMap<String, f64> {
    let lost = step.outcomes.iter().filter(|(outcome, _)| *outcome != Outcome::Ok);
    let named =
        lost.map(|(outcome, count)| (outcome.name(), count)).chain([(IN_FLIGHT, step.in_flight_at_end)]);
    let offered = step.offered().max(1) as f64;
    named
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count as f64 / offered))
        .collect()
}
