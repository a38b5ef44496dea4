//! The number of connections accepted at once, and the order of serving them (Brecht 2004, section 3).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use crate::common::{Client, Files, Server, Status, on_every_mechanism};

const QUEUED: u64 = 25;

/// Lets connections queue up while the server is stopped. Returns the number of accept phases that the server
/// then takes.
fn phases_for_a_full_queue(server: &mut Server) -> u64 {
    let before = server.status();
    let address = server.address;
    let accepted = |status: &Status| status.count("accepts") - before.count("accepts");
    let clients: Vec<Client> =
        server.while_stopped(|| (0..QUEUED).map(|_| Client::connect(address)).collect());
    let after = server.eventually("all accepted", |status| accepted(status) == QUEUED);
    drop(clients);
    server.eventually("all closed", |status| status.connections() == before.connections());
    after.count("accept_phases") - before.count("accept_phases")
}

fn set_limit(server: &mut Server, limit: &str) {
    server.admin.send(format!(
        "PUT /accept-limit HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{limit}",
        limit.len()
    ));
    let response = server.admin.response();
    assert_eq!((response.status, response.text()), (200, &*format!("{limit}\n")));
    // A completion loop that sleeps has accepts of the old limit in flight. The next connection wakes it.
    let before = server.status();
    drop(server.client());
    server.eventually("accepted and closed", |status| {
        status.count("accepts") > before.count("accepts") && status.connections() == before.connections()
    });
}

#[test]
fn a_phase_accepts_as_many_as_the_limit_says() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &["--accept-limit=1"]);
        for (limit, phases) in [("1", 25), ("10", 3), ("24", 2), ("7", 4), ("inf", 1), ("1", 25)] {
            set_limit(&mut server, limit);
            assert_eq!(server.status().0["accept_limit"], limit);
            let took = phases_for_a_full_queue(&mut server);
            assert_eq!(took, phases, "limit {limit}");
        }
        server.stop_well();
    });
}

#[test]
fn a_small_limit_is_shared_by_all_addresses() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let flags = ["--accept-limit=1", "--listen=127.0.0.1:0"];
        let mut server = Server::sped(&files.root(), mechanism, &flags);
        let second = server.said.lines().filter_map(|line| line.strip_prefix("listening on ")).nth(1);
        let addresses: [SocketAddr; 2] = [server.address, second.unwrap().parse().unwrap()];
        let clients: Vec<Client> =
            server.while_stopped(|| (0..QUEUED).flat_map(|_| addresses).map(Client::connect).collect());
        let status = server.eventually("all accepted", |status| status.count("accepts") == 2 * QUEUED);
        assert!(status.count("accept_phases") >= 2 * QUEUED);
        drop(clients);
        server.stop_well();
    });
}

/// Accepts a queue of connections whose requests have arrived already. Returns the number of reported events.
fn events_for_waiting_requests(server: &mut Server) -> u64 {
    let before = server.status();
    let address = server.address;
    let mut clients: Vec<Client> = server.while_stopped(|| {
        let connect = |_| {
            let mut client = Client::connect(address);
            client.send_get(Files::SMALL.0, "");
            client
        };
        (0..QUEUED).map(connect).collect()
    });
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    let after = server.eventually("all counted", |status| status.count("requests") == QUEUED);
    after.count("events") - before.count("events")
}

#[test]
fn only_what_this_wait_reported_is_served() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        // Each connection needs an event of its own, although its request was there before it was accepted.
        let mut server = Server::sped(&files.root(), mechanism, &["--accept-limit=inf"]);
        assert!(events_for_waiting_requests(&mut server) > QUEUED);
        server.stop_well();
    });
    let at_once = ["--accept-limit=inf", "--read-after-accept"];
    let mut server = Server::sped(&files.root(), "epoll", &at_once);
    assert_eq!(events_for_waiting_requests(&mut server), 1);
    server.stop_well();
}

#[test]
fn every_mechanism_makes_room_at_the_connection_limit() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let mut server = Server::sped(&files.root(), mechanism, &["--max-connections=4"]);
        let mut served: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for client in &mut served {
            assert_eq!(client.get(Files::SMALL.0).status, 200);
        }
        // Several connections arrive at once, and the connections that were idle longest leave.
        let mut new: Vec<Client> = (0..3).map(|_| server.client()).collect();
        for client in &mut new {
            assert_eq!(client.get(Files::SMALL.0).status, 200);
        }
        assert!(served.drain(..3).all(|mut client| client.ends()));
        assert_eq!(served[0].get(Files::SMALL.0).status, 200);
        let status = server.eventually("three have left", |status| status.count("reclaimed") == 3);
        assert_eq!((status.connections(), status.count("accepts"), status.count("turned_away")), (4, 7, 0));
        // If no connection is idle, new connections are answered 503.
        let inside = new.iter_mut().chain(&mut served);
        inside.for_each(|client| client.send("GET / HTTP/1.1\r\n"));
        let received = status.count("received_bytes") + 4 * 16;
        server.eventually("four questions", |status| status.count("received_bytes") >= received);
        let refused = server.client().get(Files::SMALL.0);
        assert_eq!(
            (refused.status, refused.field("retry-after"), refused.says_close()),
            (503, Some("1"), true)
        );
        let status = server.eventually("it shows", |status| status.count("turned_away") == 1);
        assert_eq!((status.connections(), status.count("limit_connections")), (4, 4));
        drop((served, new));
        server.stop_well();
    });
}

/// Sends a SYN and does not wait for an answer.
fn knock(address: SocketAddr) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP)).unwrap();
    assert_eq!(rustix::net::connect(&socket, &address), Err(rustix::io::Errno::INPROGRESS));
    socket
}

#[test]
fn the_queue_and_its_drops_can_be_seen() {
    let files = Files::new();
    let mut server = Server::sped(&files.root(), "epoll", &["--backlog=2"]);
    assert_eq!(server.status().0["queue"]["limit"], 2);
    let address = server.address;
    let sockets: Vec<OwnedFd> = server.while_stopped(|| (0..10).map(|_| knock(address)).collect());
    let status = server.eventually("drops are seen", |status| status.0["queue"]["drops"] != 0);
    assert_eq!(status.0["queue"]["limit"], 2);
    drop(sockets);
    server.stop_well();
}
