//! A run in several processes gives one result, as in a single process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use assert_cmd::Command;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sys::process::{Child, Program};

use super::closed_port::closed_port;
use super::common::{eventually, pause};
use super::{PATIENCE, inrush, refused, said};
use crate::schema::obeys_schema;

/// Answers every request with 200, in a thread per connection. The server ends with the test process.
pub fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = |mut stream: TcpStream| {
        let mut request = [0; 1024];
        while let Ok(1..) = stream.read(&mut request) {
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                break;
            }
        }
    };
    thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| drop(thread::spawn(move || serve(stream))))
    });
    address
}

fn result(flags: &[&str]) -> Value {
    let url = format!("http://{}/", server());
    // One request each 2.5 ms, the last long before the run ends, so that the end interrupts none.
    let arrivals = ["--warmup=299ms", "--duration=1s", "--arrivals=steps:400x799ms,0x1h"];
    let short = [&["load", &url, "--output=json"], &arrivals[..]].concat();
    // On a busy machine the generator is late, which changes the exit code but not the ledger.
    let program =
        Command::new(env!("CARGO_BIN_EXE_inrush")).args(short).args(flags).timeout(PATIENCE).assert();
    let assert = program.code(&[0, 5][..]);
    let result = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    obeys_schema(&result, "load-result");
    result
}

#[test]
fn their_books_are_one() {
    let result = result(&["--processes=3", "--population=idle:10", "--connect-timeout=5s"]);
    assert_eq!(result["offered"], 200, "{result:#}");
    // A stalled machine may leave some requests without time.
    let of = |outcome: &str| result["outcomes"][outcome].as_u64().unwrap();
    assert_eq!((of("ok") + of("no_time"), &result["in_flight_at_end"]), (200, &0.into()), "{result:#}");
    assert!(of("ok") > 0, "{result:#}");
    assert_eq!(result["latency_intended_ns"]["count"], result["outcomes"]["ok"]);
    assert_eq!(result["lateness_ns"]["count"], 200 - of("no_time"));
    let idle = &result["populations"]["idle:10"];
    assert_eq!((&idle["clients"], &idle["offered"]), (&Value::from(10), &Value::from(10)), "{idle:#}");
    assert_eq!(idle["open_at_end"], 10);
    let series: u64 =
        result["series"].as_array().unwrap().iter().map(|point| point["offered"].as_u64().unwrap()).sum();
    assert_eq!(series, 320, "warm-up included");
}

#[test]
fn a_target_that_is_not_there_is_unreachable_for_all() {
    let nobodys = closed_port();
    let closed = nobodys.local_addr().unwrap();
    let url = format!("http://{closed}/");
    let assert = inrush(&["load", &url, "--processes=2", "--duration=1h", "--warmup=0"], 3);
    assert!(said(&assert).contains("nothing listens on that port"), "{}", said(&assert));
}

#[test]
fn a_url_behind_two_dashes_is_the_target_of_all() {
    let nobodys = closed_port();
    let closed = nobodys.local_addr().unwrap();
    let url = format!("http://{closed}/");
    for several in ["--processes=2", "--client=s-client-pair"] {
        let assert = inrush(&["load", several, "--duration=1h", "--warmup=0", "--", &url], 3);
        assert!(said(&assert).contains("nothing listens on that port"), "{}", said(&assert));
    }
}

#[test]
fn their_number_has_bounds() {
    refused(
        &["load", "http://127.0.0.1:9/", "--processes=0"],
        2,
        &["--processes", "expected 1 to 64, or auto"],
    );
    refused(&["load", "http://127.0.0.1:9/", "--close=abort"], 2, &["--close", "fin, rst"]);
}

/// The children of a process.
fn children(of: u32) -> Vec<Pid> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// A run of an hour in two processes, one of which is stopped.
fn run_with_a_stopped_part() -> Child {
    let url = format!("http://{}/", server());
    let arguments = ["load", &url, "--rate=20", "--warmup=0", "--duration=1h", "--processes=2"];
    let run = Program::new(env!("CARGO_BIN_EXE_inrush")).arguments(arguments).start().unwrap();
    eventually("parts", || children(run.id()).len() == 2);
    kill_process(children(run.id())[0], Signal::STOP).unwrap();
    run
}

/// The exit code of a run that ends, and its messages.
fn end_of(mut run: Child) -> (Option<i32>, String) {
    let exit = run.wait(base::Nanos(PATIENCE.as_nanos() as u64)).unwrap().expect("the run ends");
    let mut said = String::new();
    run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (exit.status.code(), said)
}

#[test]
fn stopped_parts_do_not_keep_the_parent() {
    let run = run_with_a_stopped_part();
    run.ask_to_end().unwrap();
    let (code, said) = end_of(run);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(" of 2 was silent for "), "{said}");
}

#[test]
fn second_signals_end_a_run_at_once() {
    let run = run_with_a_stopped_part();
    run.ask_to_end().unwrap();
    pause(base::Nanos::from_millis(700));
    run.ask_to_end().unwrap();
    let (code, said) = end_of(run);
    assert_eq!((code, said.trim()), (Some(1), "inrush: ended by a second signal, without a result"));
}
