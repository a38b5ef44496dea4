//! `--driver completion`: where it cannot run, and behind the kernel's hand-off.

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

#[test]
fn missing_io_uring_is_named_and_readiness_serves() {
    let smped = ["--arch=smped", "--smped=initial=2,p-min=2,p-max=2"];
    let architectures = [&["--arch=sped"][..], &["--arch=per-core", "--workers=2"], &smped];
    let serves = |errno: Errno, flags: &[&str]| {
        let files = Files::new();
        let server = Server::start(&files.root(), &[flags, &["--driver=completion"]].concat());
        let lines: Vec<&str> = server.said.lines().filter(|line| line.contains("--driver")).collect();
        let [line] = lines[..] else { panic!("{flags:?}: {}", server.said) };
        let reason = std::io::Error::from(errno).to_string();
        assert!(line.contains(&reason) && line.ends_with("using --driver readiness"), "{line}");
        assert_eq!(server.client().get(Files::SMALL.0).body, pattern(Files::SMALL.1));
        server.stop_well();
    };
    // A kernel without it, and one whose administrator has disabled it.
    for errno in [Errno::NOSYS, Errno::PERM] {
        without_rings(errno, || architectures.iter().for_each(|flags| serves(errno, flags)));
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
