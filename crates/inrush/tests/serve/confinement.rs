//! Confinement: the user, capabilities, files and system calls that a serving process has left.
//!
//! Only root can change to another user; without root the tests keep theirs, and say so.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use confine::{Facility, is_root, probe};
use rustix::process::Signal;

use super::architectures::on_every_architecture;
use super::tls::Identity;
use crate::common::{Client, Files, Server, pattern};

/// A user without any file of its own.
const USER: &str = "nobody";
const USER_NUMBER: &str = "65534";

/// Files that [`USER`] may read, in a place where it may search.
pub fn readable_files() -> Files {
    let files = Files::new();
    fs::set_permissions(files.beside(""), fs::Permissions::from_mode(0o755)).unwrap();
    files
}

/// The flags that change the user, if that is possible here.
pub fn user_flags() -> Vec<String> {
    if !is_root() {
        println!("skipped: only root can change to another user");
        return Vec::new();
    }
    vec![format!("--user={USER}")]
}

fn start(files: &Files, flags: &[&str]) -> Server {
    let user = user_flags();
    let user: Vec<&str> = user.iter().map(String::as_str).collect();
    Server::start_with_control(&files.root(), &[flags, &user].concat())
}

/// The fields of `/proc/PROCESS/task/THREAD/status`, of every thread.
fn threads(process: u32) -> Vec<BTreeMap<String, String>> {
    let folders = fs::read_dir(format!("/proc/{process}/task")).unwrap().filter_map(Result::ok);
    let texts = folders.filter_map(|folder| fs::read_to_string(folder.path().join("status")).ok());
    let fields = |text: String| {
        let pairs = text.lines().filter_map(|line| line.split_once(":\t"));
        pairs.map(|(name, value)| (name.to_owned(), value.trim().replace('\t', " "))).collect()
    };
    texts.map(fields).collect()
}

/// Asserts that no thread of a process has a right that serving does not need.
pub fn check(process: u32) {
    let all = threads(process);
    assert!(!all.is_empty());
    for thread in all {
        let is = |name: &str, expected: &str| assert_eq!(thread[name], expected, "{name} of {thread:#?}");
        if is_root() {
            is("Uid", &[USER_NUMBER; 4].join(" "));
            is("Gid", &[USER_NUMBER; 4].join(" "));
            is("Groups", USER_NUMBER);
        }
        for capabilities in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            is(capabilities, "0000000000000000");
        }
        is("NoNewPrivs", "1");
        if probe()[1] == Facility::Here {
            is("Seccomp", "2");
        }
    }
}

#[test]
fn every_architecture_serves_confined() {
    let files = readable_files();
    let log = files.beside("access.log");
    let log = format!("--access-log={}", log.display());
    on_every_architecture(|flags| {
        let mut server = start(&files, &[flags, &[&log]].concat());
        let confined = server.said.lines().find_map(|line| line.strip_prefix("confined: ")).unwrap();
        assert!(confined.contains("no capabilities, "), "{confined}");
        for (name, length) in [Files::SMALL, Files::MEDIUM, Files::LARGE] {
            assert!(server.client().get(name).body == pattern(length), "{name}");
        }
        assert_eq!(server.client().get("/absent").status, 404);
        // A worker has its own filter after its parent's.
        server.eventually_of("confined", |server| {
            let mut workers = server.children().into_iter().flat_map(threads);
            probe()[1] == Facility::Missing || workers.all(|thread| thread["Seccomp_filters"] == "2")
        });
        server.children().into_iter().chain([server.process()]).for_each(check);
        server.signal(Signal::HUP);
        assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        server.stop_well();
    });
}

#[test]
fn server_of_another_user_ends_with_its_starter() {
    let files = readable_files();
    let mut server = std::thread::scope(|scope| scope.spawn(|| start(&files, &[])).join().unwrap());
    assert_eq!(server.wait().0, None, "it was killed by a signal");
}

