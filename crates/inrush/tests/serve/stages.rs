//! `--arch seda`: its stages in `/status`, the refusal of requests that would be late, and many idle clients.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::common::{Client, Files, Server, Status};
use crate::schema::obeys_schema;

const STAGES: [&str; 5] = ["accept", "read", "parse", "file", "write"];
const MANY: usize = 10_000;

fn stage<'a>(status: &'a Status, name: &str) -> &'a serde_json::Value {
    let stages = status.0["stages"].as_array().unwrap();
    stages.iter().find(|stage| stage["name"] == name).unwrap()
}

#[test]
fn status_and_metrics_show_stages_and_admission() {
    let files = Files::new();
    let mut server = Server::start(&files.root(), &["--arch=seda"]);
    let mut client = server.client();
    for _ in 0..5 {
        client.get(Files::SMALL.0);
    }
    let status = server.eventually("counted", |status| status.count("responses_2xx") == 5);
    obeys_schema(&status.0, "status");
    for name in STAGES {
        let stage = stage(&status, name);
        assert_eq!((stage["queued"].as_u64(), stage["threads"].as_u64()), (Some(0), Some(1)), "{name}");
        let least = if name == "accept" { 1 } else { 5 };
        assert!(stage["processed"].as_u64().unwrap() >= least, "{name}: {stage}");
    }
    assert_eq!(status.0["admission"]["rate_per_s"], serde_json::Value::Null, "all are let in");
    assert_eq!(status.0["admission"]["refused"], 0);
    let page = server.admin.get("/metrics");
    for name in STAGES {
        assert!(page.text().contains(&format!("\ninrush_stage_queue{{stage=\"{name}\"}} 0\n")), "{name}");
        assert!(page.text().contains(&format!("\ninrush_stage_threads{{stage=\"{name}\"}} 1\n")), "{name}");
    }
    assert!(page.text().contains("\ninrush_admission_rate_per_second +Inf\n"));
    server.stop_well();
}

#[test]
fn what_would_be_late_is_refused_and_counted() {
    let files = Files::new();
    // No answer can be in time, on any machine.
    let mut server = Server::start(&files.root(), &["--arch=seda", "--seda=target=1ms", "--burn=2ms"]);
    let mut client = server.client();
    let mut answers = (0..10_000).map(|served| (served, client.get(Files::SMALL.0)));
    let (served, refused) = answers.find(|(_, response)| response.status != 200).expect("a refusal");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
    assert!(!refused.says_close(), "a refusal costs a request, not the connection");
    assert!(served >= 2, "nothing is known before a sample is complete");
    let status = server.eventually("counted", |status| status.count("responses_5xx") >= 1);
    let admission = &status.0["admission"];
    assert_eq!(admission["refused"], status.count("responses_5xx"));
    assert!(admission["rate_per_s"].as_f64().unwrap() >= 1.0);
    assert!(admission["response_time_p90_s"].as_f64().unwrap() >= 0.002);
    server.stop_well();
}

#[test]
fn ten_thousand_who_are_idle_hold_no_thread() {
    let mut limit = getrlimit(Resource::Nofile);
    let needed = MANY as u64 + 200;
    if limit.maximum.is_some_and(|most| most < needed) {
        println!("skipped: {needed} descriptors are more than this user may have");
        return;
    }
    limit.current = Some(limit.current.map_or(needed, |current| current.max(needed)));
    setrlimit(Resource::Nofile, limit).unwrap();

    let files = Files::new();
    // So that a thread for each client would be allowed, and no client has to send its first byte in time.
    let flags = ["--arch=seda", "--seda=target=1h,max-threads=10000", "--header-timeout=1h"];
    let mut server = Server::start(&files.root(), &flags);
    let mut clients: Vec<Client> = (0..MANY).map(|_| server.client()).collect();
    server.eventually("all accepted", |status| status.connections() == MANY as u64);
    // The threads of the rush end when they have been idle for 5 s.
    server.eventually("one thread each", |status| {
        STAGES.iter().all(|name| stage(status, name)["threads"] == 1)
    });
    for client in clients.iter_mut().step_by(100) {
        assert_eq!(client.get(Files::SMALL.0).status, 200);
    }
    drop(clients);
    server.eventually("all closed", |status| status.count("closed") == MANY as u64);
    server.stop_well();
}
