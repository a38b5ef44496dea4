//! Overload control: the server refuses a flood and answers the admitted clients. Below the capacity it
//! refuses no client.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use rustix::process::Signal;
use serde_json::Value;
use sys::network::netlink::Route;
use sys::network::netns::NetworkNamespace;

use crate::common::{Client, Files, Response, Server, Status, samples};

/// CPU time of a request, so that a flood of some thousand connections per second is many times the capacity.
const SLOW: &str = "--burn=1ms";
/// The hook that is the same on every machine.
const SINK: &str = "--overload-hook=sink";
/// Connections tried between two readings of the status.
const AT_A_TIME: usize = 20;
/// Maximum connections kept without an answer to their SYN.
const MOST_PENDING: usize = 500;

/// Clients that connect all the time and request one file each.
struct Flood<'a> {
    address: SocketAddr,
    /// The clients' namespace; `None` is this one.
    namespace: Option<&'a NetworkNamespace>,
    /// Connections without an answer to their SYN.
    pending: Vec<OwnedFd>,
    /// Established connections with a request under way.
    asked: Vec<OwnedFd>,
    /// Responses to clients whose connections are closed.
    answers: Vec<Response>,
}

impl<'a> Flood<'a> {
    fn new(address: SocketAddr) -> Flood<'a> {
        sys::process::descriptors::raise_limit(u64::MAX);
        Flood { address, namespace: None, pending: Vec::new(), asked: Vec::new(), answers: Vec::new() }
    }

    fn from(namespace: &'a NetworkNamespace, address: SocketAddr) -> Flood<'a> {
        Flood { namespace: Some(namespace), ..Flood::new(address) }
    }

    /// Reads the responses that have come, tries some more connections, and drops the oldest that have no answer.
    fn go_on(&mut self) {
        // All tests of this process share its descriptors.
        self.answers.extend(self.asked.extract_if(.., |socket| has_bytes(socket)).map(response));
        let new = || (0..AT_A_TIME).map(|_| connecting(self.address, None)).collect::<Vec<_>>();
        self.pending.extend(self.namespace.map_or_else(new, |namespace| namespace.enter(new).unwrap()));
        let request = format!("GET {} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", Files::SMALL.0);
        let ask =
            |socket: &mut OwnedFd| rustix::net::send(socket, request.as_bytes(), SendFlags::NOSIGNAL).is_ok();
        self.asked.extend(self.pending.extract_if(.., ask));
        self.pending.drain(..self.pending.len().saturating_sub(MOST_PENDING));
    }

    /// Drops the connections without a request. The server may have accepted some since, and a worker of `mp` or `mt`
    /// would wait for their requests until a timeout.
    fn rest(&mut self) {
        self.pending.clear();
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

    /// Ends the flood. Returns the responses to the admitted clients.
    fn end(self) -> impl Iterator<Item = Response> {
        self.answers.into_iter().chain(self.asked.into_iter().map(response))
    }
}

/// Returns true if the peer has sent something.
fn has_bytes(socket: &OwnedFd) -> bool {
    rustix::net::recv(socket, &mut [0], RecvFlags::PEEK).is_ok_and(|(_, length)| length > 0)
}

/// The response on a connection with a request under way.
fn response(socket: OwnedFd) -> Response {
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false).unwrap();
    Client::over(stream).response()
}

/// A socket that sends its SYN, perhaps from an address of its own.
fn connecting(address: SocketAddr, source: Option<&str>) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).unwrap();
    if let Some(source) = source {
        rustix::net::bind(&socket, &source.parse::<SocketAddr>().unwrap()).unwrap();
    }
    let _ = rustix::net::connect(&socket, &address);
    socket
}

/// The flag that exempts the probe, which asks from another address than the flood.
const EXEMPT: &str = "--client-exempt=127.0.1.0/24";

/// The first response to a client at the exempt address. No hook may have refused its SYN: it was sent again only if the
/// kernel dropped SYNs at a full accept queue.
fn probe(server: &mut Server) -> Response {
    let dropped = sum(&server.status(), "dropped");
    let socket = connecting(server.address, Some("127.0.1.1:0"));
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false).unwrap();
    let mut client = Client::over(stream.try_clone().unwrap());
    let response = client.get(Files::SMALL.0);
    if sys::socket::sent_again(stream.as_fd()).unwrap() > 0 {
        println!("the probe met a full accept queue");
        assert!(sum(&server.status(), "dropped") > dropped, "a hook refused the probe's SYN");
    }
    response
}

