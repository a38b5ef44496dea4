//! The result of a search for a server's capacity: loads below it, at it, past it, and back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::load::{Distribution, LoadResult, Outcomes, Verdict};
use crate::manifest::Manifest;

/// The schema this version writes.
pub const SCHEMA: &str = "inrush.capacity/1";

/// One load, offered for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Requests a second that were asked for.
    pub asked_per_s: f64,
    /// Requests scheduled, a second.
    pub offered_per_s: f64,
    /// Correct replies within [`CapacityResult::deadline_ns`], a second. A reply counts in the step it arrives in.
    pub goodput_per_s: f64,
    /// The measured time, warm-up left out.
    pub duration_s: f64,
    /// From the intended time to the complete reply, of correct replies. Past the capacity and back, of those
    /// that arrived in the step, and each quantile is the median over tenths of a second.
    pub latency_intended_ns: Distribution,
    /// How requests ended.
    pub outcomes: Outcomes,
    /// Requests that had not ended when the step did; past the capacity and back, by how many they became
    /// more in it.
    pub in_flight_at_end: u64,
    /// Whether the objective held; true where there is none.
    pub slo_held: bool,
    /// Whether the generator was a limit, and why, one sentence each.
    pub generator_limited: bool,
    /// The reasons of the generator's limit; empty where it was none.
    pub reasons: Vec<String>,
}

impl Step {
    /// The step that a run of load was.
    pub fn of(result: &LoadResult, asked_per_s: f64, slo_held: bool) -> Step {
        let generator_limited = result.verdict == Verdict::GeneratorLimited;
        Step {
            asked_per_s,
            offered_per_s: result.offered_per_s,
            goodput_per_s: result.goodput_per_s,
            duration_s: result.duration_s,
            latency_intended_ns: result.latency_intended_ns.answered,
            outcomes: result.outcomes.clone(),
            in_flight_at_end: result.in_flight_at_end,
            slo_held,
            generator_limited,
            reasons: if generator_limited { result.reasons.clone() } else { Vec::new() },
        }
    }

    /// Requests that ended in the step or were waiting at its end. At least the requests that ended well: a reply to a
    /// request of an earlier step is one of them.
    pub fn offered(&self) -> u64 {
        self.outcomes.total() + self.in_flight_at_end
    }

    /// Of the offered requests, the share that the client itself did not fail to send; 1 where there was none.
    pub fn sent_share(&self) -> f64 {
        let unsent: u64 = self
            .outcomes
            .iter()
            .filter(|(outcome, _)| outcome.is_client_limit())
            .map(|(_, count)| count)
            .sum();
        1.0 - unsent as f64 / self.offered().max(1) as f64
    }
}

/// The behaviour of a server past its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityVerdict {
    /// Its goodput, its latency and the objective hold, it refuses the excess at once, and it recovers within a second.
    Holds,
    /// The same, but it leaves the excess without an answer.
    Drops,
    /// Its goodput, its latency, the objective or its recovery is markedly worse than at the capacity.
    Sags,
    /// Its goodput falls below half of the capacity, or it does not recover.
    Collapses,
    /// The generator gave out first: the capacity is a lower bound, and nothing is known past it.
    GeneratorLimited,
    /// No request was answered correctly, however few were offered.
    Unreachable,
    /// It was ended by hand before this was known: what there is, is of the runs until then.
    Interrupted,
}

/// The result of `inrush capacity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// The highest offered load that the server answers in full, the objective kept; requests a second. 0 where the
    /// search was interrupted before it was found.
    pub capacity_per_s: f64,
    /// Between which rates it lies: lower and upper bound, 95 % confidence. Where it was not found, the highest load
    /// that was kept up with, and the lowest that was too much, or 0.
    pub interval_per_s: [f64; 2],
    /// What had to hold, as it was given.
    pub slo: Option<String>,
    /// A reply that takes longer than this, from the intended time of its request, is no goodput; 0 where no capacity
    /// was searched for.
    #[serde(default)]
    pub deadline_ns: u64,
    /// The short runs that found where to look, in their order.
    pub search: Vec<Step>,
    /// The runs that the capacity was estimated from, in their random order.
    pub knee: Vec<Step>,
    /// Past the capacity, upwards.
    pub past: Vec<Step>,
    /// The same loads on the way down.
    pub back: Vec<Step>,
    /// How long after all this a load below the capacity was not yet served as before; absent where that was
    /// not seen, or not tried.
    pub recovery_s: Option<f64>,
    /// At the largest load: the share of the offered requests that each outcome but `ok` has, zeros left
    /// out, and of those `in_flight_at_end`.
    pub loss: BTreeMap<String, f64>,
    /// What the server does past its capacity.
    pub verdict: CapacityVerdict,
    /// All of it in plain words.
    pub text: String,
    /// What was run, where, and how to run it again.
    pub manifest: Manifest,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Outcome;

    #[test]
    fn what_the_client_did_not_send_is_not_held_against_the_server() {
        let mut outcomes = Outcomes::default();
        outcomes.add(Outcome::Ok, 60);
        outcomes.add(Outcome::Reset, 10);
        outcomes.add(Outcome::NoPort, 20);
        let step = Step {
            asked_per_s: 100.0,
            offered_per_s: 100.0,
            goodput_per_s: 60.0,
            duration_s: 1.0,
            latency_intended_ns: Distribution::default(),
            outcomes,
            in_flight_at_end: 10,
            slo_held: true,
            generator_limited: true,
            reasons: Vec::new(),
        };
        assert_eq!(step.offered(), 100);
        assert_eq!(step.sent_share(), 0.8);
    }

    #[test]
    fn verdicts_are_written_as_documented() {
        let written = serde_json::to_value(CapacityVerdict::GeneratorLimited).unwrap();
        assert_eq!(written, "generator-limited");
    }
}