#[test]
fn file_outside_configured_folders_cannot_be_opened() {
    if probe()[0] == Facility::Missing {
        return println!("skipped: this kernel has no Landlock");
    }
    let files = Files::new();
    let [logs, elsewhere] = ["logs", "elsewhere"].map(|name| files.beside(name));
    fs::create_dir(&logs).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    let log = logs.join("access.log");
    let flag = format!("--access-log={}", log.display());
    for (confine, refused) in [("--confine=on", true), ("--confine=off", false)] {
        let mut server = Server::start(&files.root(), &[&flag, confine]);
        assert_eq!(server.said.contains("\nconfined: "), refused, "{}", server.said);
        // The server opens its log anew, and the path leads elsewhere now.
        fs::rename(&logs, files.beside("before")).unwrap();
        symlink(&elsewhere, &logs).unwrap();
        server.signal(Signal::HUP);
        if refused {
            let said = server.says();
            assert!(
                said.starts_with(&format!("inrush: access log {}: Permission denied", log.display())),
                "{said}"
            );
            assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        } else {
            server.eventually("opened", |_| elsewhere.join("access.log").exists());
        }
        assert_eq!(server.stop().0, Some(0));
        assert_eq!(elsewhere.join("access.log").exists(), !refused);
        fs::remove_file(&logs).unwrap();
        fs::rename(files.beside("before"), &logs).unwrap();
    }
}

#[test]
fn rereading_works_as_the_new_user() {
    let files = readable_files();
    let place = files.beside("settings");
    fs::create_dir(&place).unwrap();
    let config = place.join("serve.toml");
    fs::write(&config, "max-fields = 5\n").unwrap();
    let identity = Identity::new(&files, "own", &["first"]);
    let flags = identity.flags();
    let config_flag = format!("--config={}", config.display());
    let mut server = start(&files, &[&flags[0], &flags[1], &config_flag]);
    assert!(!server.said.contains("may not read"), "{}", server.said);
    // Both files are replaced, as editors and ACME clients do.
    fs::write(place.join("newer"), "max-fields = 50\n").unwrap();
    fs::rename(place.join("newer"), &config).unwrap();
    identity.renew(&["second"]);
    server.signal(Signal::HUP);
    let said = [server.says(), server.says()].concat();
    assert!(said.contains("inrush: new certificates in force\n"), "{said}");
    assert!(said.contains("inrush: changed: max-fields\n"), "{said}");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn file_unreadable_by_the_new_user_is_named() {
    if !is_root() {
        return println!("skipped: only root can change to another user");
    }
    let files = readable_files();
    let identity = Identity::new(&files, "own", &["first"]);
    let flags = identity.flags();
    fs::set_permissions(files.beside("own.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut server = start(&files, &[&flags[0], &flags[1]]);
    let expected = format!("inrush: user nobody may not read {}, ", files.beside("own.key").display());
    assert!(server.said.contains(&expected), "{}", server.said);
    identity.renew(&["second"]);
    server.signal(Signal::HUP);
    let said = server.says();
    assert!(said.starts_with("inrush: the certificate stays as it was: "), "{said}");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn rings_and_programs_in_the_kernel_work_confined() {
    let files = readable_files();
    let settings: [&[&str]; 6] = [
        &["--arch=sped", "--dispatch=uring-poll"],
        &["--arch=sped", "--driver=completion"],
        &["--arch=sped", "--kernel-cache=on"],
        &["--arch=per-core", "--workers=2", "--overload-hook=tc"],
        &["--arch=per-core", "--workers=2", "--overload-hook=xdp"],
        &["--arch=per-core", "--workers=2", "--wake=steered"],
    ];
    for flags in settings {
        println!("{flags:?}");
        let server = start(&files, flags);
        // A program that cannot be loaded here is said in a line. Confinement must not be the reason.
        let failures = server.said.lines().filter(|line| line.starts_with("inrush: "));
        let refused =
            |line: &&str| ["Permission denied", "not permitted"].iter().any(|errno| line.contains(errno));
        assert_eq!(failures.clone().find(refused), None);
        failures.for_each(|line| println!("skipped: {line}"));
        for _ in 0..20 {
            assert!(Client::connect(server.address).get(Files::SMALL.0).body == pattern(Files::SMALL.1));
        }
        check(server.process());
        server.stop_well();
    }
}
