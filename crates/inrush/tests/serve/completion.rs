//! `--driver completion`: where it cannot run, and how it accepts.

use rustix::io::Errno;
use sys::completion::refuse_rings;

use crate::common::{Files, Server, pattern};

/// A server that the kernel refuses rings to.
fn start_without_rings(errno: Errno, files: &Files, flags: &[&str]) -> Server {
    std::thread::scope(|scope| {
        // The filter holds for the thread and for what it starts.
        let start = || {
            refuse_rings(errno).unwrap();
            Server::start(&files.root(), flags)
        };
        scope.spawn(start).join().unwrap()
    })
}

#[test]
fn without_io_uring_one_line_says_so_and_the_readiness_loop_serves() {
    let files = Files::new();
    let smped = ["--arch=smped", "--smped=initial=2,p-min=2,p-max=2"];
    // A kernel without it, and one whose administrator has disabled it.
    for errno in [Errno::NOSYS, Errno::PERM] {
        for flags in [&["--arch=sped"][..], &["--arch=per-core", "--workers=2"], &smped] {
            let flags = [flags, &["--driver=completion"]].concat();
            let server = start_without_rings(errno, &files, &flags);
            let lines: Vec<&str> = server.said.lines().filter(|line| line.contains("--driver")).collect();
            let [line] = lines[..] else { panic!("{flags:?}: {}", server.said) };
            let reason = std::io::Error::from(errno).to_string();
            assert!(line.contains(&reason) && line.ends_with("using --driver readiness"), "{line}");
            let response = server.client().get(Files::SMALL.0);
            assert_eq!(response.body, pattern(Files::SMALL.1));
            server.stop_well();
        }
    }
}

#[test]
fn a_worker_of_the_kernels_choice_serves_by_completions() {
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
