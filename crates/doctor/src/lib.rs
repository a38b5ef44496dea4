//! The facilities of this machine, and the limits that a server or an experiment meets first.
//!
//! Each finding is read from the machine at the moment of asking. A finding with a consequence asks for action.
//! Changes nothing. Leaves out what one command alone needs: those who own the command add their findings.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs;
use std::io;
use std::thread;

use confine::Facility;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use sys::completion::CompletionRing;

/// The time for which a port is kept back after its connection: TIME-WAIT on Linux, in seconds.
const TIME_WAIT_S: u64 = 60;

/// The clock sources that the vDSO cannot read.
const SLOW_CLOCKS: [&str; 5] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"];

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
    let consequence = budget_of_ports(ports, number("net/ipv4/tcp_tw_reuse"));
    finding("ports", format!("{ports} for each source address and target"), Some(consequence))
}

/// The connections that one source address can have a second, for a value of `net.ipv4.tcp_tw_reuse`. Where the setting
/// holds, a port in TIME-WAIT is free again after a second.
fn budget_of_ports(ports: u64, reuse: Option<u64>) -> String {
    let rarely = ports / TIME_WAIT_S;
    let budget = match reuse {
        Some(1) => format!("for 1 s (net.ipv4.tcp_tw_reuse = 1): {ports} a second"),
        Some(2) => format!(
            "for {TIME_WAIT_S} s, and towards loopback for 1 s (net.ipv4.tcp_tw_reuse = 2): {rarely} and {ports} a second"
        ),
        _ => format!("for {TIME_WAIT_S} s: {rarely} a second"),
    };
    format!(
        "Connections that this side closes first keep their port {budget} for each source address; --source-ip takes \
         a range of addresses."
    )
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

/// Makes a ring as the server does, on a thread of its own: the thread that makes a ring owns it.
fn io_uring() -> Finding {
    let tried = thread::spawn(|| CompletionRing::new().map(drop)).join();
    let tried = tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    of_ring(tried, number("kernel/io_uring_disabled"))
}

/// The finding of a tried ring, with the value of `kernel.io_uring_disabled` as the reason of a refusal.
fn of_ring(tried: io::Result<()>, disabled: Option<u64>) -> Finding {
    let Err(error) = tried else { return finding("io_uring", "allowed", None) };
    let found = match (error.kind(), disabled) {
        (io::ErrorKind::PermissionDenied, Some(1)) => {
            "for privileged users only (kernel.io_uring_disabled = 1)".to_owned()
        }
        (io::ErrorKind::PermissionDenied, Some(2)) => "disabled (kernel.io_uring_disabled = 2)".to_owned(),
        (io::ErrorKind::PermissionDenied, _) => {
            "refused by a filter of system calls, such as a container's".to_owned()
        }
        _ => format!("no ring here ({error}): the server needs Linux 6.1 for one"),
    };
    finding("io_uring", found, Some("inrush serve works with epoll instead.".to_owned()))
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
    of_clock(fs::read_to_string(path).unwrap_or_default().trim())
}

/// The finding of a clock source.
fn of_clock(source: &str) -> Finding {
    let is_slow = SLOW_CLOCKS.contains(&source);
    let consequence =
        is_slow.then(|| "Reading this clock is a system call: times cost more than they need.".to_owned());
    finding("clock", if source.is_empty() { "unknown" } else { source }, consequence)
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

    #[test]
    fn ports_in_time_wait_come_back_as_the_kernel_says() {
        let of = |reuse| budget_of_ports(60_000, reuse);
        for (reuse, expected) in [
            (Some(0), "keep their port for 60 s: 1000 a second for each"),
            (None, "keep their port for 60 s: 1000 a second for each"),
            (Some(1), "keep their port for 1 s (net.ipv4.tcp_tw_reuse = 1): 60000 a second for each"),
            (
                Some(2),
                "towards loopback for 1 s (net.ipv4.tcp_tw_reuse = 2): 1000 and 60000 a second for each",
            ),
        ] {
            assert!(of(reuse).contains(expected), "{}", of(reuse));
        }
    }

    #[test]
    fn refused_ring_is_found_whatever_the_setting_says() {
        let filtered = || sys::completion::refuse_rings(rustix::io::Errno::PERM).map(|()| io_uring());
        match thread::spawn(filtered).join().unwrap() {
            Ok(found) => assert!(found.found != "allowed" && found.consequence.is_some(), "{found:?}"),
            Err(error) => println!("skipped: no filters of system calls here: {error}"),
        }
    }

    #[test]
    fn reason_of_a_refused_ring_is_its_setting() {
        let refused = |kind: io::ErrorKind, disabled| of_ring(Err(kind.into()), disabled).found;
        let (forbidden, unknown) = (io::ErrorKind::PermissionDenied, io::ErrorKind::InvalidInput);
        assert!(refused(forbidden, Some(1)).contains("privileged users"));
        assert!(refused(forbidden, Some(2)).contains("disabled"));
        assert!(refused(forbidden, Some(0)).contains("filter"));
        assert!(refused(unknown, None).contains("Linux 6.1"));
        assert_eq!(of_ring(Ok(()), Some(1)).found, "allowed");
    }

    #[test]
    fn only_clocks_without_a_fast_path_are_slow() {
        for fast in
            ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource", ""]
        {
            assert_eq!(of_clock(fast).consequence, None, "{fast}");
        }
        for slow in SLOW_CLOCKS {
            assert!(of_clock(slow).consequence.is_some(), "{slow}");
        }
        assert_eq!(of_clock("").found, "unknown");
    }
}
