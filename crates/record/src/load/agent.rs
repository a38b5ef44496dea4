//! The agents of a run by a fleet: each one's share, its clock, and the result of its share.

use serde::{Deserialize, Serialize};

use super::{Distribution, Latency, Verdict};
use super::{LoadResult, Outcomes};

/// The way an agent's part of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// The agent carried out its share and reported it.
    Complete,
    /// The agent was killed, stopped or cut off. The run's figures lack its share.
    Lost,
}

/// One agent of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// The agent's name.
    pub name: String,
    /// The way its part ended.
    pub state: AgentState,
    /// The reason for a loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// The fraction of the load that was the agent's share.
    pub share: f64,
    /// The agent's monotonic clock minus the coordinator's, in nanoseconds.
    pub clock_offset_ns: i64,
    /// The round trip of the exchange that gave the offset; half of it bounds the offset's error.
    pub clock_round_trip_ns: u64,
    /// The result of the agent's share; `None` for a lost agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<AgentPart>,
}

/// The result of an agent's share. The fields mean the same as those of [`LoadResult`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentPart {
    /// The time from the run's start to the agent's own, by the agent's clock.
    pub start_late_ns: u64,
    /// Requests scheduled in the measured time.
    pub offered: u64,
    /// Requests that had not ended when the run did.
    pub in_flight_at_end: u64,
    /// The outcomes of the others.
    pub outcomes: Outcomes,
    /// `offered` over the measured time.
    pub offered_per_s: f64,
    /// Complete replies of any status, a second.
    pub replies_per_s: f64,
    /// Correct replies in time, a second.
    pub goodput_per_s: f64,
    /// Latency from the intended time.
    pub latency_intended_ns: Latency,
    /// From the scheduled time of a session until its connect().
    pub lateness_ns: Distribution,
    /// CPU time of the agent over the measured time, in cores.
    pub generator_cpu: f64,
    /// The verdict on this part alone.
    pub verdict: Verdict,
    /// The reasons for it, one sentence each.
    pub reasons: Vec<String>,
    /// The kernel of the agent's machine.
    pub kernel: String,
    /// The processor of the agent's machine.
    pub cpu: String,
}

impl AgentPart {
    /// The part that this result is of.
    pub fn of(result: LoadResult, start_late_ns: u64) -> AgentPart {
        AgentPart {
            start_late_ns,
            offered: result.offered,
            in_flight_at_end: result.in_flight_at_end,
            outcomes: result.outcomes,
            offered_per_s: result.offered_per_s,
            replies_per_s: result.replies_per_s,
            goodput_per_s: result.goodput_per_s,
            latency_intended_ns: result.latency_intended_ns,
            lateness_ns: result.lateness_ns,
            generator_cpu: result.generator_cpu,
            verdict: result.verdict,
            reasons: result.reasons,
            kernel: result.manifest.kernel,
            cpu: result.manifest.cpu,
        }
    }
}
