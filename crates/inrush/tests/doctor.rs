//! `inrush doctor` as an ordinary user runs it: without capabilities, and with those that the guard needs.
//!
//! The tests need root to give up its rights by setpriv(1), and run in a network namespace of their own. A test without
//! these prints that it is skipped.
#![cfg(feature = "lab")]

use assert_cmd::Command;
use serde_json::Value;
use sys::network::netns::NetworkNamespace;

const PROGRAM: &str = env!("CARGO_BIN_EXE_inrush");

/// The user nobody, without the capabilities of root.
const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

/// The findings of a user with these flags of setpriv(1); `None`, and a printed reason, if there is no such user here.
/// setpriv ends with 126 or 127 if it cannot become the user, or cannot execute the program.
fn findings(privileges: &[&str]) -> Option<Vec<Value>> {
    let out = Command::new("setpriv").args(privileges).args([PROGRAM, "doctor", "--output=json"]).output();
    let out = out.inspect_err(|error| println!("skipped: no setpriv here: {error}")).ok()?;
    let said = String::from_utf8_lossy(&out.stderr);
    if let Some(126 | 127) = out.status.code() {
        println!("skipped: {said}");
        return None;
    }
    assert!(out.status.success(), "{}: {said}", out.status);
    Some(serde_json::from_slice(&out.stdout).unwrap())
}

#[track_caller]
fn of<'a>(findings: &'a [Value], what: &str) -> &'a Value {
    findings.iter().find(|finding| finding["what"] == what).unwrap()
}

fn in_namespace(test: impl FnOnce() + Send) {
    match NetworkNamespace::create() {
        Ok(namespace) => namespace.enter(test).unwrap(),
        Err(error) => println!("skipped: no network namespaces here: {error}"),
    }
}

/// Tells whether the user nobody may make network namespaces inside a user namespace.
fn may_enter_user_namespaces() -> bool {
    let tried = Command::new("setpriv").args(NOBODY).args(["unshare", "--user", "--net", "true"]).output();
    tried.is_ok_and(|tried| tried.status.success())
}

#[test]
fn ordinary_user_lacks_both_capabilities() {
    in_namespace(|| {
        let Some(findings) = findings(&NOBODY) else { return };
        for what in ["guard", "kernel programs"] {
            let consequence = of(&findings, what)["consequence"].as_str().unwrap();
            assert!(consequence.contains("lacks both"), "{what}: {consequence}");
            assert!(!consequence.contains("container"), "{what}: {consequence}");
        }
        let has_one_cpu = !of(&findings, "processors")["consequence"].is_null();
        if has_one_cpu || !may_enter_user_namespaces() {
            return println!("skipped: no namespaces for ordinary users here");
        }
        let namespaces = of(&findings, "namespaces");
        assert_eq!(namespaces["found"], "server and client can have networks of their own", "{namespaces}");
    });
}

#[test]
fn guard_is_usable_with_its_two_capabilities() {
    in_namespace(|| {
        let Some(of_root) = findings(&["--nnp"]) else { return };
        if !of(&of_root, "guard")["consequence"].is_null() {
            return println!("skipped: root has no guard at a cgroup here: {}", of(&of_root, "guard"));
        }
        let kept = ["--inh-caps=+bpf,+net_admin", "--ambient-caps=+bpf,+net_admin"];
        let Some(findings) = findings(&[&NOBODY[..], &kept].concat()) else { return };
        let guard = of(&findings, "guard");
        assert!(guard["consequence"].is_null(), "{guard}");
        assert!(guard["found"].as_str().unwrap().contains("at the server's cgroup"), "{guard}");
        let programs = of(&findings, "kernel programs");
        for program in ["admission in tc", "the guard at a cgroup", "redirection to AF_XDP"] {
            assert!(programs["found"].as_str().unwrap().contains(program), "{programs}");
        }
    });
}
