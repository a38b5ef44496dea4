//! The access log: its lines, a full disk, a rotation.

use std::fs;
use std::io::BufRead;
use std::path::Path;

use base::Nanos;
use rustix::process::Signal;
use sys::process::{Program, find_program};

use crate::common::{Files, Server};

fn log_flag(path: &Path) -> String {
    format!("--access-log={}", path.display())
}

#[test]
fn each_response_has_a_line_in_either_form() {
    let files = Files::new();
    let log = files.beside("access.log");
    let server = Server::start(&files.root(), &["--arch=per-core", "--workers=2", &log_flag(&log)]);
    let mut client = server.client();
    client.get_with("/small.bin?q=1", "User-Agent: a \"b\"\r\nReferer: http://x/\r\n");
    client.send("nonsense\r\n\r\n");
    client.rest();
    drop(client);
    server.stop_well();
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("127.0.0.1 - - ["), "{text}");
    let end = "\"GET /small.bin?q=1 HTTP/1.1\" 200 1000 \"http://x/\" \"a \\x22b\\x22\"";
    assert!(lines[0].ends_with(end), "{text}");
    assert!(lines[1].ends_with("] \"-\" 400 16 \"-\" \"-\""), "{text}");

    let mut server = Server::start(&files.root(), &["--access-log=-", "--log-format=json"]);
    server.client().get("/small.bin");
    let mut line = String::new();
    server.stdout().read_line(&mut line).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    for (name, value) in [("method", "GET"), ("target", "/small.bin"), ("host", "localhost")] {
        assert_eq!(line[name], value);
    }
    assert_eq!(
        (&line["status"], &line["body_bytes"], &line["complete"]),
        (&200.into(), &1000.into(), &true.into())
    );
    server.stop_well();
}

#[test]
fn goaccess_reads_every_line_of_a_request() {
    let Some(program) = find_program("goaccess") else { return println!("skipped: goaccess is not on PATH") };
    let files = Files::new();
    let (log, report) = (files.beside("access.log"), files.beside("report.json"));
    let server = Server::start(&files.root(), &[&log_flag(&log)]);
    let mut client = server.client();
    client.get_with("/small.bin?q=1", "User-Agent: a \"b\"\r\nReferer: http://x/\r\n");
    assert_eq!(client.get("/absent").status, 404);
    client.get_with("/small.bin", "Range: bytes=0-9\r\n");
    drop(client);
    server.stop_well();
    let read = Program::new(program)
        .arguments([log.as_path(), Path::new("--log-format=COMBINED"), Path::new("--no-global-config")])
        .arguments([Path::new("--output"), &report])
        .start()
        .and_then(|child| child.output(Nanos::MILLISECOND, || true))
        .unwrap();
    assert!(read.exit.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let general = &report["general"];
    assert_eq!(
        (&general["valid_requests"], &general["failed_requests"]),
        (&3.into(), &0.into()),
        "{general}"
    );
    let bytes: u64 = fs::read_to_string(&log).unwrap().lines().map(body_bytes).sum();
    assert_eq!(general["bandwidth"], bytes);
    assert_eq!(report["not_found"]["data"][0]["data"], "/absent");
}

/// The tenth field of a line in combined form.
fn body_bytes(line: &str) -> u64 {
    line.split(' ').nth(9).and_then(|field| field.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    let files = Files::new();
    let mut server = Server::start(&files.root(), &["--access-log=/dev/full"]);
    let mut client = server.client();
    for _ in 0..50 {
        assert_eq!(client.get(Files::SMALL.0).status, 200);
    }
    server.eventually("all counted", |status| status.count("log_lines_dropped") == 50);
    assert!(server.admin.get("/metrics").text().contains("\ninrush_log_lines_dropped_total 50\n"));
    assert_eq!(client.get(Files::SMALL.0).status, 200);
    let (code, said) = server.stop();
    assert_eq!(code, Some(0));
    // The server reports the error once, not for every line.
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("inrush: access log /dev/full: No space left on device"), "{said}");
}

#[test]
fn a_rotated_log_is_opened_again() {
    let files = Files::new();
    let (log, rotated) = (files.beside("access.log"), files.beside("access.log.1"));
    let mut server = Server::start(&files.root(), &[&log_flag(&log)]);
    let mut client = server.client();
    client.get("/small.bin?before");
    server.eventually("written", |_| fs::metadata(&log).unwrap().len() > 0);
    fs::rename(&log, &rotated).unwrap();
    server.signal(Signal::HUP);
    server.eventually("opened again", |_| log.exists());
    client.get("/small.bin?after");
    server.stop_well();
    let lines = |path| fs::read_to_string(path).unwrap().lines().count();
    assert_eq!((lines(&rotated), lines(&log)), (1, 1));
    assert!(fs::read_to_string(&log).unwrap().contains("?after"));
}
