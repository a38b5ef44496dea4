//! Limits of each client, and the PROXY protocol that tells who the client is.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use base::{Clock, Nanos, RealClock};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use sys::process::{Program, Streams, find_program};

use super::architectures::on_every_architecture;
use super::tls::{self, Identity};
use crate::common::{Client, Files, PATIENCE, Response, Server, check_metrics, pattern, pause};

/// Runs a test on every architecture that has limits of clients.
fn on_every_architecture_with_limits(test: impl Fn(&[&str])) {
    on_every_architecture(|flags| {
        if !["--arch=mp", "--arch=smped"].contains(&flags[0]) {
            test(flags);
        }
    });
}

/// A socket with an address of the loopback network.
fn socket_from(address: &str) -> OwnedFd {
    let own: SocketAddr = format!("{address}:0").parse().unwrap();
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP)).unwrap();
    rustix::net::bind(&socket, &own).unwrap();
    socket
}

/// Connects from an address of the loopback network.
fn client_from(address: &str, server: &Server) -> Client {
    let socket = socket_from(address);
    rustix::net::connect(&socket, &server.address).unwrap();
    Client::over(TcpStream::from(socket))
}

fn small(client: &mut Client) -> Response {
    client.get(Files::SMALL.0)
}

fn assert_served(client: &mut Client) {
    let response = small(client);
    assert_eq!((response.status, response.body), (200, pattern(Files::SMALL.1)));
}

fn assert_refused(client: &mut Client) {
    let response = small(client);
    assert_eq!(
        (response.status, response.field("retry-after"), response.says_close()),
        (429, Some("1"), true),
        "{response:?}"
    );
    assert!(client.ends());
}

/// A header of the PROXY protocol, version 2, for a client with this last number in its address.
fn header(number: u8) -> Vec<u8> {
    let addresses = [192, 0, 2, number, 192, 0, 2, 1, 1, 2, 0, 80];
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat()
}

const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// A connection that a proxy has made for a client.
fn proxied(number: u8, server: &Server) -> Client {
    let mut client = server.client();
    client.send(header(number));
    client
}

#[test]
fn network_rules_hold_on_every_architecture() {
    let files = Files::new();
    on_every_architecture(|flags| {
        let rules = ["--access=/* allow 127.0.0.2", "--access=/* deny all"];
        let server = Server::start(&files.root(), &[flags, &rules].concat());
        assert_served(&mut client_from("127.0.0.2", &server));
        assert_eq!(small(&mut client_from("127.0.0.3", &server)).status, 403);
        server.stop_well();
    });
}

#[test]
fn client_at_its_most_connections_gets_429() {
    let files = Files::new();
    on_every_architecture_with_limits(|flags| {
        let flags = [flags, &["--client-connections=3", "--client-exempt=127.0.1.0/24"]].concat();
        let mut server = Server::start(&files.root(), &flags);
        let mut held: Vec<Client> = (0..3).map(|_| client_from("127.0.0.2", &server)).collect();
        held.iter_mut().for_each(assert_served);
        for _ in 0..2 {
            assert_refused(&mut client_from("127.0.0.2", &server));
        }
        assert_served(&mut client_from("127.0.0.3", &server));
        let mut exempt: Vec<Client> = (0..5).map(|_| client_from("127.0.1.1", &server)).collect();
        exempt.iter_mut().for_each(assert_served);
        held.iter_mut().for_each(assert_served);
        let status = server.eventually("two refused", |status| status.count("limit_client_connections") == 2);
        assert_eq!(status.count("turned_away"), 0);
        drop(exempt);
        held.pop();
        server.eventually("seven closed", |status| status.count("closed") == 7);
        assert_served(&mut client_from("127.0.0.2", &server));
        drop(held);
        // Threads count what they have accepted once it has ended. Refused connections are none of those.
        server.eventually("ten accepted", |status| status.count("closed") == 10);
        assert_eq!(server.status().count("accepts"), 10);
        server.stop_well();
    });
}

