//! What an experiment found out: servers side by side, each under several loads, each load repeated.
//!
//! A [`Study`] is everything a report is drawn from. It holds records only; medians, spreads and
//! verdicts are the report's.

use serde::{Deserialize, Serialize};

use crate::load::LoadResult;
use crate::manifest::Manifest;

/// The schema this version writes.
pub const SCHEMA: &str = "inrush.study/1";

/// Servers compared under the same loads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// [`SCHEMA`].
    pub schema: String,
    /// What the experiment is called, in a few words.
    pub title: String,
    /// Where server and client ran.
    pub topology: Topology,
    /// The servers, in the order they are shown; names are unique.
    pub servers: Vec<ServerEntry>,
    /// The trials, in the order they were run.
    pub trials: Vec<Trial>,
    /// What was run, where, and how to run it again.
    pub manifest: Manifest,
}

/// How server and client were kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopologyKind {
    /// Two network namespaces joined by a veth pair: each side pays for its own packets.
    Namespaces,
    /// The loopback interface: the sender's CPU also does the receiver's share of the network work.
    Loopback,
}

/// Where server and client ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// How they were kept apart.
    pub kind: TopologyKind,
    /// What this machine could not do and what that changes, one sentence each.
    pub warnings: Vec<String>,
}

/// A server under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerEntry {
    /// Short, for a legend: `accept-limit 10`.
    pub name: String,
    /// One sentence on what it is.
    pub description: String,
    /// Its command line, word by word.
    pub command: Vec<String>,
    /// The most correct replies a second it was seen to keep up with; 0 where it was never found.
    pub capacity_per_s: f64,
    /// Between which rates that capacity lies: lower and upper bound.
    pub capacity_interval_per_s: [f64; 2],
    /// Why there are no trials of it, where there are none: `nginx is not installed`.
    pub excluded: Option<String>,
}

/// One server under one load, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The [`ServerEntry::name`].
    pub server: String,
    /// The target rate over this server's capacity.
    pub factor: f64,
    /// Which repetition of this load, from 0.
    pub repeat: u32,
    /// Its place in the random order the trials were run in, from 0.
    pub order: u32,
    /// What the client saw.
    pub load: LoadResult,
    /// What the server's kernel threw away meanwhile.
    pub kernel: KernelDrops,
    /// The accept queue meanwhile; absent where nobody could look at it.
    pub queue: Option<QueueDepth>,
    /// CPU time of the server over the measured time, in cores.
    pub server_cpu: f64,
    /// CPU time of the client over the measured time, in cores.
    pub client_cpu: f64,
    /// What the server said about itself over the run, warm-up included: the JSON of its status page, counters
    /// as differences. Absent for a server that has none.
    pub server_status: Option<serde_json::Value>,
}

/// Connections the kernel dropped before the server saw them: differences of the `TcpExt` counters of
/// the server's network namespace. `listen_drops` counts every drop at a listener; the next two say of
/// which kind some of them were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelDrops {
    /// The time between the two readings, in seconds.
    pub over_s: f64,
    /// `ListenDrops`: segments dropped at a listener, for whatever reason.
    pub listen_drops: u64,
    /// `ListenOverflows`: of them, those that found the accept queue full.
    pub listen_overflows: u64,
    /// `TCPReqQFullDrop`: SYNs dropped because the SYN queue was full.
    pub req_q_full_drops: u64,
    /// `TCPReqQFullDoCookies`: SYNs answered by a cookie because the SYN queue was full.
    pub req_q_full_cookies: u64,
    /// `SyncookiesSent`.
    pub syn_cookies_sent: u64,
}

/// The accept queue of a listener, sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueDepth {
    /// The most connections seen waiting in it.
    pub depth_max: u64,
    /// How many were waiting on average over the samples.
    pub depth_mean: f64,
    /// How many it holds.
    pub limit: u64,
}

impl KernelDrops {
    /// All drops at the listener, a second; 0 where no time passed.
    pub fn listen_drops_per_s(&self) -> f64 {
        if self.over_s > 0.0 { self.listen_drops as f64 / self.over_s } else { 0.0 }
    }
}

impl Trial {
    /// Connections accepted per accept phase (Brecht 2004, equation 1), where the server reports it:
    /// `accepts` over `accept_phases`, or `mean_accepted_per_phase`.
    pub fn mean_accepted_per_phase(&self) -> Option<f64> {
        let status = self.server_status.as_ref()?;
        let field = |name: &str| status.get(name).and_then(serde_json::Value::as_f64);
        match (field("accepts"), field("accept_phases")) {
            (Some(accepts), Some(phases)) if phases > 0.0 => Some(accepts / phases),
            _ => field("mean_accepted_per_phase"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Distribution;
    use serde_json::json;

    fn trial_of(status: Option<serde_json::Value>) -> Trial {
        let load = json!({
            "schema": crate::load::SCHEMA, "duration_s": 1.0, "offered": 0, "in_flight_at_end": 0,
            "outcomes": {}, "connections": { "attempted": 0, "established": 0, "sockets_peak": 0 },
            "target_per_s": null, "offered_per_s": 0.0, "sent_per_s": 0.0, "replies_per_s": 0.0,
            "goodput_per_s": 0.0, "content_bytes_per_s": 0.0, "generator_cpu": 0.0,
            "latency_intended_ns": Distribution::default(), "latency_sent_ns": Distribution::default(),
            "connect_ns": Distribution::default(), "lateness_ns": Distribution::default(),
            "populations": {}, "series": [], "verdict": "valid", "reasons": [],
            "manifest": Manifest::default(),
        });
        Trial {
            server: "a".to_owned(),
            factor: 1.0,
            repeat: 0,
            order: 0,
            load: serde_json::from_value(load).unwrap(),
            kernel: KernelDrops { over_s: 2.0, listen_drops: 10, ..KernelDrops::default() },
            queue: None,
            server_cpu: 1.0,
            client_cpu: 0.5,
            server_status: status,
        }
    }

    #[test]
    fn accepted_per_phase_comes_from_the_counters_before_the_mean() {
        let mean = |status| trial_of(status).mean_accepted_per_phase();
        assert_eq!(mean(None), None);
        assert_eq!(mean(Some(json!({ "accepts": 30, "accept_phases": 10 }))), Some(3.0));
        assert_eq!(mean(Some(json!({ "accepts": 0, "accept_phases": 0 }))), None);
        assert_eq!(mean(Some(json!({ "mean_accepted_per_phase": 2.5 }))), Some(2.5));
        assert_eq!(mean(Some(json!("not an object"))), None);
    }

    #[test]
    fn a_study_is_read_back_as_it_was_written() {
        let study = Study {
            schema: SCHEMA.to_owned(),
            title: "three limits".to_owned(),
            topology: Topology { kind: TopologyKind::Namespaces, warnings: vec![] },
            servers: vec![],
            trials: vec![trial_of(Some(json!({ "accepts": 1 })))],
            manifest: Manifest::default(),
        };
        let text = serde_json::to_string(&study).unwrap();
        assert!(text.contains(r#""kind":"namespaces""#), "{text}");
        assert_eq!(serde_json::from_str::<Study>(&text).unwrap(), study);
    }

    #[test]
    fn drops_without_time_are_no_rate() {
        assert_eq!(trial_of(None).kernel.listen_drops_per_s(), 5.0);
        assert_eq!(KernelDrops::default().listen_drops_per_s(), 0.0);
    }
}
