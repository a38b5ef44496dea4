//! `inrush load --dry-run`: a description of the run, made without a server.

use std::io::ErrorKind;
use std::net::TcpListener;

use serde_json::Value;

use super::{inrush, refused, said};
use crate::schema::obeys_schema;

/// No process listens on the discard port of this machine, so a request would be refused and reported.
const URL: &str = "http://127.0.0.1:9/";

fn plan(flags: &[&str]) -> (String, String) {
    plan_for(URL, flags)
}

fn plan_for(url: &str, flags: &[&str]) -> (String, String) {
    let run = inrush(&[&["load", url, "--dry-run"], flags].concat(), 0);
    (String::from_utf8(run.get_output().stdout.clone()).unwrap(), said(&run))
}

/// A spike is short for three steps: 10 s at the rate after the warm-up, the rush, and 30 s at the rate.
#[test]
fn spike_is_three_steps() {
    let plan = |flags: &[&str]| -> Value {
        let plan = serde_json::from_str(&plan(&[flags, &["--output=json"]].concat()).0).unwrap();
        obeys_schema(&plan, "plan");
        plan
    };
    let spike = plan(&["--rate=100", "--spike=1k,5s"]);
    let steps = plan(&["--arrivals=steps:100x15s,1000x5s,100x30s", "--duration=45s"]);
    assert_eq!((&spike["rates"], &spike["arrivals"]), (&steps["rates"], &steps["arrivals"]), "{spike:#}");
    assert!(spike["rates"].is_object(), "{spike:#}");
    refused(&["load", URL, "--spike=1k"], 2, &["'1k' is not a spike: expected PEAK,TIME such as 1k,5s"]);
    refused(&["load", URL, "--spike=1k,5s", "--duration=5s"], 2, &["--spike", "--duration"]);
    let low = ["load", URL, "--rate=1k", "--spike=500,5s"];
    refused(&low, 2, &["--spike 500/s,5s: expected a peak above --rate, which is 1000/s"]);
    for wrong in ["0,5s", "1k,0s", "1k,5", "x,5s", "1k,5s,1s"] {
        refused(
            &["load", URL, &format!("--spike={wrong}")],
            2,
            &["is not a spike: expected PEAK,TIME such as 1k,5s"],
        );
    }
}

#[test]
fn the_plan_is_told_and_nothing_is_sent() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    target.set_nonblocking(true).unwrap();
    let address = target.local_addr().unwrap();
    let flags = ["--rate=2k", "--duration=10s", "--population=idle:500"];
    let (out, said) = plan_for(&format!("http://{address}/"), &flags);
    assert_eq!(said, "");
    let told = format!("nothing was sent; this run would go to {address}");
    assert_eq!(target.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "no connection");
    for part in [
        told.as_str(),
        "2000/s on average, 2000/s at most over a second",
        "about 20000 measured, 30000 in all",
        "1050 connects pending at once (D), 500 clients of populations",
        "beside it    idle:500",
        "sources ",
    ] {
        assert!(out.contains(part), "no {part:?} in: {out}");
    }
}

#[test]
fn the_plan_as_json_has_its_schema() {
    let (out, _) = plan(&["--rate=50", "--arrivals=pareto:1.4", "--duration=60s", "--output=json"]);
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["schema"], "inrush.load-plan/1");
    assert_eq!(plan["descriptors"]["needed"], plan["descriptors"]["pending_max"].as_u64().unwrap() + 64);
    assert!((plan["hurst"]["process"].as_f64().unwrap() - 0.8).abs() < 1e-9, "{out}");
    assert_eq!(plan["first_s"].as_array().unwrap().len(), 5);
}

#[test]
fn a_closed_loop_has_clients_and_no_rate() {
    let (out, _) = plan(&["--client=closed"]);
    assert!(out.contains("closed loop, 64 clients"), "{out}");
}

#[test]
fn limits_that_would_bite_are_in_the_plan() {
    let (out, _) = plan(&["--rate=3M"]);
    assert!(out.contains("warning: ") && out.contains("no_descriptor"), "{out}");
}

#[test]
fn a_plan_has_no_series() {
    refused(&["load", URL, "--dry-run", "--output=csv"], 2, &["--dry-run", "expected --output text or json"]);
}
