//! The judgement of a run: thresholds, and the report on a server that does not answer.

use std::fs;
use std::io::Read;
use std::net::TcpListener;

use assert_cmd::Command;
use rustix::process::Signal;
use serde_json::Value;
use sys::process::Program;

use super::common::{Files, Server, eventually};
use super::{PATIENCE, inrush, said, written};

/// A server that never accepts: the kernel completes the connections, and no process reads the requests.
fn hung() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url)
}

fn server(files: &Files) -> Server {
    files.write("index.html", b"hello");
    Server::start(&files.root(), &["--arch=sped"])
}

const SHORT: [&str; 3] = ["--rate=50", "--warmup=0s", "--duration=2s"];

#[test]
fn a_hung_server_crosses_every_threshold() {
    let (_listener, url) = hung();
    let thresholds = ["p99>300ms", "p50>1h", "sent-p95>1s", "mean>1s", "errors>1%", "errors>99", "ok<100%"];
    let flags = thresholds.iter().flat_map(|threshold| ["--fail-if", threshold]);
    let run = Command::new(env!("CARGO_BIN_EXE_inrush"))
        .args(["load", &url].into_iter().chain(SHORT).chain(flags))
        .timeout(PATIENCE)
        .assert();
    // A machine without time for the generator says so by another code, and the thresholds are crossed all the same.
    let was_late = said(&run).contains("the generator was the limit");
    let run = run.code(if was_late { 5 } else { 4 });
    let out = String::from_utf8_lossy(&run.get_output().stdout);
    for threshold in thresholds {
        assert!(out.contains(&format!("FAIL  fails if {threshold}: measured ")), "{threshold}: {out}");
    }
}

#[test]
fn hung_server_has_no_percentiles_but_its_wait() {
    let (_listener, url) = hung();
    let out = String::from_utf8(written(&[&["load", &url][..], &SHORT].concat())).unwrap();
    let intended = out.lines().find(|line| line.starts_with("intended")).unwrap();
    assert_eq!(intended.matches("> 2 s").count(), 6, "{out}");
    let result = written(&[&["load", &url, "--output=json"][..], &SHORT].concat());
    let result: Value = serde_json::from_slice(&result).unwrap();
    let latency = &result["latency_intended_ns"];
    assert!(latency["p50"].is_null() && latency["max"].is_null() && latency["answered"]["p50"].is_null());
    assert_eq!((&latency["unanswered"], &latency["beyond_ns"]), (&100.into(), &2_000_000_000_u64.into()));
}

#[test]
fn a_hung_server_compares_worse_than_one_that_answers() {
    let files = Files::new();
    let server = server(&files);
    let (_listener, hung) = hung();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, url: &str| {
        let flags = ["--rate=20", "--warmup=0s", "--duration=10s", "--output=json"];
        let path = folder.path().join(name);
        fs::write(&path, written(&[&["load", url][..], &flags].concat())).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = write("good.json", &format!("http://{}/index.html", server.address));
    let hung = write("hung.json", &hung);
    let table = inrush(&["load", "compare", &good, &hung], 4);
    let out = String::from_utf8(table.get_output().stdout.clone()).unwrap();
    assert_eq!(out.matches("WORSE").count(), 7, "{out}");
    assert_eq!(out.matches("unanswered").count(), 4, "{out}");
    assert!(out.contains("hung.json: 100 % of the requests had no correct reply"), "{out}");
}

#[test]
fn replies_are_told_by_status_code() {
    let files = Files::new();
    let server = server(&files);
    let url = format!("http://{}/no-such-file", server.address);
    let with = |output: &str| {
        let flags = ["--fail-if=p99>1h", output];
        String::from_utf8(written(&[&["load", &url][..], &SHORT, &flags].concat())).unwrap()
    };
    let text = with("--output=text");
    let conclusion = [
        "Every request failed. Most replies are not 2xx (100 % of them 404); check the URL",
        " 50/s were offered for 2 s; ",
        "100 of 100 failed: 100 status_error (404).",
    ];
    for part in conclusion {
        assert!(text.lines().next().unwrap().contains(part), "{text}");
    }
    assert!(text.contains("FAIL  fails if p99>1h: measured > 2 s (100 of 100 without an answer)"), "{text}");
    assert!(
        text.contains("100 complete replies, by status code\n  404                        100  100.00 %"),
        "{text}"
    );
    assert!(text.contains("Most replies are not 2xx (100 % of them 404); check the URL"), "{text}");
    let json: Value = serde_json::from_str(&with("--output=json")).unwrap();
    assert_eq!(json["statuses"]["404"], 100);
    for part in conclusion {
        assert!(json["conclusion"].as_str().unwrap().contains(part), "{json}");
    }
    assert_eq!(json["thresholds"][0]["crossed"], true);
    let in_series =
        json["series"].as_array().unwrap().iter().filter_map(|point| point["statuses"]["404"].as_u64());
    assert_eq!(in_series.sum::<u64>(), 100);
    let html = with("--output=html");
    for part in [
        "<dt>failed</dt><dd>100 %",
        "100 status_error (404).",
        "✗ fail",
        "<th scope=\"row\">404</th><td>100</td>",
    ] {
        assert!(html.contains(part), "no {part:?}");
    }
}

/// Runs `load` until `seconds` of the run have passed, then presses Ctrl-C. Returns exit code, output and
/// messages.
fn interrupted(flags: &[&str], seconds: f64) -> (Option<i32>, String, String) {
    let files = Files::new();
    let server = server(&files);
    let url = format!("http://{}/index.html", server.address);
    let arguments = [&["load", &url, "--rate=50", "--prometheus=127.0.0.1:0"], flags].concat();
    let mut child = Program::new(env!("CARGO_BIN_EXE_inrush")).arguments(arguments).start().unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    let metrics =
        line.trim().strip_prefix("inrush: metrics on http://").unwrap().strip_suffix("/metrics").unwrap();
    let mut reader = super::common::Client::connect(metrics.parse().unwrap());
    // The page counts the offered requests of past intervals.
    eventually("offered", || {
        let page = reader.get("/metrics");
        let offered = page.text().lines().find_map(|line| line.strip_prefix("inrush_load_offered_total "));
        offered.unwrap().parse::<f64>().unwrap() >= 50.0 * seconds
    });
    child.signal(Signal::INT).unwrap();
    let (mut out, mut said) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    let exit = child.wait(base::Nanos::from_secs(30)).unwrap().unwrap();
    (exit.status.code(), out, said)
}

#[test]
fn run_ended_in_its_warm_up_measures_nothing() {
    let (code, out, said) = interrupted(&["--warmup=1h"], 1.0);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nothing was measured: The run was ended in its warm-up"), "{said}");
    assert!(out.starts_with("Nothing was measured.") && out.contains("verdict    not-measured"), "{out}");
}

#[test]
fn a_run_that_is_ended_early_is_degraded() {
    let (code, out, said) = interrupted(&["--warmup=0s", "--duration=1h"], 2.0);
    // On a machine too busy for 50/s the exit code differs, but not the remark.
    assert!(matches!(code, Some(0 | 5)), "{said}");
    assert!(out.contains("of 3600 s; let it run to its end."), "{out}");
    assert!(code == Some(5) || out.contains("verdict    degraded: "), "{out}");
}
