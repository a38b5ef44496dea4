//! `inrush capacity` end to end: the real program against the real server. The tests check its structure, not
//! the machine's speed, nor whether the generator keeps up.

#[path = "common/closed_port.rs"]
mod closed_port;
#[path = "common/schema.rs"]
mod schema;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use assert_cmd::Command;
use base::Nanos;
use closed_port::closed_port;
use record::Outcome;
use schema::obeys_schema;
use serde_json::Value;
use sys::network::netlink::SocketDiagnostics;
use sys::process::{Child, Program};
use sys::readiness::poll::{self, PollFd, bits};

const PROGRAM: &str = env!("CARGO_BIN_EXE_inrush");
/// Timeout of a test.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);
/// The shortest possible survey: the figures do not matter.
const SHORT: [&str; 4] = ["--step-time=400ms", "--trials=1", "--past=2x", "--seed=7"];

/// A running server, killed when dropped.
struct Server {
    _child: Child,
    _root: tempfile::TempDir,
    url: String,
}

/// A server that needs 2 ms of CPU time per request, so that its capacity is found quickly.
fn server() -> Server {
    server_with(&["--burn=2ms"])
}

/// A server of one loop with these flags.
fn server_with(flags: &[&str]) -> Server {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("index.html"), "hello").unwrap();
    let arguments = [&["serve", "--listen=127.0.0.1:0", "--arch=sped"], flags].concat();
    let arguments =
        arguments.iter().map(std::ffi::OsString::from).chain([root.path().as_os_str().to_owned()]);
    let mut child = Program::new(PROGRAM).arguments(arguments).start().unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim_end().strip_prefix("listening on ").unwrap_or_else(|| panic!("{said}"));
    Server { url: format!("http://{address}/"), _child: child, _root: root }
}

/// Runs `inrush capacity`. Returns exit code, standard output, and standard error.
fn capacity(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(PROGRAM).arg("capacity").args(arguments).timeout(PATIENCE).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("it ends by itself"), text(output.stdout), text(output.stderr))
}

#[test]
fn capacity_result_has_its_documented_shape() {
    let server = server();
    let (code, out, said) = capacity(&[&SHORT[..], &["--output=json", "--slo=p99<1h", &server.url]].concat());
    let result: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {said}"));
    assert!(said.starts_with("inrush: this takes about "), "{said}");
    obeys_schema(&result, "capacity-result");
    assert_eq!(result["schema"], "inrush.capacity/1");
    assert_eq!(result["slo"], "p99<1h");
    assert_eq!(result["deadline_ns"], 3_600_000_000_000_u64, "the objective's bound");
    let capacity = result["capacity_per_s"].as_f64().unwrap();
    let interval: Vec<f64> = serde_json::from_value(result["interval_per_s"].clone()).unwrap();
    assert!(interval[0] <= capacity && capacity <= interval[1], "{capacity} {interval:?}");
    assert!(!result["text"].as_str().unwrap().is_empty());
    assert_eq!(result["manifest"]["seed"], 7);
    assert_eq!(result["manifest"]["config"]["past"], "2x");
    let verdict = result["verdict"].as_str().unwrap();
    assert!(["holds", "drops", "sags", "collapses", "generator-limited"].contains(&verdict), "{verdict}");
    assert_eq!(code, if verdict == "generator-limited" { 5 } else { 0 }, "{said}");
    let record: record::CapacityResult = serde_json::from_value(result).unwrap();
    assert!(!record.search.is_empty() && !record.knee.is_empty());
    if record.past.is_empty() {
        let mut steps = record.search.iter().chain(&record.knee);
        assert!(steps.any(|step| step.generator_limited), "{record:?}");
    } else {
        assert_eq!((record.past.len(), record.back.len()), (4, 3));
        for (up, down) in record.past.iter().zip(record.back.iter().rev()) {
            assert_eq!(up.asked_per_s, down.asked_per_s);
        }
    }
    assert!(record.loss.values().all(|share| (0.0..=1.0).contains(share)), "{:?}", record.loss);
}

#[test]
fn the_text_is_a_table_and_a_paragraph() {
    let server = server();
    let session = "--requests-per-connection=2";
    let (code, out, said) = capacity(&[&SHORT[..], &[session, &server.url]].concat());
    assert!([0, 5].contains(&code), "{code}: {said}");
    assert!(out.contains("goodput") && out.contains("\nknee "), "{out}");
    assert!(out.lines().last().unwrap().starts_with("The "), "{out}");
}

