//! Remote observers of a run: a histogram log, Prometheus, a collector.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use rustix::process::Signal;
use serde_json::Value;
use sys::process::Program;

use super::closed_port::closed_port;
use super::common::{Client, Files, Server, check_metrics, eventually};
use super::{PATIENCE, refused, said, written};

fn url(server: &Server) -> String {
    format!("http://{}/index.html", server.address)
}

fn server(files: &Files) -> Server {
    files.write("index.html", b"hello");
    Server::start(&files.root(), &["--arch=sped"])
}

/// A short run with a result. On a machine too busy for it, the exit code is that of a generator-limited run
/// (5).
fn measured(more: &[&str]) -> Assert {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
    let run = command.args(["load", "--rate=20", "--duration=1s", "--warmup=0s"]).args(more);
    run.timeout(PATIENCE).assert().code([0, 5].as_slice())
}

#[test]
fn prometheus_reads_the_counts_while_the_run_goes_on() {
    let files = Files::new();
    let server = server(&files);
    let arguments =
        ["load", &url(&server), "--rate=50", "--duration=60s", "--warmup=0s", "--prometheus=127.0.0.1:0"];
    let mut child = Program::new(env!("CARGO_BIN_EXE_inrush")).arguments(arguments).start().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address =
        line.trim().strip_prefix("inrush: metrics on http://").unwrap().strip_suffix("/metrics").unwrap();
    let mut reader = Client::connect(address.parse().unwrap());
    // An interval takes a second, so the test polls the page.
    eventually("offered", || {
        let page = reader.get("/metrics");
        assert!(page.text().contains("# TYPE inrush_load_latency_seconds histogram"), "{}", page.text());
        let offered =
            page.text().lines().find_map(|line| line.strip_prefix("inrush_load_offered_total ")).unwrap();
        if offered != "0" {
            check_metrics(page.text());
        }
        offered != "0"
    });
    child.signal(Signal::TERM).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("goodput"), "a run that is ended early has its result: {text}");
}

#[test]
fn a_collector_is_told_up_to_the_last_interval() {
    let files = Files::new();
    let server = server(&files);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let collector = format!("--otlp=http://{}", listener.local_addr().unwrap());
    // The thread ends with the test, when no more connections come.
    std::thread::spawn(move || listener.incoming().for_each(|stream| collect(stream.unwrap())));
    let run = measured(&[&url(&server), &collector, "--output=json"]);
    assert!(!said(&run).contains("could not be sent"), "{}", said(&run));
    let told = TOLD.lock().unwrap().pop().unwrap();
    let metrics = told["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let offered = metrics.iter().find(|metric| metric["name"] == "inrush.load.offered").unwrap();
    let result: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    assert_eq!(offered["sum"]["dataPoints"][0]["asInt"], result["offered"].to_string());
}

/// The requests that the test's collector has received.
static TOLD: std::sync::Mutex<Vec<Value>> = std::sync::Mutex::new(Vec::new());

fn collect(stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut out = stream;
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        TOLD.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
    }
}

#[test]
fn lost_collector_is_named_and_the_result_stands() {
    let files = Files::new();
    let server = server(&files);
    // A port on which no process listens any more.
    let nobodys = closed_port();
    let gone = nobodys.local_addr().unwrap();
    let collector = format!("--otlp=http://{gone}");
    let run = measured(&[&url(&server), &collector]);
    assert!(!run.get_output().stdout.is_empty());
    let said = said(&run);
    assert!(
        said.contains(&format!("--otlp http://{gone}/v1/metrics: ")) && said.contains("could not be sent"),
        "{said}"
    );
}

#[test]
fn watchers_that_cannot_be_are_refused_before_the_run() {
    let target = "http://127.0.0.1:9/";
    refused(&["load", target, "--hdr=/no/such/folder/x"], 2, &["--hdr /no/such/folder/x", "No such file"]);
    refused(
        &["load", target, "--prometheus=198.51.100.1:1"],
        1,
        &["--prometheus", "cannot listen on 198.51.100.1:1"],
    );
    refused(&["load", target, "--otlp=localhost:4318"], 2, &["--otlp", "http://localhost:4318"]);
}

#[test]
fn a_run_is_a_page() {
    let files = Files::new();
    let server = server(&files);
    let flags = ["--rate=20", "--duration=1s", "--warmup=1s", "--output=html"];
    let page = String::from_utf8(written(&[&["load", &url(&server)], &flags[..]].concat())).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"), "{page}");
    assert!(page.contains("What became of requests") && page.contains("measured from here"));
}
