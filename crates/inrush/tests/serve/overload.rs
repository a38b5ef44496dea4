//! Overload control: the server refuses a flood and answers the admitted clients. Below the capacity it
//! refuses no client.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};
use serde_json::Value;

use crate::common::{Client, Files, Server, Status, samples};

/// CPU time of a request, so that a flood of some thousand connections per second is many times the capacity.
const SLOW: &str = "--burn=1ms";
/// Connections tried between two readings of the status.
const AT_A_TIME: usize = 20;
/// Maximum connections kept without an answer to their SYN.
const MOST_PENDING: usize = 500;

/// Clients that connect all the time and request one file each.
struct Flood {
    address: SocketAddr,
    /// Connections without an answer to their SYN.
    pending: Vec<OwnedFd>,
    /// Established connections with a request under way.
    asked: Vec<OwnedFd>,
}

impl Flood {
    fn new(address: SocketAddr) -> Flood {
        sys::descriptors::raise_limit(u64::MAX);
        Flood { address, pending: Vec::new(), asked: Vec::new() }
    }

    /// Tries some more connections, and drops the oldest that have no answer.
    fn go_on(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..AT_A_TIME {
            let socket =
                rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP));
            let socket = socket.unwrap();
            let _ = rustix::net::connect(&socket, &self.address);
            self.pending.push(socket);
        }
        let request = format!("GET {} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", Files::SMALL.0);
        let ask =
            |socket: &mut OwnedFd| rustix::net::send(socket, request.as_bytes(), SendFlags::NOSIGNAL).is_ok();
        self.asked.extend(self.pending.extract_if(.., ask));
        self.pending.drain(..self.pending.len().saturating_sub(MOST_PENDING));
    }

    /// Continues until `shows` returns true for the server's status.
    fn until(&mut self, server: &mut Server, what: &str, shows: impl Fn(&Status) -> bool) -> Status {
        for _ in 0..20_000 {
            self.go_on();
            let status = server.status();
            if shows(&status) {
                return status;
            }
        }
        panic!("never {what}: {:#?}", server.status());
    }

    /// Ends the flood. Returns the admitted clients.
    fn end(self) -> impl Iterator<Item = Client> {
        self.asked.into_iter().map(|socket| {
            let stream = TcpStream::from(socket);
            stream.set_nonblocking(false).unwrap();
            Client::over(stream)
        })
    }
}

/// The figures of the accept queues.
fn queues(status: &Status) -> &[Value] {
    status.0["overload"]["queues"].as_array().unwrap()
}

/// The sum of a figure over the accept queues.
fn sum(status: &Status, figure: &str) -> u64 {
    queues(status).iter().map(|queue| queue[figure].as_u64().unwrap()).sum()
}

fn all_open(status: &Status) -> bool {
    queues(status).iter().all(|queue| queue["state"] == "open")
}

#[test]
fn a_flood_is_refused_by_the_sink_and_those_admitted_are_answered() {
    let files = Files::new();
    for flags in [
        &["--arch=sped"][..],
        &["--arch=sped", "--dispatch=epoll-et"],
        &["--arch=sped", "--listen=[::1]:0", "--accept-limit=inf"],
        &["--arch=per-core", "--workers=2"],
        &["--arch=tux"],
        &["--arch=amped", "--helpers=1"],
        &["--arch=mp", "--workers=2"],
        &["--arch=smped", "--smped=initial=2,p-min=2,p-max=2,c-max=8"],
        &["--arch=mt", "--workers=2"],
        &["--arch=knot-c", "--workers=2"],
        &["--arch=knot-a"],
    ] {
        println!("{flags:?}");
        let mut server = Server::start(&files.root(), &[flags, &[SLOW]].concat());
        assert!(server.said.contains("or are refused by the sink"), "{}", server.said);
        let mut flood = Flood::new(server.address);
        let status = flood.until(&mut server, "refused", |status| sum(status, "refused") > 100);
        assert!(queues(&status).iter().any(|queue| queue["service_rate_per_s"].as_f64().unwrap() > 0.0));
        assert!(server.says().contains("overload: refusing connections; "));
        for mut client in flood.end() {
            assert_eq!(client.response().status, 200);
        }
        server.eventually("over", all_open);
        assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        let (code, said) = server.stop();
        assert!(code == Some(0) && said.contains("overload over after "), "{said}");
    }
}

#[test]
fn below_the_capacity_nothing_is_refused() {
    let files = Files::new();
    for flags in [&["--arch=sped"][..], &["--arch=mt", "--workers=2"], &["--arch=mp", "--workers=2"]] {
        println!("{flags:?}");
        let mut server = Server::start(&files.root(), &[flags, &["--queue-target=5ms"]].concat());
        for _ in 0..300 {
            assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        }
        let status = server.eventually("counted", |status| sum(status, "admitted") == 300);
        assert_eq!((sum(&status, "refused"), sum(&status, "dropped")), (0, 0));
        assert!(all_open(&status) && status.0["overload"]["queue_target_s"] == 0.005);
        assert!(queues(&status).iter().all(|queue| queue["share"] == 1.0));
        server.stop_well();
    }
}

#[test]
fn the_metrics_tell_what_the_control_does() {
    let files = Files::new();
    let mut server = Server::start(&files.root(), &["--arch=sped", SLOW]);
    let mut flood = Flood::new(server.address);
    flood.until(&mut server, "shedding", |status| !all_open(status));
    let status = flood.until(&mut server, "refused", |status| sum(status, "refused") > 0);
    let samples = samples(server.admin.get("/metrics").text());
    let sample = |name: &str| samples[&format!("inrush_overload_{name}{{queue=\"0\"}}")];
    assert!(sample("refused_total") >= sum(&status, "refused") as f64);
    assert!(sample("admitted_total") >= sum(&status, "admitted") as f64);
    assert!(sample("service_rate_per_second") > 0.0 && sample("offered_per_second") > 0.0);
    assert!(sample("turn_seconds") > 0.0 && sample("wait_seconds") >= sample("queueing_delay_seconds"));
    for name in ["shedding", "queued", "share", "backlog", "dropped_total"] {
        sample(name);
    }
    drop(flood);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn without_overload_control_nothing_is_attached_and_nothing_said() {
    let files = Files::new();
    let start = |flags: &[&str]| Server::start(&files.root(), &[&["--arch=sped", SLOW], flags].concat());
    let (mut with, mut without) = (start(&[]), start(&["--overload=off"]));
    // The difference is the sink.
    assert_eq!(with.sockets(), without.sockets() + 1);
    assert!(!without.said.contains("overload"), "{}", without.said);
    assert!(!without.admin.get("/metrics").text().contains("inrush_overload"));
    assert!(with.status().0["overload"].is_object() && without.status().0["overload"].is_null());
    let mut flood = Flood::new(without.address);
    (0..50).for_each(|_| flood.go_on());
    let status = without.status();
    for mut client in flood.end() {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(status.0["queue"]["drops"], 0);
    without.stop_well();
    with.stop_well();
}
