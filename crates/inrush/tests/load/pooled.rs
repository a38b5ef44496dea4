//! Requests at a rate over kept connections.

use serde_json::Value;

use super::common::{Files, Server};
use super::{refused, written};

#[test]
fn requests_share_kept_connections() {
    check_sharing(&["--requests-per-connection=inf"], 0);
}

#[test]
fn requests_share_connections_over_http2() {
    check_sharing(&["--http2", "--streams=4"], 20);
}

/// Asserts that 20 connections carry all requests, and that the server counts this number of them over HTTP/2.
#[track_caller]
fn check_sharing(flags: &[&str], over_http2: u64) {
    let files = Files::new();
    files.write("index.html", b"hello");
    let mut server = Server::start(&files.root(), &["--arch=sped"]);
    let url = format!("http://{}/index.html", server.address);
    // One request each 5 ms, the last long before the run ends, so that the end interrupts none.
    let arrivals = ["--warmup=498ms", "--duration=1s", "--arrivals=steps:200x998ms,0x1h"];
    let run = ["load", &url, "--connections=20", "--connect-timeout=5s", "--output=json"];
    let result = written(&[&run[..], &arrivals, flags].concat());
    let result: Value = serde_json::from_slice(&result).unwrap();
    assert_eq!(result["offered"], 100, "{result:#}");
    // A stalled machine may leave some requests without time.
    let of = |outcome: &str| result["outcomes"][outcome].as_u64().unwrap();
    let ok = of("ok");
    assert_eq!((ok + of("no_time"), &result["in_flight_at_end"]), (100, &0.into()), "{result:#}");
    assert!(ok > 0, "{result:#}");
    let connections = &result["connections"];
    // The first twenty requests open them in the warm-up, and the server keeps them.
    assert_eq!(
        (&connections["attempted"], &connections["sockets_peak"]),
        (&0.into(), &20.into()),
        "{connections}"
    );
    assert_eq!(result["manifest"]["config"]["connections"], "20");
    let status = server.eventually("closed", |status| status.connections() == 0);
    assert_eq!((status.count("accepts"), status.count("http2_connections")), (20, over_http2), "{status:?}");
    // The requests of the warm-up are those beyond `ok`.
    assert!(status.count("requests") >= ok + 20, "{status:?}");
}

#[test]
fn settings_without_sense_beside_them_are_refused() {
    let check = |flags: &[&str], expected: &[&str]| {
        refused(&[&["load", "http://127.0.0.1:9/", "--connections=2"], flags].concat(), 2, expected);
    };
    check(&["--client=closed"], &["--connections 2: ", "--sockets"]);
    check(&["--requests-per-connection=5"], &["--connections 2: ", "leave out --requests-per-connection 5"]);
    check(&["--workload=hot"], &["--connections 2: --workload hot has sessions of its own"]);
    check(&["--threads=3"], &["--connections 2: expected at least one for each of 3 threads"]);
    check(&["--processes=3"], &["--connections 2: expected at least one for each of 3 processes"]);
    let endless = ["load", "http://127.0.0.1:9/", "--requests-per-connection=inf"];
    refused(&endless, 2, &["--requests-per-connection inf", "--connections N or --client closed"]);
}
