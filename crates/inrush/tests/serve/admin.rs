//! The admin interface: what it tells, and what it refuses.

use crate::common::{Client, Files, Server, check_metrics, samples};

#[test]
fn status_and_metrics_tell_the_same() {
    let files = Files::new();
    for (flags, loops) in
        [(&["--arch=sped"][..], 1), (&["--arch=per-core", "--workers=2", "--dispatch=poll"][..], 2)]
    {
        let mut server = Server::start(&files.root(), flags);
        let mut client = server.client();
        for _ in 0..5 {
            client.get(Files::SMALL.0);
        }
        client.get("/nothing");
        let status = server.eventually("counted", |status| status.count("requests") == 6);
        assert_eq!(status.0["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(status.0["architecture"], if loops == 1 { "sped" } else { "per-core" });
        assert_eq!(status.0["dispatch"], if loops == 1 { "epoll" } else { "poll" });
        assert_eq!(status.0["accept_limit"], "10");
        assert_eq!(status.0["loops"].as_array().unwrap().len(), loops);
        assert_eq!(status.0["mean_accepted_per_phase"], 1.0);
        assert!(status.0["uptime_s"].as_f64().unwrap() >= 0.0);
        assert_eq!((status.count("responses_2xx"), status.count("responses_4xx")), (5, 1));
        assert_eq!((status.count("hits"), status.count("not_found")), (4, 1));
        assert_eq!(status.0["bytes"], status.count("sent_bytes"));

        let page = server.admin.get("/metrics");
        assert_eq!(page.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let samples = samples(page.text());
        for (name, count) in status.0["counters"].as_object().unwrap() {
            assert!(samples.contains_key(&format!("inrush_{name}_total")), "{name}: {count}");
        }
        for (name, value) in [
            ("accepts_total", 1.0),
            ("accept_phases_total", 1.0),
            ("mean_accepted_per_phase", 1.0),
            ("connections", 1.0),
            ("requests_total", 6.0),
            ("sent_bytes_total", status.0["bytes"].as_f64().unwrap()),
            ("accept_queue_depth", 0.0),
            ("accept_queue_limit", status.0["queue"]["limit"].as_f64().unwrap()),
            ("listener_drops_total", 0.0),
            ("limit_connections_total", 0.0),
            ("stale_events_total", 0.0),
            ("accept_limit", 10.0),
        ] {
            assert_eq!(samples[&format!("inrush_{name}")], value, "{name}");
        }
        server.stop_well();
    }
}

#[test]
fn every_metric_of_every_architecture_has_its_help() {
    let files = Files::new();
    for flags in [
        &["--arch=per-core"][..],
        &["--arch=amped", "--helpers=2"],
        &["--arch=mp", "--workers=2"],
        &["--arch=smped", "--smped=initial=2"],
        &["--arch=mt", "--workers=2"],
        &["--arch=seda"],
    ] {
        println!("{flags:?}");
        let mut server = Server::start(&files.root(), flags);
        let page = server.admin.get("/metrics");
        samples(page.text());
        check_metrics(page.text());
        server.stop_well();
    }
}

fn put(client: &mut Client, body: &str) -> (u16, String) {
    let length = body.len();
    client.send(format!("PUT /accept-limit HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"));
    let response = client.response();
    (response.status, response.text().to_owned())
}

#[test]
fn the_accept_limit_is_changed_by_what_makes_sense_only() {
    let files = Files::new();
    let mut server = Server::start(&files.root(), &[]);
    assert_eq!(put(&mut server.admin, "inf"), (200, "inf\n".to_owned()));
    assert!(server.admin.get("/metrics").text().contains("\ninrush_accept_limit +Inf\n"));
    assert_eq!(put(&mut server.admin, " 12\n"), (200, "12\n".to_owned()));
    for nonsense in ["", "0", "-1", "1.5", "many", "99999999999", "\u{e9}"] {
        let (status, text) = put(&mut server.admin, nonsense);
        assert_eq!(status, 400, "{nonsense:?}");
        assert!(text.starts_with("accept-limit: ") && text.contains("or inf"), "{text}");
    }
    assert_eq!(server.admin.get("/accept-limit").text(), "12\n");
    let (status, _) = put(&mut Client::connect(server.admin_address), &"1".repeat(65));
    assert_eq!(status, 413);
    assert_eq!(server.admin.get("/accept-limit").text(), "12\n");
    server.stop_well();
}

#[test]
fn other_methods_and_paths_are_refused() {
    let files = Files::new();
    let mut server = Server::start(&files.root(), &[]);
    for (method, path, status, allow) in [
        ("POST", "/status", 405, Some("GET, HEAD")),
        ("PUT", "/metrics", 405, Some("GET, HEAD")),
        ("DELETE", "/accept-limit", 405, Some("GET, HEAD, PUT")),
        ("GET", "/small.bin", 404, None),
        ("GET", "/", 200, None),
    ] {
        server.admin.send(format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"));
        let response = server.admin.response();
        assert_eq!((response.status, response.field("allow")), (status, allow), "{method} {path}");
    }
    // What is served and what is told do not mix.
    assert_eq!(server.client().get("/status").status, 404);
    assert_eq!(server.eventually("counted", |status| status.count("closed") == 1).count("requests"), 1);
    server.stop_well();
}
