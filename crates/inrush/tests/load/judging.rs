//! What a run is judged by: thresholds, and what is said of a server that does not answer.

use std::fs;
use std::net::TcpListener;

use serde_json::Value;

use super::{inrush, said};

/// A server that never accepts: the kernel completes the connections, and nobody reads the requests.
fn hung() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url)
}

const SHORT: [&str; 3] = ["--rate=50", "--warmup=0s", "--duration=2s"];

#[test]
fn a_hung_server_crosses_every_threshold() {
    let (_listener, url) = hung();
    let thresholds = ["p99>300ms", "p50>1h", "sent-p95>1s", "mean>1s", "errors>1%", "errors>99", "ok<100%"];
    let flags = thresholds.iter().flat_map(|threshold| ["--fail-if", threshold]);
    let run = inrush(&["load", &url].into_iter().chain(SHORT).chain(flags).collect::<Vec<_>>(), 4);
    for threshold in thresholds {
        assert!(said(&run).contains(&format!("{threshold}: measured ")), "{threshold}: {}", said(&run));
    }
}

#[test]
fn a_hung_server_has_no_percentiles_and_says_how_long_it_was_waited_for() {
    let (_listener, url) = hung();
    let run = inrush(&[&["load", &url][..], &SHORT].concat(), 0);
    let out = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    let intended = out.lines().find(|line| line.starts_with("intended")).unwrap();
    assert_eq!(intended.matches("> 2 s").count(), 6, "{out}");
    let run = inrush(&[&["load", &url, "--output=json"][..], &SHORT].concat(), 0);
    let result: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    let latency = &result["latency_intended_ns"];
    assert!(latency["p50"].is_null() && latency["max"].is_null() && latency["answered"]["p50"].is_null());
    assert_eq!((&latency["unanswered"], &latency["beyond_ns"]), (&100.into(), &2_000_000_000_u64.into()));
}

#[test]
fn a_hung_server_compares_worse_than_one_that_answers() {
    let files = super::common::Files::new();
    files.write("index.html", b"hello");
    let server = super::common::Server::start(&files.root(), &["--arch=sped"]);
    let (_listener, hung) = hung();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, url: &str| {
        let flags = ["--rate=20", "--warmup=0s", "--duration=10s", "--output=json"];
        let path = folder.path().join(name);
        fs::write(&path, super::written(&[&["load", url][..], &flags].concat())).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = write("good.json", &format!("http://{}/index.html", server.address));
    let hung = write("hung.json", &hung);
    let table = inrush(&["load", "compare", &good, &hung], 0);
    let out = String::from_utf8(table.get_output().stdout.clone()).unwrap();
    assert_eq!(out.matches("WORSE").count(), 7, "{out}");
    assert_eq!(out.matches("unanswered").count(), 4, "{out}");
    assert!(out.contains("hung.json: 100 % of the requests had no correct reply"), "{out}");
}