#[test]
fn a_client_that_comes_too_often_is_answered_429() {
    let files = Files::new();
    let clock = RealClock::new();
    on_every_architecture_with_limits(|flags| {
        // Before the start, because a loop may decide by a time that it read before the first client came.
        let (began, asked) = (clock.now(), 40);
        let mut server = Server::start(&files.root(), &[flags, &["--client-rate=2"]].concat());
        let statuses: Vec<u16> =
            (0..asked).map(|_| small(&mut client_from("127.0.0.2", &server)).status).collect();
        // The burst, and what the time since then has paid for.
        let most = 2 + 2 * (clock.now() - began).0 / Nanos::SECOND.0;
        let admitted = statuses.iter().filter(|status| **status == 200).count() as u64;
        assert!((2..=most).contains(&admitted), "{admitted} of {most}: {statuses:?}");
        assert!(statuses[..2] == [200, 200] && statuses.iter().all(|status| [200, 429].contains(status)));
        let refused = asked - admitted;
        server.eventually("all refused", |status| status.count("limit_client_rate") == refused);
        assert_served(&mut client_from("127.0.0.3", &server));
        let page = server.admin.get("/metrics");
        check_metrics(page.text());
        assert!(page.text().contains(&format!("inrush_limit_client_rate_total {refused}\n")));
        server.stop_well();
    });
}

#[test]
fn silent_refused_clients_leave_room_for_others() {
    let files = Files::new();
    let flags = ["--arch=sped", "--client-connections=1", "--max-connections=2"];
    let mut server = Server::start(&files.root(), &flags);
    let mut held = client_from("127.0.0.2", &server);
    assert_served(&mut held);
    // More than are answered or wait for an answer at once.
    let silent: Vec<OwnedFd> = (0..700).map(|_| socket_from("127.0.0.2")).collect();
    for socket in &silent {
        // On a busy machine the server has reset some before the call returns.
        let _ = rustix::net::connect(socket, &server.address);
    }
    let status = server.eventually("all refused", |status| status.count("limit_client_connections") == 700);
    assert_eq!((status.connections(), status.count("reclaimed")), (1, 0));
    for turn in 1..=3 {
        assert_served(&mut client_from("127.0.0.3", &server));
        // Otherwise the held connection, which is idle, would make room for the next one.
        server.eventually("it has left", |status| status.count("closed") == turn);
    }
    assert_served(&mut held);
    drop((silent, held));
    server.stop_well();
}

#[test]
fn under_tls_a_refused_client_costs_no_handshake() {
    let files = Files::new();
    let identity = Identity::new(&files, "a", &["localhost"]);
    let flags =
        ["--arch=per-core", "--workers=2", "--client-connections=1", "--proxy-protocol-from=127.0.0.9"];
    let mut server = tls::start(&files, &[&identity], &flags);
    let held = client_from("127.0.0.2", &server);
    server.eventually("in", |status| status.count("accepts") == 1);
    assert!(client_from("127.0.0.2", &server).ends());
    let mut told = client_from("127.0.0.9", &server);
    told.send(header(7));
    server.eventually("told", |status| status.count("proxy_headers") == 1);
    let mut second = client_from("127.0.0.9", &server);
    second.send([&header(7)[..], b"\x16\x03\x01"].concat());
    assert!(second.ends());
    let status = server.eventually("both", |status| status.count("client_refusals_unanswered") == 2);
    assert_eq!((status.count("limit_client_connections"), status.count("tls_handshakes_begun")), (2, 0));
    drop((held, told));
    server.stop_well();
}

