//! Combines the verdicts of a fleet's agents with the verdict on the merged figures.
//!
//! An agent that was the limit makes the run invalid, because the load was not the load that was asked for. So does
//! an agent that was lost, or that ended before the others.

use base::Nanos;
use record::load::{Agent, AgentPart, AgentState};
use record::{LoadResult, Verdict};

/// The start of an agent may be this late without a remark.
pub const START_LATE_MAX: Nanos = Nanos::from_millis(5);

/// An agent may offer load for a time this much shorter than the longest.
const END_EARLY_MAX_S: f64 = 0.1;

/// Puts the agents into the result, and judges it again.
pub(crate) fn combine(result: &mut LoadResult, agents: Vec<Agent>) {
    let (limited, degraded) = reasons(&agents);
    let verdict = match (limited.is_empty(), degraded.is_empty()) {
        (false, _) => Verdict::GeneratorLimited,
        (true, false) => Verdict::Degraded,
        (true, true) => Verdict::Valid,
    };
    let complete = agents.iter().filter(|agent| agent.state == AgentState::Complete).count();
    if complete < agents.len() {
        let how = format!("Partial, {complete} of {} agents delivered their part", agents.len());
        result.conclusion = format!("{how}: {}", result.conclusion);
    } else if result.verdict.is_valid() && verdict == Verdict::GeneratorLimited {
        result.conclusion = format!("Not valid, an agent was the limit: {}", result.conclusion);
    }
    result.verdict = worse(result.verdict, verdict);
    result.reasons = [limited, std::mem::take(&mut result.reasons), degraded].concat();
    result.agents = agents;
}

/// The reasons against the figures, and the reservations.
fn reasons(agents: &[Agent]) -> (Vec<String>, Vec<String>) {
    let (mut lost, mut limited, mut degraded) = (Vec::new(), Vec::new(), Vec::new());
    let measured = agents.iter().filter_map(|agent| agent.part.as_ref()).filter_map(measured_s);
    let longest = measured.fold(0.0, f64::max);
    for agent in agents {
        let Some(part) = &agent.part else {
            let why = agent.lost.as_deref().unwrap_or("no part came");
            let share = 100.0 * agent.share;
            lost.push(format!(
                "Agent {} was lost ({why}): its {share:.0} % of the load are missing in the figures.",
                agent.name
            ));
            continue;
        };
        if let Some(measured) = measured_s(part).filter(|measured| measured + END_EARLY_MAX_S < longest) {
            let name = &agent.name;
            limited
                .push(format!("Agent {name} ended its load early, after {measured:.1} of {longest:.1} s."));
        }
        if part.verdict == Verdict::GeneratorLimited {
            let why = part.reasons.first().map_or("", String::as_str);
            limited.push(format!("Agent {} was the limit. {why}", agent.name));
        }
        if part.start_late_ns > START_LATE_MAX.0 {
            degraded.push(format!(
                "Agent {} started {} late; use a machine with less to do.",
                agent.name,
                Nanos(part.start_late_ns).approximate()
            ));
        }
    }
    lost.append(&mut limited);
    (lost, degraded)
}

/// The measured time of an agent, in seconds; `None` if nothing was due in it.
fn measured_s(part: &AgentPart) -> Option<f64> {
    (part.offered > 0 && part.offered_per_s > 0.0).then(|| part.offered as f64 / part.offered_per_s)
}

/// The worse of two verdicts.
fn worse(one: Verdict, other: Verdict) -> Verdict {
    let rank = |verdict| match verdict {
        Verdict::Valid => 0,
        Verdict::Degraded => 1,
        Verdict::GeneratorLimited => 2,
        Verdict::NotMeasured => 3,
        Verdict::Unreachable => 4,
    };
    if rank(other) > rank(one) { other } else { one }
}
