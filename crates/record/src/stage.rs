//! The stage of a trial: its topology, the kernel's drops and the accept queue.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The separation of server and client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopologyKind {
    /// Two network namespaces joined by a veth pair: each side pays for its own packets.
    Namespaces,
    /// The loopback interface: the sender's CPU also does the receiver's share of the network work.
    Loopback,
}

/// The places of server and client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The separation of server and client.
    pub kind: TopologyKind,
    /// The limits of this machine and their effects, one sentence each.
    pub warnings: Vec<String>,
}

/// The conditions of a trial as they were found after the server's start, whatever its file and its command line say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// Kernel settings of the server's namespace.
    pub sysctls: BTreeMap<String, String>,
    /// The limit of the accept queue; of the longest one if several listeners share the port.
    pub backlog: u64,
    /// Processes of the server.
    pub processes: u64,
    /// Threads of these processes.
    pub threads: u64,
    /// Event queues of these processes (epoll and io_uring): at least one for each event loop, none for blocking servers and
    /// for poll and select.
    pub event_queues: u64,
    /// The architecture by the server's status page.
    pub architecture: Option<String>,
    /// The event mechanism by the server's status page.
    pub dispatch: Option<String>,
}

/// The speed of the server's first CPU around a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// The time of a fixed spin before the load, in microseconds.
    pub spin_us_before: f64,
    /// The time of the same spin after the load.
    pub spin_us_after: f64,
    /// The share of the measured time in which a hypervisor gave the server's CPUs to others (steal), from 0 to 1.
    pub steal_share: f64,
}

/// Connections and packets that the kernel dropped before the server saw them: differences of counters of the server's
/// network namespace, most of them from `TcpExt`. `listen_drops` counts every drop at a listener; the next three fields
/// count drops of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelDrops {
    /// The time between the two readings, in seconds.
    pub over_s: f64,
    /// `ListenDrops`: segments dropped at a listener, for any reason.
    pub listen_drops: u64,
    /// `ListenOverflows`: segments among these that found the accept queue full.
    pub listen_overflows: u64,
    /// Final ACKs among these; absent if the experiment does not ask for them. Their clients believe that they are
    /// connected. Counted on the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_acks_dropped: Option<u64>,
    /// SYNs that arrived at the devices of the server's side, dropped or not; absent if the experiment does not ask for
    /// them, or if the generator has a device of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syns_arrived: Option<u64>,
    /// `TCPReqQFullDrop`: SYNs dropped because the SYN queue was full.
    pub req_q_full_drops: u64,
    /// `TCPReqQFullDoCookies`: SYNs answered by a cookie because the SYN queue was full.
    pub req_q_full_cookies: u64,
    /// `SyncookiesSent`.
    pub syn_cookies_sent: u64,
    /// Packets of any kind that found the packet queue of a server's CPU full (`net.core.netdev_max_backlog`), from
    /// `/proc/net/softnet_stat`. Sessions share this queue with the rush.
    #[serde(default)]
    pub packet_queue_full: u64,
    /// `RetransSegs`: segments that the server's kernel sent again. Its own drops are one reason.
    #[serde(default)]
    pub retransmitted: u64,
}

impl KernelDrops {
    /// The difference from an earlier reading, `over_s` seconds before.
    pub fn since(&self, earlier: &KernelDrops, over_s: f64) -> KernelDrops {
        let difference = |of: fn(&KernelDrops) -> u64| of(self).saturating_sub(of(earlier));
        let of_asked = |of: fn(&KernelDrops) -> Option<u64>| {
            of(self).map(|now| now.saturating_sub(of(earlier).unwrap_or_default()))
        };
        KernelDrops {
            over_s,
            listen_drops: difference(|drops| drops.listen_drops),
            listen_overflows: difference(|drops| drops.listen_overflows),
            final_acks_dropped: of_asked(|drops| drops.final_acks_dropped),
            syns_arrived: of_asked(|drops| drops.syns_arrived),
            req_q_full_drops: difference(|drops| drops.req_q_full_drops),
            req_q_full_cookies: difference(|drops| drops.req_q_full_cookies),
            syn_cookies_sent: difference(|drops| drops.syn_cookies_sent),
            packet_queue_full: difference(|drops| drops.packet_queue_full),
            retransmitted: difference(|drops| drops.retransmitted),
        }
    }
}

/// The accept queue of a listener, sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueDepth {
    /// The most connections seen waiting in the queue.
    pub depth_max: u64,
    /// The mean number of waiting connections over the samples.
    pub depth_mean: f64,
    /// The greatest length of the queue.
    pub limit: u64,
}