#[test]
fn proxied_client_is_logged_on_every_architecture() {
    let files = Files::new();
    let log = files.beside("access.log");
    let log_flag = format!("--access-log={}", log.display());
    on_every_architecture(|flags| {
        let _ = fs::remove_file(&log);
        let flags = [flags, &["--proxy-protocol-from=127.0.0.0/31", &log_flag]].concat();
        let mut server = Server::start(&files.root(), &flags);
        let mut whole = server.client();
        whole.send([&header(7)[..], b"GET /small.bin?1 HTTP/1.1\r\nHost: x\r\n\r\n"].concat());
        assert_eq!(whole.response().status, 200);
        assert_eq!(whole.get("/small.bin?2").status, 200);
        let mut pieces = server.client();
        for piece in header(8).chunks(9) {
            pieces.send(piece);
            server.status();
        }
        assert_eq!(pieces.get("/small.bin?3").status, 200);
        let mut own = server.client();
        own.send(LOCAL);
        assert_eq!(own.get("/small.bin?4").status, 200);
        // From other addresses there is no header, and none is believed.
        assert_eq!(client_from("127.0.0.2", &server).get("/small.bin?5").status, 200);
        let mut liar = client_from("127.0.0.2", &server);
        liar.send(header(9));
        assert_eq!(liar.response().status, 400);
        let status = server.eventually("three headers", |status| status.count("proxy_headers") == 3);
        assert_eq!((status.count("proxy_malformed"), status.count("proxy_version_1")), (0, 0));
        drop((whole, pieces, own, liar));
        server.stop_well();
        let text = fs::read_to_string(&log).unwrap();
        let client_of = |target: &str| {
            let line = text.lines().find(|line| line.contains(target)).unwrap_or_else(|| panic!("{text}"));
            line.split(' ').next().unwrap().to_owned()
        };
        let clients = ["?1 ", "?2 ", "?3 ", "?4 ", "?5 "].map(client_of);
        assert_eq!(clients, ["192.0.2.7", "192.0.2.7", "192.0.2.8", "127.0.0.1", "127.0.0.2"]);
        assert!(!text.contains("192.0.2.9"));
    });
}

