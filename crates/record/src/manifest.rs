//! The origin of a result: enough to run it again and to explain a difference on another machine.

use std::collections::BTreeMap;
use std::fs;

use base::{Seed, WallTime};
use serde::{Deserialize, Serialize};

/// The kernel settings that decide how a server fails; recorded with every run.
const SYSCTLS: [&str; 9] = [
    "net/core/somaxconn",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/tcp_syncookies",
    "net/ipv4/tcp_syn_linear_timeouts",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_abort_on_overflow",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_no_metrics_save",
];

/// The program, the machine and the time of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of Inrush.
    pub version: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The whole configuration, defaults included.
    pub config: BTreeMap<String, String>,
    /// The seed the run can be repeated with.
    pub seed: Option<Seed>,
    /// Seconds since 1970-01-01 at the start.
    pub started_unix_s: u64,
    /// `uname -r`.
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// Processors that are online.
    pub cpus: usize,
    /// The processors that this process may run on.
    pub cpus_allowed: String,
    /// The descriptor limit in force.
    pub descriptor_limit: Option<u64>,
    /// Kernel settings, as they stood in the network namespace of the run.
    pub sysctls: BTreeMap<String, String>,
}

impl Manifest {
    /// Returns the manifest of a run that starts now on this machine.
    pub fn of_this_machine(
        started: WallTime,
        config: BTreeMap<String, String>,
        seed: Option<Seed>,
    ) -> Manifest {
        Manifest {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: std::env::args().collect(),
            config,
            seed,
            started_unix_s: started.seconds,
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: after_colon("/proc/cpuinfo", "model name"),
            cpus: online(&fs::read_to_string("/proc/stat").unwrap_or_default()),
            cpus_allowed: after_colon("/proc/self/status", "Cpus_allowed_list"),
            descriptor_limit: descriptor_limit(),
            sysctls: sysctls(),
        }
    }
}

/// Reads the kernel settings that decide how a server fails, as they stand in the calling thread's network namespace. A
/// setting that this kernel lacks is absent.
pub fn sysctls() -> BTreeMap<String, String> {
    let read = |name: &&str| (name.replace('/', "."), first_line(&format!("/proc/sys/{name}")));
    SYSCTLS.iter().map(read).filter(|(_, value)| !value.is_empty()).collect()
}

/// Counts the processors in the text of `/proc/stat`, which lists those that are online behind their sum.
fn online(stat: &str) -> usize {
    stat.lines().filter(|line| line.starts_with("cpu")).count().saturating_sub(1).max(1)
}

/// Returns a file's first line, or an empty text if the file cannot be read.
fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().trim().replace('\t', " ")
}

/// Returns the value after `name:` in a file of such lines.
fn after_colon(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
}

fn descriptor_limit() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find(|line| line.starts_with("Max open files"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let manifest = Manifest::of_this_machine(WallTime { seconds: 1 }, BTreeMap::new(), Some(Seed(7)));
        assert!(!manifest.kernel.is_empty());
        assert!(manifest.cpus >= 1);
        assert!(manifest.descriptor_limit.is_some());
        let text = serde_json::to_string(&manifest).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), manifest);
    }

    #[test]
    fn processors_are_counted_despite_affinity() {
        assert_eq!(online("cpu  9 9\ncpu0 4 5\ncpu3 5 4\nintr 5\n"), 2);
        assert_eq!(online(""), 1);
    }
}
