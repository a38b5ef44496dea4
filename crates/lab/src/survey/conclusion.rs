//! The record of a survey: the findings, the verdict, and the verdict in sentences.

use analysis::capacity::judge;
use record::capacity::SCHEMA;
use record::{CapacityResult, CapacityVerdict, Manifest, Step};

use super::Findings;

/// Makes the record of a survey.
pub fn conclude(findings: Findings, slo: Option<String>, manifest: Manifest) -> CapacityResult {
    let lower_bound_only = findings.lower_bound_only;
    let mut result = CapacityResult {
        schema: SCHEMA.to_owned(),
        capacity_per_s: findings.estimate.per_s,
        interval_per_s: findings.estimate.interval_per_s,
        slo,
        deadline_ns: findings.deadline.0,
        loss: judge::largest_offered(&findings.past).map(judge::loss).unwrap_or_default(),
        search: findings.search,
        knee: findings.knee,
        past: findings.past,
        back: findings.back,
        recovery_s: findings.recovery_s,
        server: None,
        verdict: CapacityVerdict::GeneratorLimited,
        text: String::new(),
        manifest,
    };
    result.verdict =
        if lower_bound_only { CapacityVerdict::GeneratorLimited } else { judge::verdict(&result) };
    result.text = report::capacity::paragraph(&result);
    result
}

/// Makes the record of a survey that the user interrupted.
pub fn interrupted(findings: Findings, slo: Option<String>, manifest: Manifest) -> CapacityResult {
    let was_found = findings.estimate.enclosed && findings.estimate.per_s > 0.0;
    let mut result = conclude(findings, slo, manifest);
    result.verdict = CapacityVerdict::Interrupted;
    if !was_found {
        let (kept_up_with, too_much) = judge::bounds(&result);
        result.capacity_per_s = 0.0;
        result.interval_per_s = [kept_up_with, too_much.unwrap_or(0.0)];
    }
    result.text = report::capacity::paragraph(&result);
    result
}

/// Makes the record of a probe without a correct answer.
pub fn unreachable(probe: &Step, slo: Option<String>, manifest: Manifest) -> CapacityResult {
    let mut result = CapacityResult {
        schema: SCHEMA.to_owned(),
        capacity_per_s: 0.0,
        interval_per_s: [0.0, 0.0],
        slo,
        deadline_ns: 0,
        search: vec![probe.clone()],
        knee: Vec::new(),
        past: Vec::new(),
        back: Vec::new(),
        recovery_s: None,
        loss: judge::loss(probe),
        server: None,
        verdict: CapacityVerdict::Unreachable,
        text: String::new(),
        manifest,
    };
    result.text = report::capacity::paragraph(&result);
    result
}
