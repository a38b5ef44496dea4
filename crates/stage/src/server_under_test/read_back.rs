//! The conditions of a server as they are after its start, beside those that were asked for.
//!
//! Owns reading them from the kernel, from the server's processes and from its status page, and the comparison. A command
//! line and a configuration say what somebody wanted: a server may ignore it, and the kernel may bound it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use record::InForce;

use super::RunningServer;
use crate::kernel::Observer;
use crate::proc;
use crate::topology::Topology;

/// The conditions that a server was asked for. An absent one was not asked for, and may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The limit of the accept queue.
    pub backlog: Option<u32>,
    /// Processes, the parent among them.
    pub processes: Option<u32>,
    /// The architecture of one of our servers.
    pub architecture: Option<String>,
    /// The event mechanism of one of our servers.
    pub dispatch: Option<String>,
}

/// Reads the conditions in force back. `sysctls` are the kernel settings of the experiment, beside which those of every
/// record are read.
///
/// # Errors
/// Errors of reading /proc and of the query for the listener.
pub fn in_force(
    topology: &Topology,
    server: &RunningServer,
    observer: &mut Observer,
    sysctls: &[(String, String)],
) -> io::Result<InForce> {
    let status = server.status(topology).unwrap_or_default();
    let text = |key: &str| status[key].as_str().map(str::to_owned);
    let processes = processes(server.pid());
    let count = |of: fn(u32) -> io::Result<u64>| processes.iter().filter_map(|pid| of(*pid).ok()).sum();
    Ok(InForce {
        sysctls: topology.server.enter(|| Ok(read(sysctls)))?,
        backlog: observer.accept_queue(server.address.port())?.limit_of_longest.into(),
        processes: processes.len() as u64,
        threads: count(threads),
        event_queues: count(event_queues),
        architecture: text("architecture"),
        dispatch: text("dispatch"),
    })
}

/// Names each condition that differs from the one asked for, in a phrase.
pub fn differences(asked: &Asked, sysctls: &[(String, String)], found: &InForce) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |what: &str, asked: Option<String>, found: Option<String>| {
        if let Some(asked) = asked.filter(|asked| found.as_ref() != Some(asked)) {
            let found = found.unwrap_or_else(|| "unknown".to_owned());
            differences.push(format!("{what} is {found} and not {asked}"));
        }
    };
    compare(
        "the accept queue's limit",
        asked.backlog.map(|n| n.to_string()),
        Some(found.backlog.to_string()),
    );
    let processes = Some(found.processes.to_string());
    compare("the number of processes", asked.processes.map(|n| n.to_string()), processes);
    compare("the architecture", asked.architecture.clone(), found.architecture.clone());
    compare("the event mechanism", asked.dispatch.clone(), found.dispatch.clone());
    for (name, value) in sysctls {
        compare(name, Some(words(value)), found.sysctls.get(name).cloned());
    }
    differences
}

/// The kernel settings of every record, and those of the experiment, in the calling thread's network namespace.
fn read(more: &[(String, String)]) -> BTreeMap<String, String> {
    let path = |name: &str| Path::new("/proc/sys").join(name.replace('.', "/"));
    let more = more
        .iter()
        .filter_map(|(name, _)| Some((name.clone(), words(&fs::read_to_string(path(name)).ok()?))));
    record::manifest::sysctls().into_iter().chain(more).collect()
}

/// A setting's words with one space between them. The kernel writes tabs.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A process with all its descendants. Some may have ended when the list is used.
fn processes(pid: u32) -> Vec<u32> {
    let below = proc::children(pid).unwrap_or_default();
    std::iter::once(pid).chain(below.into_iter().flat_map(processes)).collect()
}

fn threads(pid: u32) -> io::Result<u64> {
    Ok(fs::read_dir(format!("/proc/{pid}/task"))?.count() as u64)
}

fn event_queues(pid: u32) -> io::Result<u64> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    let is_queue = |target: &std::path::PathBuf| {
        ["anon_inode:[eventpoll]", "anon_inode:[io_uring]"].iter().any(|name| target.as_os_str() == *name)
    };
    Ok(targets.filter(is_queue).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_queue_than_asked_is_named() {
        let asked = Asked { backlog: Some(4096), processes: Some(1), ..Asked::default() };
        let settings = [("net.core.somaxconn".to_owned(), "4096".to_owned())];
        let sysctls = BTreeMap::from([("net.core.somaxconn".to_owned(), "131072".to_owned())]);
        let found = InForce { backlog: 65_535, processes: 1, sysctls, ..InForce::default() };
        let named = differences(&asked, &settings, &found);
        assert_eq!(
            named,
            ["the accept queue's limit is 65535 and not 4096", "net.core.somaxconn is 131072 and not 4096"]
        );
        let found = InForce { backlog: 4096, ..found };
        assert_eq!(differences(&asked, &[], &found), [] as [&str; 0]);
        assert_eq!(differences(&Asked::default(), &[], &found), [] as [&str; 0], "nothing was asked for");
    }

    #[test]
    fn an_unknown_mechanism_is_a_difference() {
        let asked = Asked { dispatch: Some("epoll".to_owned()), ..Asked::default() };
        let named = differences(&asked, &[], &InForce::default());
        assert_eq!(named, ["the event mechanism is unknown and not epoll"]);
    }

    #[test]
    fn the_calling_process_has_a_thread() {
        let own = std::process::id();
        assert!(threads(own).unwrap() >= 1 && processes(own).contains(&own));
        let before = event_queues(own).unwrap();
        let queue = sys::readiness::epoll::create();
        assert!(queue.is_ok() && event_queues(own).unwrap() > before);
    }
}