/// The survey offers five times the capacity to a server that serves 50 requests per second and queues all
/// others.
#[test]
fn a_slow_server_with_a_long_queue_does_not_hold() {
    let server = server_with(&["--burn=20ms", "--backlog=4096", "--overload=off"]);
    let flags = ["--step-time=400ms", "--trials=1", "--past=5x", "--output=json"];
    let (code, out, said) = capacity(&[&flags[..], &[&server.url]].concat());
    assert!([0, 5].contains(&code), "{code}: {said}");
    let record: record::CapacityResult = serde_json::from_str(&out).unwrap();
    let table = report::capacity::table(&record);
    assert_ne!(record.verdict, record::CapacityVerdict::Holds, "{table}");
    assert!(!table.contains("holds"), "{table}");
    let shares = table.split_whitespace().zip(table.split_whitespace().skip(1));
    let number = |text: &str| text.trim_matches(|c: char| !c.is_ascii_digit()).parse::<f64>();
    let shares: Vec<f64> = shares
        .filter(|(_, unit)| unit.starts_with('%'))
        .map(|(share, _)| number(share).expect(&table))
        .collect();
    assert!(!shares.is_empty() && shares.iter().all(|share| *share <= 100.0), "{table}");
}

/// 200 requests a second are served, and the queue has room for 20 of those that are offered beyond.
#[test]
fn queue_of_a_server_here_is_named_with_its_length() {
    let server = server_with(&["--burn=5ms", "--backlog=20", "--overload=off"]);
    let flags = ["--step-time=600ms", "--trials=1", "--past=5x", "--output=json"];
    let (code, out, said) = capacity(&[&flags[..], &[&server.url]].concat());
    assert!([0, 5].contains(&code), "{code}: {said}");
    let record: record::CapacityResult = serde_json::from_str(&out).unwrap();
    let mut diagnostics = match SocketDiagnostics::open() {
        Ok(diagnostics) => diagnostics,
        Err(error) => return println!("skipped: no sock_diag here: {error}"),
    };
    if code == 5 {
        return println!("skipped: the generator was the limit: {}", record.text);
    }
    let side = record.server.as_ref().expect("the server is on this machine");
    let queue = side.queue.unwrap();
    assert_eq!((queue.limit, queue.requests_per_connection), (20, 1.0), "{side:?}");
    assert_eq!(side.name.as_deref(), Some("inrush"), "{side:?}");
    assert!(queue.depth_max > 0 && side.cpu.is_some_and(|cpu| cpu > 0.0), "{side:?}");
    let port = server.url.trim_end_matches('/').rsplit_once(':').unwrap().1.parse().unwrap();
    let all_drops: u64 = diagnostics.listeners(port).unwrap().iter().map(|at| u64::from(at.drops)).sum();
    assert!(queue.drops <= all_drops, "{side:?}, and {all_drops} with the search");
    // A connect has no other reason to time out than that the kernel dropped its SYNs.
    let steps = record.past.iter().chain(&record.back);
    let timed_out: u64 = steps.map(|step| step.outcomes.get(Outcome::ConnectTimeout)).sum();
    assert!(queue.drops > 0 || timed_out == 0, "{side:?}, and {timed_out} connects timed out");
    let found = match (queue.drops > 0, queue.depth_max >= 20) {
        (true, true) => ": a queue of 20 ",
        (true, false) => " at its listener: the queue held up to ",
        (false, _) => {
            println!("skipped: the search ended at a load that the queue has room for");
            "Its accept queue dropped nothing: the queue held up to "
        }
    };
    for part in [found, "Its program, inrush, used up to "] {
        assert!(record.text.contains(part), "{part}: {}", record.text);
    }
}

#[test]
fn server_that_never_accepts_has_no_capacity() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (code, out, said) = capacity(&["--request-timeout=500ms", &url]);
    assert_eq!(code, 3, "{said}");
    assert!(out.contains("No request was answered correctly"), "{out}");
    assert!(!out.contains("holds"), "{out}");
}

#[test]
fn nobody_there_is_code_3_with_a_result_that_says_so() {
    let nobodys = closed_port();
    let url = format!("http://{}/", nobodys.local_addr().unwrap());
    let (code, out, said) = capacity(&["--output=json", &url]);
    assert_eq!(code, 3, "{said}");
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&result["verdict"], &result["capacity_per_s"]), (&"unreachable".into(), &0.0.into()));
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_page_that_does_not_exist_has_no_capacity() {
    let server = server();
    let (code, out, said) = capacity(&[&format!("{}missing", server.url)]);
    assert_eq!(code, 3, "{said}");
    assert!(out.contains("No request was answered correctly") && out.contains("status_error 100 %"), "{out}");
    assert!(said.contains("Most replies are not 2xx (100 % of them 404); check the URL"), "{said}");
}

/// The requests that a [`recording_server`] has heard.
#[derive(Default)]
struct Heard {
    requests: AtomicUsize,
    /// The most connections that were open at once.
    open_max: AtomicUsize,
    /// The heads of other requests than a POST of `{}` with its token.
    others: Mutex<Vec<String>>,
}

