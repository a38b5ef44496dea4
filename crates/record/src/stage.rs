//! The stage of a trial: where server and client ran, and what the kernel and the accept queue were seen to do.

use serde::{Deserialize, Serialize};

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