/// Asserts that an admitted client was answered: with the file, or with a 503 if it had waited for too long.
fn assert_answered(response: &Response) {
    match response.status {
        503 => assert_eq!(response.field("retry-after"), Some("1")),
        status => assert_eq!(status, 200),
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
fn sink_refuses_a_flood_and_admitted_get_answers() {
    let files = Files::new();
    for flags in [
        &["--arch=sped"][..],
        &["--arch=sped", "--dispatch=epoll-et"],
        &["--arch=sped", "--listen=[::1]:0", "--accept-limit=inf"],
        &["--arch=sped", "--driver=completion", "--accept-limit=inf"],
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
        let mut server = Server::start_with_control(&files.root(), &[flags, &[SLOW, SINK]].concat());
        assert!(server.said.contains("or are refused by the sink\n"), "{}", server.said);
        let mut flood = Flood::new(server.address);
        let status = flood.until(&mut server, "refused", |status| sum(status, "refused") > 100);
        assert!(
            queues(&status)
                .iter()
                .any(|queue| queue["service_rate_per_s"].as_f64().is_some_and(|rate| rate > 0.0))
        );
        assert!(server.says().contains("overload: refusing connections; "));
        for response in flood.end() {
            assert_answered(&response);
        }
        server.eventually("over", all_open);
        assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        let (code, said) = server.stop();
        assert!(code == Some(0) && said.contains("overload over after "), "{said}");
    }
}

/// Probes while a flood is being refused, on the kind of refusal that the server was started with.
fn check_probes(mut server: Server) {
    let mut flood = Flood::new(server.address);
    for _ in 0..20 {
        let before = sum(&server.status(), "refused");
        flood.until(&mut server, "refused", |status| {
            !all_open(status) && sum(status, "refused") > before + 20
        });
        flood.rest();
        assert_eq!(probe(&mut server).status, 200);
        let stream = TcpStream::connect(server.admin_address).unwrap();
        assert_eq!(Client::over(stream.try_clone().unwrap()).get("/metrics").status, 200);
        assert_eq!(
            sys::socket::sent_again(stream.as_fd()).unwrap(),
            0,
            "the admin interface has a queue of its own"
        );
    }
    drop(flood);
    server.eventually("over", all_open);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn exempt_probe_is_answered_while_strangers_are_not() {
    let files = Files::new();
    for flags in [
        &["--arch=sped"][..],
        &["--arch=sped", "--driver=completion"],
        &["--arch=per-core", "--workers=2"],
        &["--arch=mp", "--workers=2"],
        &["--arch=smped", "--smped=initial=2,p-min=2,p-max=2,c-max=8"],
        &["--arch=mt", "--workers=2"],
        &["--arch=knot-a"],
    ] {
        println!("{flags:?}");
        check_probes(Server::start_with_control(&files.root(), &[flags, &[SLOW, SINK, EXEMPT]].concat()));
    }
}

#[test]
fn exempt_probe_passes_the_programs_on_devices() {
    for hook in ["tc", "xdp"] {
        beside_clients(|_| {
            let files = Files::new();
            if let Some(server) = start_with(hook, &files, &["--arch=sped", EXEMPT]) {
                check_probes(server);
            }
        });
    }
}

#[test]
fn exempt_request_that_has_waited_is_answered() {
    let files = Files::new();
    for flags in [
        &["--arch=sped"][..],
        &["--arch=sped", "--driver=completion"],
        &["--arch=smped", "--smped=initial=2,p-min=2,p-max=2,c-max=8"],
        &["--arch=mp", "--workers=2"],
        &["--arch=mt", "--workers=2"],
        &["--arch=knot-c", "--workers=2"],
    ] {
        println!("{flags:?}");
        let all = [flags, &[SLOW, SINK, "--queue-target=1ms", "--client-exempt=127.0.0.0/8"]].concat();
        let mut server = Server::start_with_control(&files.root(), &all);
        let mut flood = Flood::new(server.address);
        // Their SYNs are counted as offered, and none is refused.
        flood.until(&mut server, "shedding", |status| !all_open(status));
        for _ in 0..100 {
            flood.go_on();
        }
        assert!(flood.end().all(|response| response.status == 200));
        let status = server.eventually("over", all_open);
        assert_eq!((sum(&status, "refused"), status.count("refused_late")), (0, 0));
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn below_the_capacity_nothing_is_refused() {
    let files = Files::new();
    for flags in [&["--arch=sped"][..], &["--arch=mt", "--workers=2"], &["--arch=mp", "--workers=2"]] {
        println!("{flags:?}");
        let mut server =
            Server::start_with_control(&files.root(), &[flags, &["--queue-target=5ms", SINK]].concat());
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
    let mut server = Server::start_with_control(&files.root(), &["--arch=sped", SLOW, SINK]);
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
fn overload_off_attaches_and_says_nothing() {
    let files = Files::new();
    let start =
        |flags: &[&str]| Server::start_with_control(&files.root(), &[&["--arch=sped", SLOW], flags].concat());
    let (mut with, mut without) = (start(&[SINK]), start(&["--overload=off"]));
    // The difference is the sink.
    assert_eq!(with.sockets(), without.sockets() + 1);
    assert!(!without.said.contains("overload"), "{}", without.said);
    assert!(!without.admin.get("/metrics").text().contains("inrush_overload"));
    assert!(with.status().0["overload"].is_object() && without.status().0["overload"].is_null());
    let mut flood = Flood::new(without.address);
    (0..50).for_each(|_| flood.go_on());
    let status = without.status();
    for response in flood.end() {
        assert_eq!(response.status, 200);
    }
    assert_eq!(status.0["queue"]["drops"], 0);
    without.stop_well();
    with.stop_well();
}

/// The server's address on the veth pair, and its device.
const VETH: (Ipv4Addr, &str) = (Ipv4Addr::new(10, 83, 0, 1), "veth0");

/// Runs a test in a namespace that has a veth pair to another, which it is given, or prints why it cannot.
fn beside_clients(test: impl FnOnce(&NetworkNamespace) + Send) {
    let make = || {
        let made = NetworkNamespace::create();
        made.inspect_err(|error| println!("skipped: no network namespaces here: {error}")).ok()
    };
    let (Some(here), Some(clients)) = (make(), make()) else { return };
    let mut route = here.enter(Route::open).unwrap().unwrap();
    route.create_veth(VETH.1, clients.as_fd(), VETH.1).unwrap();
    for (namespace, address) in [(&here, VETH.0), (&clients, Ipv4Addr::new(10, 83, 0, 2))] {
        let mut route = namespace.enter(Route::open).unwrap().unwrap();
        let link = route.link_index(VETH.1).unwrap();
        route.add_address(link, address, 24).unwrap();
        route.set_up(link).unwrap();
        route.set_up(1).unwrap();
    }
    here.enter(|| test(&clients)).unwrap();
}

/// A server with a hook on its devices, or the printed reason why there is none.
fn start_with(hook: &str, files: &Files, flags: &[&str]) -> Option<Server> {
    let hook = format!("--overload-hook={hook}");
    let server = Server::start_with_control(&files.root(), &[&[hook.as_str(), SLOW], flags].concat());
    match server.said.lines().find(|line| line.starts_with("inrush: --overload-hook ")) {
        Some(reason) => {
            println!("skipped: {reason}");
            None
        }
        None => Some(server),
    }
}

/// Returns true if a connection is complete by its first SYN. A client sends a refused one again.
fn connects(from: &NetworkNamespace, address: SocketAddr) -> bool {
    let connected = from.enter(|| TcpStream::connect_timeout(&address, crate::common::PATIENCE)).unwrap();
    connected.is_ok_and(|stream| sys::socket::sent_again(stream.as_fd()).unwrap() == 0)
}

#[test]
fn device_hook_refuses_a_flood_and_nothing_else() {
    for (hook, says) in [("tc", "are refused by tc on lo, tc on veth0"), ("xdp", "on veth0")] {
        for flags in
            [&["--arch=sped"][..], &["--arch=per-core", "--workers=2"], &["--arch=mp", "--workers=2"]]
        {
            beside_clients(|clients| {
                let files = Files::new();
                println!("{hook} {flags:?}");
                let listen = format!("--listen={}:8083", VETH.0);
                let Some(mut server) = start_with(hook, &files, &[flags, &[&listen]].concat()) else {
                    return;
                };
                assert!(server.said.contains(says), "{}", server.said);
                let address = SocketAddr::from((VETH.0, 8083));
                let other = TcpListener::bind((VETH.0, 0)).unwrap();
                let mut flood = Flood::from(clients, address);
                let status = flood.until(&mut server, "refused", |status| sum(status, "refused") > 100);
                let shown = &status.0["overload"];
                assert_eq!(shown["hook"], if hook == "tc" { "tc" } else { "XDP" });
                assert_eq!(shown["devices"].as_array().unwrap().len(), 2, "{shown}");
                assert!(queues(&status).iter().any(|queue| queue["share"].as_f64().unwrap() < 1.0));
                assert!((0..5).all(|_| connects(clients, other.local_addr().unwrap())), "another port");
                let samples = samples(server.admin.get("/metrics").text());
                assert!(samples.iter().any(|(name, value)| {
                    name.starts_with("inrush_overload_refused_total") && *value > 100.0 / 2.0
                }));
                for response in flood.end() {
                    assert_answered(&response);
                }
                server.eventually("over", all_open);
                assert_eq!(server.stop().0, Some(0));
            });
        }
    }
}

#[test]
fn device_made_after_the_start_refuses_too() {
    // A program that was loaded with rights is attached without them.
    let user = crate::confinement::user_flags();
    for (hook, user) in [("tc", None), ("xdp", None), ("tc", user.first()), ("xdp", user.first())] {
        beside_clients(|clients| {
            let files = Files::new();
            let flags = ["--arch=sped", "--listen=0.0.0.0:8083"].into_iter().chain(user.map(String::as_str));
            let Some(mut server) = start_with(hook, &files, &flags.collect::<Vec<_>>()) else { return };
            let (device, ours, theirs) = ("veth1", Ipv4Addr::new(10, 84, 0, 1), Ipv4Addr::new(10, 84, 0, 2));
            let mut here = Route::open().unwrap();
            here.create_veth(device, clients.as_fd(), device).unwrap();
            let mut there = clients.enter(Route::open).unwrap().unwrap();
            for (route, address) in [(&mut here, ours), (&mut there, theirs)] {
                let link = route.link_index(device).unwrap();
                route.add_address(link, address, 24).unwrap();
                route.set_up(link).unwrap();
            }
            let shown = |status: &Status| status.0["overload"]["devices"].as_array().unwrap().len() == 3;
            server.eventually("followed", shown);
            let mut flood = Flood::from(clients, (ours, 8083).into());
            flood.until(&mut server, "refused", |status| sum(status, "refused") > 100);
            drop(flood);
            server.eventually("over", all_open);
            let (code, said) = server.stop();
            let line = format!("inrush: overload control: {device} is new, and has ");
            assert!(code == Some(0) && said.contains(&line), "{said}");
        });
    }
}

#[test]
fn requests_that_have_waited_for_too_long_are_refused() {
    let files = Files::new();
    for flags in [
        &["--arch=sped"][..],
        &["--arch=sped", "--driver=completion"],
        &["--arch=smped"],
        &["--arch=mp", "--workers=2"],
        &["--arch=mp", "--processes=per-connection"],
        &["--arch=mt", "--workers=2"],
        &["--arch=knot-c", "--workers=2"],
        &["--arch=knot-a"],
    ] {
        println!("{flags:?}");
        // 64 connections of 1 ms may wait, and a request is too late after ten targets.
        let mut server =
            Server::start_with_control(&files.root(), &[flags, &[SLOW, SINK, "--queue-target=1ms"]].concat());
        let mut flood = Flood::new(server.address);
        flood.until(&mut server, "too late", |status| status.count("refused_late") > 10);
        let late = flood.end().inspect(assert_answered);
        assert!(late.filter(|response| response.status == 503).count() > 10);
        server.eventually("over", all_open);
        assert_eq!(server.client().get(Files::SMALL.0).status, 200);
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn idle_connections_end_earlier_while_shedding() {
    let files = Files::new();
    for flags in [&["--arch=sped"][..], &["--arch=sped", "--driver=completion"]] {
        println!("{flags:?}");
        let limits =
            [SINK, "--burn=5ms", "--queue-target=50ms", "--max-connections=200", "--header-timeout=1h"];
        let mut server = Server::start_with_control(&files.root(), &[flags, &limits].concat());
        let asked = |mut client: Client| {
            assert_eq!(client.get(Files::SMALL.0).status, 200);
            client
        };
        // A client in the middle of a request is not idle, however long the rush takes to begin.
        let mut clients: Vec<Client> = (0..160).map(|_| asked(server.client())).collect();
        clients.iter_mut().for_each(|client| client.send(format!("GET {} HTTP/1.1\r\n", Files::SMALL.0)));
        let mut flood = Flood::new(server.address);
        flood.until(&mut server, "shedding", |status| !all_open(status));
        // At three quarters of the connection limit every response is the last of its connection.
        let is_last = |client: &mut Client| {
            flood.go_on();
            client.send("Host: localhost\r\n\r\n");
            let response = client.response();
            assert_answered(&response);
            response.says_close()
        };
        assert!(clients.iter_mut().any(is_last), "no response says that it is the last");
        drop((flood, clients));
        server.eventually("over", |status| all_open(status) && status.connections() == 0);
        let _idle: Vec<Client> = (0..140).map(|_| asked(server.client())).collect();
        let mut flood = Flood::new(server.address);
        flood.until(&mut server, "reclaimed", |status| status.count("reclaimed") > 20);
        drop(flood);
        server.eventually("over", all_open);
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn a_flood_over_ipv6_is_refused_in_traffic_control() {
    beside_clients(|_| {
        let files = Files::new();
        let Some(mut server) = start_with("tc", &files, &["--arch=sped", "--listen=[::1]:8083"]) else {
            return;
        };
        let mut flood = Flood::new("[::1]:8083".parse().unwrap());
        flood.until(&mut server, "refused", |status| sum(status, "refused") > 100);
        drop(flood);
        server.eventually("over", all_open);
        assert_eq!(server.stop().0, Some(0));
    });
}

#[test]
fn killed_server_leaves_no_program_on_devices() {
    beside_clients(|clients| {
        let files = Files::new();
        let everywhere = |port: u16| format!("--listen=0.0.0.0:{port}");
        let start = |port| start_with("tc", &files, &["--arch=sped", &everywhere(port)]);
        let (Some(mut first), Some(mut second)) = (start(8083), start(8084)) else { return };
        let address = |port: u16| SocketAddr::from((VETH.0, port));
        let mut flood = Flood::from(clients, address(8083));
        let few = |status: &Status| queues(status)[0]["share"].as_f64().unwrap() < 0.5;
        flood.until(&mut first, "refused", few);
        first.signal(Signal::KILL);
        drop((flood, first));
        // A program that stayed would go on refusing SYNs to this port: nobody is left to tell it otherwise.
        let listener = TcpListener::bind(address(8083)).unwrap();
        assert!((0..50).all(|_| connects(clients, listener.local_addr().unwrap())));
        let mut flood = Flood::from(clients, address(8084));
        flood.until(&mut second, "refused", |status| sum(status, "refused") > 100);
        drop(flood);
        second.eventually("over", all_open);
        assert_eq!(second.stop().0, Some(0));
    });
}

/// Checks the hook that a server has chosen, and the line that says so without alarm.
#[track_caller]
fn check_chosen(mut server: Server, hook: &str, line: &str) {
    assert!(server.said.contains(line) && !server.said.contains("inrush: "), "{}", server.said);
    assert_eq!(server.status().0["overload"]["hook"], hook);
    server.stop_well();
}

#[test]
fn hook_is_the_sink_without_capabilities() {
    let files = Files::new();
    let server = Server::start_without_capabilities(&files.root(), &["--arch=sped"]);
    let line = "or are refused by the sink, because tc needs CAP_BPF and CAP_NET_ADMIN\n";
    check_chosen(server, "sink", line);
}

#[test]
fn hook_is_tc_where_its_program_may_be_loaded() {
    beside_clients(|_| {
        let files = Files::new();
        if start_with("tc", &files, &[]).map(Server::stop_well).is_none() {
            return;
        }
        let server = Server::start_with_control(&files.root(), &["--arch=sped"]);
        check_chosen(server, "tc", "or are refused by tc on lo, because this process may load it\n");
    });
}

#[test]
fn missing_hook_is_named_and_the_sink_refuses() {
    let files = Files::new();
    for hook in ["tc", "xdp"] {
        let flag = format!("--overload-hook={hook}");
        let mut server = Server::start_without_capabilities(&files.root(), &["--arch=sped", &flag]);
        let lines: Vec<&str> = server.said.lines().filter(|line| line.contains("--overload-hook")).collect();
        let needs = "needs CAP_BPF and CAP_NET_ADMIN, and this process lacks both: ";
        assert!(lines.len() == 1 && lines[0].contains(needs), "{}", server.said);
        assert!(lines[0].ends_with("; using the sink"), "{}", server.said);
        assert!(server.said.contains("or are refused by the sink"), "{}", server.said);
        assert_eq!(server.status().0["overload"]["hook"], "sink");
        server.stop_well();
    }
}
