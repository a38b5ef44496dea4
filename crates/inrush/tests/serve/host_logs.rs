//! The access logs of hosts: whose lines they have, on every architecture and from the kernel's answers, and their mistakes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::architectures::on_every_architecture;
use super::hosts::{Hosts, get};
use super::sites::check;
use crate::common::Server;

/// The files of logs, in a folder that several servers use one after another.
struct Logs {
    hosts: Hosts,
}

impl Logs {
    fn new() -> Logs {
        Logs { hosts: Hosts::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.hosts.default.beside(name)
    }

    /// A server with a log of its own and one for the first host.
    fn start(&self, flags: &[&str]) -> Server {
        let server_log = format!("--access-log={}", self.path("server.log").display());
        self.hosts.start(&[flags, &[&server_log]].concat(), &log_of(&self.path("one.log")), "")
    }

    /// Returns the sorted targets of a log, and takes them out of it.
    fn targets(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        fs::remove_file(self.path(name)).unwrap();
        let mut targets: Vec<String> = text.lines().map(target).collect();
        targets.sort_unstable();
        targets
    }
}

/// The line of a host's log in a config file.
fn log_of(path: &Path) -> String {
    format!("access-log = {:?}", path.display().to_string())
}

/// The target of a line in the combined format; `-` if the request could not be read.
fn target(line: &str) -> String {
    let request = line.split('"').nth(1).unwrap_or_else(|| panic!("{line}"));
    request.split(' ').nth(1).unwrap_or(request).to_owned()
}

#[test]
fn each_host_has_its_log_on_every_architecture() {
    let logs = Logs::new();
    on_every_architecture(|flags| {
        let server = logs.start(flags);
        for (host, path) in [
            ("one.test", "/name?1"),
            ("two.test", "/name?2"),
            ("A.One.Test.:80", "/absent?3"),
            ("unknown.test", "/name?4"),
            ("one.test", "http://two.test/name?5"),
        ] {
            get(&server, host, path);
        }
        let mut client = server.client();
        client.send("nonsense\r\n\r\n");
        client.rest();
        // The server waits for the end of a client that it has refused.
        drop(client);
        server.stop_well();
        assert_eq!(logs.targets("one.log"), ["/absent?3", "/name?1"]);
        assert_eq!(logs.targets("server.log"), ["-", "/name?2", "/name?4", "/name?5"]);
    });
}

#[test]
fn host_logs_reopen_behind_confinement() {
    for flags in [&["--arch=sped"][..], &["--arch=mp", "--workers=2"]] {
        let logs = Logs::new();
        let mut server = logs.start(&[flags, &["--confine=on"]].concat());
        let both = [("server.log", "two.test"), ("one.log", "one.test")];
        for (log, host) in both {
            get(&server, host, "/name?before");
            server.eventually("written", |_| fs::metadata(logs.path(log)).unwrap().len() > 0);
            fs::rename(logs.path(log), logs.path(&format!("{log}.1"))).unwrap();
        }
        server.signal(Signal::HUP);
        for (log, host) in both {
            // Any worker may answer, and each opens the logs again in its own time.
            server.eventually_of("opened again", |server| {
                get(server, host, "/name?after");
                fs::read_to_string(logs.path(log)).is_ok_and(|text| text.contains("?after"))
            });
        }
        server.stop_well();
        for (log, _) in both {
            let before = fs::read_to_string(logs.path(&format!("{log}.1"))).unwrap();
            assert_eq!(before.matches("?before").count(), 1, "{before}");
        }
    }
}

#[test]
fn a_server_without_a_log_keeps_those_of_its_hosts() {
    let logs = Logs::new();
    let config = logs.hosts.config(&log_of(&logs.path("one.log")), "");
    let server = Server::start_without_root(&[&config, "--log-format=json"]);
    // The first host is the default.
    for (host, path) in [("one.test", "/name"), ("two.test", "/name"), ("unknown.test", "/name")] {
        assert_eq!(get(&server, host, path).status, 200);
    }
    server.stop_well();
    let text = fs::read_to_string(logs.path("one.log")).unwrap();
    let host = |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["host"].clone();
    let mut hosts: Vec<_> = text.lines().map(|line| host(line).as_str().unwrap().to_owned()).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["one.test", "unknown.test"]);
}

#[test]
fn hosts_may_share_a_log() {
    let logs = Logs::new();
    let both = log_of(&logs.path("both.log"));
    let server = logs.hosts.start(&["--arch=per-core", "--workers=2"], &both, &both);
    for turn in 0..20 {
        get(&server, if turn % 2 == 0 { "one.test" } else { "two.test" }, &format!("/name?{turn}"));
    }
    server.stop_well();
    let text = fs::read_to_string(logs.path("both.log")).unwrap();
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    text.lines().for_each(|line| *lines.entry(target(line)).or_default() += 1);
    assert_eq!((lines.len(), lines.values().max()), (20, Some(&1)), "{text}");
}

#[test]
fn a_full_disk_of_one_host_costs_its_lines_alone() {
    let logs = Logs::new();
    let flag = format!("--access-log={}", logs.path("server.log").display());
    let mut server = logs.hosts.start(&[&flag], &log_of(Path::new("/dev/full")), "");
    for _ in 0..5 {
        for host in ["one.test", "two.test"] {
            assert_eq!(get(&server, host, "/name").status, 200);
        }
    }
    server.eventually("all counted", |status| status.count("log_lines_dropped") == 5);
    let (code, said) = server.stop();
    assert_eq!((code, said.lines().count()), (Some(0), 1), "{said}");
    assert!(said.starts_with("inrush: access log /dev/full: No space left on device"), "{said}");
    assert_eq!(logs.targets("server.log"), ["/name"; 5]);
}

#[test]
fn a_check_opens_and_shows_the_logs_of_hosts() {
    let logs = Logs::new();
    let path = logs.path("one.log");
    let (code, shown, _) = check(&[&logs.hosts.config(&log_of(&path), "")]);
    assert_eq!(code, Some(0));
    let two = shown.find("\nhost two.test").unwrap();
    assert!(shown[..two].ends_with(&format!("\naccess log: {}", path.display())), "{shown}");
    assert!(!path.exists());
    let absent = logs.path("absent/one.log");
    let (code, _, said) = check(&[&logs.hosts.config(&log_of(&absent), "")]);
    assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
    let expected = format!("--access-log {}: cannot open it for appending: No such file", absent.display());
    assert!(said.contains(&expected), "{said}");
}
