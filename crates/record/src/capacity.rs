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
    /// Requests per second that the step was to offer.
    pub asked_per_s: f64,
    /// Requests scheduled per second.
    pub offered_per_s: f64,
    /// Correct replies per second, within [`CapacityResult::deadline_ns`]. A reply counts in the step in which it
    /// arrives.
    pub goodput_per_s: f64,
    /// The measured time, warm-up left out.
    pub duration_s: f64,
    /// Latency of correct replies, from the intended time to the complete reply. Past the capacity and back, only
    /// replies that arrived in the step count. There, each quantile is the median over tenths of a second.
    pub latency_intended_ns: Distribution,
    /// The outcomes of the requests.
    pub outcomes: Outcomes,
    /// Requests in flight at the end of the step. Past the capacity and back: the increase of their number in the
    /// step.
    pub in_flight_at_end: u64,
    /// True if the objective held, or if there is none.
    pub slo_held: bool,
    /// True if the generator was a limit.
    pub generator_limited: bool,
    /// The reasons for the generator's limit, one sentence each; empty if it was none.
    pub reasons: Vec<String>,
}

impl Step {
    /// Makes the step of one run of load.
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

    /// Requests that ended in the step or were waiting at its end. A reply to a request of an earlier step counts
    /// too, so this is never below the number of correct replies.
    pub fn offered(&self) -> u64 {
        self.outcomes.total() + self.in_flight_at_end
    }

    /// The share of the offered requests that the client did not fail to send; 1 if none was offered.
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

/// The server's side of the loads past the capacity, from the kernel of this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerSide {
    /// The name of its program; absent if the user may not see its processes.
    pub name: Option<String>,
    /// Its accept queue; absent if the requests shared kept connections.
    pub queue: Option<QueueSide>,
    /// The most CPU time in a second of the processes that hold its listeners, in CPUs; absent if the user may not see them.
    pub cpu: Option<f64>,
    /// The CPUs of the machine that this program may use.
    pub cpus: usize,
}

/// An accept queue, or the queues of a SO_REUSEPORT group together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueSide {
    /// The most connections in it at one look; there are five looks a second.
    pub depth_max: u64,
    /// The backlog that the server asked for, as far as the kernel granted it.
    pub limit: u64,
    /// SYNs and connections that the kernel dropped at the listeners.
    pub drops: u64,
    /// The mean number of requests of a connection.
    pub requests_per_connection: f64,
}

/// The behaviour of a server past its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityVerdict {
    /// Goodput, latency and objective hold. The server refuses the excess at once and recovers within a second.
    Holds,
    /// As `holds`, but the server leaves the excess without an answer.
    Drops,
    /// Goodput, latency, objective or recovery is markedly worse than at the capacity.
    Sags,
    /// Goodput falls below half of the capacity, or the server does not recover.
    Collapses,
    /// The generator was the limit: the capacity is a lower bound, and nothing is known past it.
    GeneratorLimited,
    /// Not even the few requests of the first probe got a correct reply.
    Unreachable,
    /// The user interrupted the survey. The record holds the runs until then.
    Interrupted,
}

/// The result of `inrush capacity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// The highest offered load that the server answers in full while the objective holds, in requests per second; 0
    /// if the search was interrupted before.
    pub capacity_per_s: f64,
    /// Lower and upper bound of the capacity: the middle 95 % of resampled estimates, widened to the loads around the
    /// knee. Without a capacity: the highest load that the server kept up with, and the lowest that was too much, or 0.
    pub interval_per_s: [f64; 2],
    /// The objective, as it was given.
    pub slo: Option<String>,
    /// The deadline of a reply, from the intended time of its request. A later reply is not goodput. 0 if no capacity
    /// was searched for.
    #[serde(default)]
    pub deadline_ns: u64,
    /// The short runs that bracketed the capacity, in their order.
    pub search: Vec<Step>,
    /// The runs that the capacity was estimated from, in their random order.
    pub knee: Vec<Step>,
    /// The loads past the capacity, on the way up.
    pub past: Vec<Step>,
    /// The same loads on the way down.
    pub back: Vec<Step>,
    /// The time after the overload until the server served a load below the capacity as before. Absent if the survey
    /// did not see or try it.
    pub recovery_s: Option<f64>,
    /// Shares of the offered requests at the largest load, by outcome, without `ok` and without zeros.
    /// `in_flight_at_end` is one of the keys.
    pub loss: BTreeMap<String, f64>,
    /// The server's side, if it is on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerSide>,
    /// The server's behaviour past its capacity.
    pub verdict: CapacityVerdict,
    /// The conclusion in plain words.
    pub text: String,
    /// The conditions of the survey: enough to repeat it.
    pub manifest: Manifest,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Outcome;

    #[test]
    fn unsent_requests_do_not_count_against_the_server() {
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