/// Answers 405 to every request after 2 ms, with a thread for each connection. Returns its URL.
fn recording_server() -> (String, Arc<Heard>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let heard = Arc::new(Heard::default());
    let hears = Arc::clone(&heard);
    thread::spawn(move || {
        let mut open: Vec<TcpStream> = Vec::new();
        for stream in listener.incoming().flatten() {
            open.retain(|earlier| !is_ended_by_peer(earlier));
            open.push(stream.try_clone().unwrap());
            hears.open_max.fetch_max(open.len(), Ordering::Relaxed);
            let heard = Arc::clone(&hears);
            // The client may end a connection at any time.
            thread::spawn(move || while answer(&stream, &heard).is_ok() {});
        }
    });
    (url, heard)
}

fn is_ended_by_peer(stream: &TcpStream) -> bool {
    let mut set = [PollFd::new(stream.as_raw_fd(), bits::RDHUP)];
    matches!(poll::wait(&mut set, Some(Nanos::ZERO)), Ok(1))
}

/// Reads and answers one request. The client sends the next one only after the answer.
fn answer(mut stream: &TcpStream, heard: &Heard) -> std::io::Result<()> {
    let (mut reader, mut request) = (BufReader::new(stream), String::new());
    while !request.ends_with("\r\n\r\n") {
        if reader.read_line(&mut request)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let length = request.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap_or("0");
    let mut content = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut content)?;
    heard.requests.fetch_add(1, Ordering::Relaxed);
    let has_token = request.contains("\r\nAuthorization: Bearer abc\r\n");
    if !(request.starts_with("POST / HTTP/1.1\r\n") && has_token && content == b"{}") {
        heard.others.lock().unwrap().push(request);
    }
    // A signal may end the time early.
    let _ = poll::wait(&mut [], Some(Nanos::from_millis(2)));
    stream.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
}

/// The server answers 405 to the method, and the search takes that for correct.
#[test]
fn capacity_is_that_of_the_described_request() {
    let (url, heard) = recording_server();
    let request = ["-X", "POST", "-H", "Authorization: Bearer abc", "--body={}", "--expect-status=405"];
    let flags = [&SHORT[..], &request, &["--connections=4", "--output=json", &url]].concat();
    let (code, out, said) = capacity(&flags);
    assert!([0, 5].contains(&code), "{code}: {said}");
    let record: record::CapacityResult = serde_json::from_str(&out).unwrap();
    assert!(record.capacity_per_s > 0.0, "{record:?}");
    let settings = &record.manifest.config;
    assert_eq!((settings["method"].as_str(), settings["connections"].as_str()), ("POST", "4"));
    assert!(heard.requests.load(Ordering::Relaxed) > 0);
    assert_eq!(*heard.others.lock().unwrap(), [""; 0]);
    assert!(heard.open_max.load(Ordering::Relaxed) <= 4, "{:?}", heard.open_max);
}

#[test]
fn an_objective_that_never_holds_is_told_at_once() {
    let server = server();
    let (code, out, said) = capacity(&["--slo=p50<1ns", &server.url]);
    assert_eq!((code, out.as_str()), (1, ""), "{said}");
    assert_eq!(said, "inrush: --slo 'p50<1ns' does not hold even at 10/s: there is nothing to search\n");
}

#[test]
fn public_targets_are_refused_before_anything_is_sent() {
    let (code, out, said) = capacity(&["http://203.0.114.1/"]);
    assert_eq!((code, out.as_str()), (2, ""), "{said}");
    for part in
        ["overloads the server on purpose", "203.0.114.1 is not a private address", "--i-own-this-server"]
    {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn mistakes_name_what_is_accepted() {
    for (flag, accepted) in [
        ("--past=1x", "expected a multiple of the capacity above 1x"),
        ("--past=NaN", "expected a multiple of the capacity above 1x"),
        ("--step-time=1ms", "expected a time from 400ms up"),
        ("--slo=p99", "is not a threshold"),
        ("--slo=p99>300ms", "did you mean 'p99<300ms'?"),
        ("--slo=roof:p99<1s", "--slo 'roof:p99<1s': no request has the name 'roof'; known are none"),
        ("--streams=4", "--streams 4 is for HTTP/2; add --http2"),
        ("--trials=0", "--trials"),
    ] {
        let (code, out, said) = capacity(&[flag, "http://127.0.0.1:1/"]);
        assert_eq!((code, out.as_str()), (2, ""), "{flag}: {said}");
        assert!(said.contains(accepted), "{flag}: {said}");
    }
}

#[test]
fn interrupted_it_has_what_it_found_until_then() {
    let server = server();
    let arguments = ["capacity", "--output=json", "--step-time=10s", &server.url];
    let mut child = Program::new(PROGRAM).arguments(arguments).start().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // The probe is over when the program announces the remaining time.
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("inrush: this takes about "), "{line}");
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let result: Value = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    assert_eq!(result["verdict"], "interrupted");
    assert!(result["text"].as_str().unwrap().starts_with("It was interrupted after "), "{result}");
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "inrush: interrupted, so the result is of a part of the survey\n");
    let exit = child.wait(Nanos::from_secs(PATIENCE.as_secs())).unwrap().expect("it has said everything");
    assert_eq!(exit.status.code(), Some(1));
}