#[test]
fn proxy_without_header_is_cut_off_everywhere() {
    let files = Files::new();
    on_every_architecture(|flags| {
        let mut server =
            Server::start(&files.root(), &[flags, &["--proxy-protocol-from=127.0.0.1"]].concat());
        let ends = |bytes: &[u8]| {
            let mut client = server.client();
            client.send(bytes);
            client.ends()
        };
        assert!(ends(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert!(ends(&[&LOCAL[..14], b"\xff\xff"].concat()));
        assert!(ends(b"PROXY TCP4 192.0.2.7 192.0.2.1 258 80\r\n"));
        let status = server.eventually("all ended", |status| status.count("closed") == 3);
        assert_eq!((status.count("proxy_malformed"), status.count("proxy_version_1")), (2, 1));
        assert_eq!((status.count("timeouts_header"), status.count("proxy_headers")), (0, 0));
        server.stop_well();
    });
}

#[test]
fn part_of_a_proxy_header_ends_at_the_header_timeout() {
    let files = Files::new();
    on_every_architecture(|flags| {
        let flags = [flags, &["--proxy-protocol-from=127.0.0.1", "--header-timeout=200ms"]].concat();
        let mut server = Server::start(&files.root(), &flags);
        let mut client = server.client();
        client.send(&header(7)[..20]);
        assert!(client.ends());
        let status = server.eventually("ended", |status| status.count("closed") == 1);
        assert_eq!((status.count("timeouts_header"), status.count("proxy_headers")), (1, 0));
        server.stop_well();
    });
}

#[test]
fn behind_a_proxy_the_limits_are_those_of_its_clients() {
    let files = Files::new();
    on_every_architecture_with_limits(|flags| {
        let flags = [flags, &["--proxy-protocol-from=127.0.0.1", "--client-connections=2"]].concat();
        let mut server = Server::start(&files.root(), &flags);
        let mut held = [proxied(7, &server), proxied(7, &server)];
        held.iter_mut().for_each(assert_served);
        assert_refused(&mut proxied(7, &server));
        assert_served(&mut proxied(8, &server));
        // The proxy's own connections have no limit.
        let mut own: Vec<Client> = (0..4).map(|_| server.client()).collect();
        own.iter_mut().for_each(|client| {
            client.send(LOCAL);
            assert_served(client);
        });
        server.eventually("one refused", |status| status.count("limit_client_connections") == 1);
        let [first, _second] = held;
        drop((first, own));
        server.eventually("seven closed", |status| status.count("closed") == 7);
        assert_served(&mut proxied(7, &server));
        server.stop_well();
    });
}

#[test]
fn proxied_client_is_known_for_a_refusal() {
    let files = Files::new();
    let one_worker = "--smped=p-min=1,initial=1,p-max=1";
    for architecture in [
        &["--arch=sped"][..],
        &["--arch=smped", one_worker],
        &["--arch=smped", one_worker, "--handoff=kernel"],
    ] {
        let flags = [architecture, &["--proxy-protocol-from=127.0.0.1", "--max-connections=1"]].concat();
        let mut server = Server::start(&files.root(), &flags);
        let mut busy = proxied(7, &server);
        busy.send("GET / HTTP/1.1\r\n");
        server.eventually("a part of a request", |status| status.count("received_bytes") == 16);
        assert_eq!(small(&mut proxied(8, &server)).status, 503);
        busy.send("Host: x\r\n\r\n");
        assert_eq!(busy.response().status, 200);
        server.eventually_of("both headers, and one turned away", |server| {
            // A worker shows the counts of those that it has turned away when it shows its own.
            assert_served(&mut busy);
            let counts = ["proxy_headers", "turned_away", "proxy_malformed"];
            counts.map(|name| server.status().count(name)) == [2, 1, 0]
        });
        drop(busy);
        server.stop_well();
    }
}

/// Sends a request over a connection of its own to HAProxy. Returns the answer.
fn ask(door: &Path, path: &str) -> String {
    let mut socket = UnixStream::connect(door).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// HAProxy in front of a server. It names the same client for every connection, and adds TLVs.
fn haproxy(files: &Files, program: &Path, server: &Server, tls: &str) -> sys::process::Child {
    let _ = fs::remove_file(files.beside("door"));
    let config = files.beside("haproxy.cfg");
    let text = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend door\n bind unix@{}\n http-request set-src str(192.0.2.77)\n http-request set-dst str(192.0.2.1)\n default_backend sites\n\
         backend sites\n server one {} send-proxy-v2 proxy-v2-options crc32c,unique-id {tls}\n",
        files.beside("door").display(),
        server.address
    );
    fs::write(&config, text).unwrap();
    let program = Program::new(program).arguments(["-db".as_ref(), "-f".as_ref(), config.as_os_str()]);
    let child = program.with_streams(Streams::Output).start().unwrap();
    for _ in 0..PATIENCE.as_millis() / 20 {
        if UnixStream::connect(files.beside("door")).is_ok() {
            return child;
        }
        pause(Nanos::from_millis(20));
    }
    panic!("HAProxy never listened");
}

#[test]
fn haproxy_names_the_client_before_http_and_tls() {
    let Some(program) = find_program("haproxy") else { return println!("skipped: haproxy is not on PATH") };
    let files = Files::new();
    let identity = Identity::new(&files, "a", &["localhost"]);
    let log = files.beside("access.log");
    let flags = ["--proxy-protocol-from=127.0.0.1", &format!("--access-log={}", log.display())];
    for (identities, to_server) in [(&[][..], ""), (&[&identity][..], "ssl verify none")] {
        let mut server = tls::start(&files, identities, &flags);
        let balancer = haproxy(&files, &program, &server, to_server);
        let answer = ask(&files.beside("door"), "/small.bin?door");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        server.eventually("a header, and a handshake under TLS", |status| {
            let handshakes = status.count("tls_handshakes_full");
            (status.count("proxy_headers"), handshakes) == (1, identities.len() as u64)
        });
        drop(balancer);
        server.stop_well();
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.lines().any(|line| line.starts_with("192.0.2.77 ") && line.contains("?door")), "{text}");
        fs::remove_file(&log).unwrap();
    }
}
