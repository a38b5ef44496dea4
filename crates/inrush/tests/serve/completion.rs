//! The choice of the driver, and completion behind the kernel's hand-off.

use rustix::io::Errno;
use sys::completion::refuse_rings;

use crate::common::{Files, Server, pattern};

/// Runs a test in a thread to which, and to whose servers, the kernel refuses rings.
fn without_rings(errno: Errno, test: impl FnOnce() + Send) {
    let body = || {
        refuse_rings(errno).unwrap();
        test();
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap());
}

/// The line about the driver of a server with these flags, which must serve.
fn driver_line(flags: &[&str]) -> String {
    let files = Files::new();
    let server = Server::start(&files.root(), flags);
    let lines: Vec<&str> = server.said.lines().filter(|line| line.starts_with("driver: ")).collect();
    let [line] = lines[..] else { panic!("{flags:?}: {}", server.said) };
    let line = line.to_owned();
    assert!(!server.said.contains("inrush: "), "an alarm: {}", server.said);
    assert_eq!(server.client().get(Files::SMALL.0).body, pattern(Files::SMALL.1));
    server.stop_well();
    line
}

const ARCHITECTURES: [&[&str]; 3] = [
    &["--arch=sped"],
    &["--arch=per-core", "--workers=2"],
    &["--arch=smped", "--smped=initial=2,p-min=2,p-max=2"],
];

#[test]
fn missing_io_uring_is_named_and_readiness_serves() {
    // A kernel without it, and one whose administrator, container or sandbox refuses it.
    for errno in [Errno::NOSYS, Errno::PERM] {
        let reason = std::io::Error::from(errno).to_string();
        without_rings(errno, || {
            for flags in ARCHITECTURES {
                let asked = driver_line(&[flags, &["--driver=completion"]].concat());
                let needs = "driver: readiness, because --driver completion needs io_uring of Linux 6.1";
                assert_eq!(asked, format!("{needs} ({reason})"));
                let auto = driver_line(flags);
                assert_eq!(
                    auto,
                    format!("driver: readiness, because io_uring is not available here ({reason})")
                );
            }
        });
    }
}

#[test]
fn driver_is_completion_where_rings_are_allowed() {
    if let Err(error) = sys::completion::CompletionRing::new() {
        return println!("skipped: no io_uring here: {error}");
    }
    for flags in ARCHITECTURES {
        assert_eq!(driver_line(flags), "driver: completion, because the kernel allows io_uring");
    }
}

#[test]
fn settings_of_readiness_select_its_driver() {
    for (flag, setting) in [
        ("--dispatch=poll", "--dispatch poll"),
        ("--wait=spin", "--wait spin"),
        ("--read-after-accept", "--read-after-accept"),
        ("--driver=readiness", "--driver readiness"),
    ] {
        assert_eq!(driver_line(&["--arch=sped", flag]), format!("driver: readiness, by {setting}"));
    }
}

#[test]
fn kernel_chosen_worker_serves_by_completions() {
    let files = Files::new();
    let flags =
        ["--arch=smped", "--smped=initial=2,p-min=2,p-max=2", "--handoff=kernel", "--driver=completion"];
    let mut server = Server::start(&files.root(), &flags);
    if let Some(reason) = server.said.lines().find(|line| line.contains("--handoff kernel: ")) {
        return println!("skipped: {reason}");
    }
    for _ in 0..20 {
        assert_eq!(server.client().get(Files::SMALL.0).body, pattern(Files::SMALL.1));
    }
    server.eventually("all closed", |status| status.count("closed") == 20);
    server.stop_well();
}
