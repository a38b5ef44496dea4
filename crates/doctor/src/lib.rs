//! The facilities of this machine, and the limits that a server or an experiment meets first.
//!
//! Each finding is read from the machine at the moment of asking. A finding with a consequence asks for action.
//! Changes nothing. Leaves out what one command alone needs: those who own the command add their findings.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs;

use confine::Facility;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// The time for which a port is kept back after its connection: TIME-WAIT on Linux, in seconds.
const TIME_WAIT_S: u64 = 60;

/// One thing about the machine.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The examined facility.
    pub what: &'static str,
    /// Its state.
    pub found: String,
    /// The consequence, if it limits anything.
    pub consequence: Option<String>,
}

/// All findings. Prints as text, serialises as an array.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Examines this machine. Tries to load programs into the kernel, which takes some ten milliseconds.
    pub fn of_this_machine() -> Findings {
        Findings(vec![
            kernel(),
            processors(),
            descriptors(),
            ports(),
            accept_queue(),
            syn_cookies(),
            signals(),
            io_uring(),
            kernel_programs(),
            confinement(),
            clock(),
        ])
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.0 {
            writeln!(f, "{:<20} {}", finding.what, finding.found)?;
            if let Some(consequence) = &finding.consequence {
                writeln!(f, "{:<20} ! {consequence}", "")?;
            }
        }
        Ok(())
    }
}

/// A finding; `consequence` says what it limits, if anything.
pub fn finding(what: &'static str, found: impl Into<String>, consequence: Option<String>) -> Finding {
    Finding { what, found: found.into(), consequence }
}

/// Returns a kernel setting, or `None` if this kernel does not have it.
fn setting(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn number(name: &str) -> Option<u64> {
    setting(name)?.parse().ok()
}

fn kernel() -> Finding {
    let release = setting("kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let too_old =
        (version < (5, 11)).then(|| "Inrush needs Linux 5.11: openat2 and epoll_pwait2.".to_owned());
    finding("kernel", release, too_old)
}

fn processors() -> Finding {
    let cpus = sys::cpu::allowed().unwrap_or_default();
    let one = cpus.len() < 2;
    let consequence =
        one.then(|| "Server and generator share one processor: each bends the other's figures.".to_owned());
    finding("processors", format!("{} to run on", cpus.len()), consequence)
}

fn descriptors() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let show = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    let found = format!("{} a process, can be raised to {}", show(limit.current), show(limit.maximum));
    let consequence = limit.maximum.filter(|most| *most < 100_000).map(|most| {
        format!(
            "With a connect timeout of 500 ms one process offers at most {} connections/s to a server that \
             does not answer; a shorter timeout or more processes offer more.",
            most * 2
        )
    });
    finding("descriptors", found, consequence)
}

fn ports() -> Finding {
    let range = setting("net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split(' ').filter_map(|end| end.parse::<u64>().ok());
    let (Some(first), Some(last)) = (ends.next(), ends.next()) else {
        return finding("ports", "unknown", None);
    };
    let ports = last.saturating_sub(first) + 1;
    let consequence = format!(
        "Connections that this side closes first keep their port for {TIME_WAIT_S} s: {} a second for each source \
         address; --source-ip takes a range of addresses.",
        ports / TIME_WAIT_S
    );
    finding("ports", format!("{ports} for each source address and target"), Some(consequence))
}

fn accept_queue() -> Finding {
    let most = number("net/core/somaxconn").unwrap_or(0);
    let consequence =
        (most < 4096).then(|| format!("--backlog above {most} has no effect (net.core.somaxconn)."));
    finding("accept queue", format!("at most {most} connections"), consequence)
}

fn syn_cookies() -> Finding {
    let what = "SYN cookies";
    match number("net/ipv4/tcp_syncookies") {
        Some(0) => {
            let consequence = "Past saturation the SYN queue fills, and the server idles while its kernel refuses: \
                               1 is the kernel's own value.";
            finding(what, "off", Some(consequence.to_owned()))
        }
        Some(1) => finding(what, "on while the SYN queue is full", None),
        Some(_) => finding(what, "on for every SYN", None),
        None => finding(what, "not in this kernel", None),
    }
}

fn signals() -> Finding {
    let limit = getrlimit(Resource::Sigpending).current;
    let found = limit.map_or("no limit".to_owned(), |limit| format!("{limit} queued"));
    finding("real-time signals", found, None)
}

fn io_uring() -> Finding {
    match number("kernel/io_uring_disabled") {
        Some(0) => finding("io_uring", "allowed", None),
        Some(1) => finding("io_uring", "for privileged users only", None),
        Some(_) => finding("io_uring", "disabled", None),
        None => finding("io_uring", "no setting: an older kernel, or none in this one", None),
    }
}

/// The BPF programs that can be loaded here.
fn kernel_programs() -> Finding {
    let facilities = bpf::probe();
    let usable = facilities.iter().filter(|facility| facility.missing.is_none());
    let usable: Vec<&str> = usable.map(|facility| facility.name).collect();
    let found = if usable.is_empty() { "none".to_owned() } else { usable.join(", ") };
    let missing = facilities.into_iter().find_map(|facility| facility.missing);
    finding("kernel programs", found, missing)
}

/// The ways in which a server here can give up its rights.
fn confinement() -> Finding {
    let [files, calls] = confine::probe().map(|facility| match facility {
        Facility::Here => "yes",
        Facility::Partly => "an older version",
        Facility::Missing => "no",
    });
    let consequence = [files, calls].contains(&"no").then(|| {
        "The server serves with more rights than it needs: see CONFIG_SECURITY_LANDLOCK, CONFIG_SECCOMP_FILTER.".to_owned()
    });
    finding("confinement", format!("Landlock: {files}; seccomp: {calls}"), consequence)
}

fn clock() -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let slow = !matches!(source.as_str(), "tsc" | "kvm-clock" | "");
    let consequence =
        slow.then(|| "Reading this clock is a system call: times cost more than they need.".to_owned());
    finding("clock", if source.is_empty() { "unknown".to_owned() } else { source }, consequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_says_what_was_found() {
        let findings = Findings::of_this_machine();
        assert!(findings.0.iter().any(|finding| finding.what == "kernel"));
        assert!(findings.0.iter().all(|finding| !finding.found.is_empty()));
        let text = findings.to_string();
        assert!(text.lines().count() >= findings.0.len());
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json.as_array().unwrap().len(), findings.0.len());
    }
}
