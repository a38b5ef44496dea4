//! `--agent-check`: its line, its order in a shutdown, and its clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;

use crate::common::{Files, PATIENCE, Server, has_ended};

fn start(files: &Files, flags: &[&str]) -> (Server, SocketAddr) {
    let server = Server::start(&files.root(), &[&["--agent-check=127.0.0.1:0"], flags].concat());
    let line = server.said.lines().find_map(|line| line.strip_prefix("agent check on ")).unwrap();
    let address = line.parse().unwrap();
    (server, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn text(mut socket: TcpStream) -> String {
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

/// The weight in a line of a server that has just started.
fn percent(line: &str) -> u32 {
    let number = line.strip_prefix("ready up ").and_then(|rest| rest.strip_suffix("%\n"));
    number.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap()
}

#[test]
fn agent_of_an_idle_server_says_up_and_rises() {
    let files = Files::new();
    for arch in ["--arch=per-core", "--arch=smped", "--arch=mt"] {
        let (mut server, agent) = start(&files, &[arch]);
        let first = percent(&text(connect(agent)));
        assert!((1..=10).contains(&first), "a newcomer is not flooded: {first}");
        server.eventually_of("a higher weight", |_| percent(&text(connect(agent))) > first);
        server.stop_well();
    }
}

#[test]
fn agent_says_drain_before_the_server_stops_listening() {
    let files = Files::new();
    let (mut server, agent) = start(&files, &["--arch=sped", "--drain-timeout=60s"]);
    let mut client = server.client();
    client.send("GET /small.bin HTTP/1.1\r\n");
    server.eventually("begun", |status| status.connections() == 1);
    assert!(text(connect(agent)).starts_with("ready up "));
    server.signal(Signal::TERM);
    // The server listens until this load balancer has asked once more.
    let mut line = text(connect(agent));
    while line.starts_with("ready up ") {
        assert!(TcpStream::connect(server.address).is_ok());
        line = text(connect(agent));
    }
    assert_eq!(line, "drain\n");
    server.refuses_connections();
    assert_eq!(text(connect(agent)), "drain\n", "until the last connection has ended");
    client.send("Host: x\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_eq!(server.wait(), (Some(0), String::new()));
    assert!(has_ended(server.process()));
}

#[test]
fn shutdown_does_not_wait_for_an_absent_balancer() {
    let files = Files::new();
    let (server, _) = start(&files, &["--drain-timeout=1h"]);
    server.stop_well();
}

#[test]
fn clients_that_talk_or_stay_delay_nobody() {
    let files = Files::new();
    let (mut server, agent) = start(&files, &["--arch=sped"]);
    // Each has its line already, and does not close.
    let silent: Vec<TcpStream> = (0..40).map(|_| connect(agent)).collect();
    let mut talker = connect(agent);
    let _ = talker.write_all(&[b'x'; 100_000]);
    assert!(text(connect(agent)).starts_with("ready up "));
    server.eventually("some made room", |status| status.count("agent_evicted") >= 8);
    for socket in silent {
        assert!(text(socket).starts_with("ready up "), "the answer does not wait for the client");
    }
    let mut sends = connect(agent);
    sends.write_all(b"state\n").unwrap();
    assert!(text(sends).starts_with("ready up "), "agent-send of HAProxy is read and dropped");
    server.stop_well();
}

#[test]
fn a_response_tells_the_load_to_who_asks() {
    let files = Files::new();
    for arch in ["sped", "per-core", "tux", "amped", "mt", "knot-c", "seda"] {
        let mut server = Server::start(&files.root(), &["--load-reports=on", "--arch", arch]);
        let mut client = server.client();
        let ask = "endpoint-load-metrics-format: TEXT\r\n";
        let mut report = None;
        // The first report comes after half a second.
        server.eventually_of("a report", |_| {
            let response = client.get_with(Files::SMALL.0, ask);
            assert_eq!(response.status, 200);
            report = response.field("endpoint-load-metrics").map(str::to_owned);
            report.is_some()
        });
        let report = report.unwrap();
        let fields = report.strip_prefix("TEXT ").unwrap().split(',');
        let fields: Vec<(&str, f64)> = fields
            .map(|field| field.split_once('=').unwrap())
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect();
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["cpu_utilization", "application_utilization", "rps_fractional", "eps"]);
        assert!((0.0..=1.0).contains(&fields[0].1) && fields[1].1 >= fields[0].1, "{report}");
        assert!(fields[2].1 > 0.0 && fields[3].1 == 0.0, "{report}");
        assert_eq!(client.get(Files::SMALL.0).field("endpoint-load-metrics"), None, "only who asks");
        let missing = client.get_with("/nothing", ask);
        assert!(missing.status == 404 && missing.field("endpoint-load-metrics").is_some());
        drop(client);
        server.stop_well();
    }
}

#[test]
fn worker_processes_know_no_load_of_the_whole_server() {
    let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_inrush"))
        .args(["serve", "--listen=127.0.0.1:0", "--load-reports=on", "--arch=smped", "."])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("--load-reports"), "{said}");
}

#[test]
fn an_address_in_use_is_one_clear_line() {
    let files = Files::new();
    let (server, agent) = start(&files, &[]);
    let taken = format!("--agent-check={agent}");
    let mut second = assert_cmd::Command::new(env!("CARGO_BIN_EXE_inrush"));
    let output = second.args(["serve", "--listen=127.0.0.1:0", &taken]).arg(files.root()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&agent.to_string()) && said.lines().count() == 1, "{said}");
    server.stop_well();
}
