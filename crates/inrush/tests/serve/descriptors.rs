//! Running out of descriptors. The server keeps its connections. It answers new ones 503, or lets them
//! replace an idle connection, and does not spin.

use crate::common::{Client, Files, Server, on_every_mechanism, pattern};

/// Descriptors for the program itself and for some twenty connections.
const DESCRIPTORS: u32 = 50;
/// The rest of a request.
const REST: &str = "Host: x\r\n\r\n";

/// Connects, with half a request each, until no descriptor is left. Returns the admitted clients once the
/// reserve descriptor, which turned the last client away, is free again.
fn fill(server: &mut Server) -> Vec<Client> {
    // A cached file needs no descriptor later.
    assert_eq!(server.client().get(Files::SMALL.0).status, 200);
    server.eventually("gone", |status| status.count("closed") == 1);
    let sockets = server.sockets();
    let mut inside = Vec::new();
    for _ in 0..DESCRIPTORS {
        let mut client = server.client();
        client.send("GET /small.bin HTTP/1.1\r\n");
        let before = inside.len() as u64;
        let status = server.eventually("in or turned away", |status| {
            status.connections() > before || status.count("turned_away") > 0
        });
        if status.count("turned_away") > 0 {
            client.send(REST);
            let refused = client.response();
            assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
            assert!(refused.says_close() && client.ends());
            let all = server.descriptors();
            drop(client);
            server.eventually_of("the reserve is full", |server| {
                server.sockets() == sockets + inside.len() && server.descriptors() == all
            });
            return inside;
        }
        inside.push(client);
    }
    panic!("{DESCRIPTORS} connections fit into {DESCRIPTORS} descriptors");
}

#[test]
fn exhausted_descriptors_spare_open_connections() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        // The half requests must last until the server has turned the other clients away, even on a busy
        // machine.
        let flags = ["--arch=sped", "--header-timeout=1h", "--dispatch", mechanism];
        let mut server = Server::start_with_descriptors(DESCRIPTORS, &files.root(), &flags);
        assert!(server.said.contains("50 descriptors are fewer than the "), "{}", server.said);
        let mut inside = fill(&mut server);
        let at_first = server.eventually("it shows", |status| status.connections() == inside.len() as u64);

        // The server turns each client away in its turn, however many come at once.
        let mut outside: Vec<Client> = (0..20).map(|_| server.client()).collect();
        outside.iter_mut().for_each(|client| client.send_get(Files::SMALL.0, ""));
        for client in &mut outside {
            assert_eq!(client.response().status, 503);
            assert!(client.ends());
        }
        drop(outside);
        let status = server.eventually("all turned away", |status| status.count("turned_away") == 21);
        let more = |name: &str| status.count(name) - at_first.count(name);
        assert!(more("no_descriptor") >= 20);
        // Each client costs a wait that finds it, some that find the reserve in use, and one to publish the
        // counts.
        assert!(more("waits") <= 20 * 10, "it spins: {} waits for 20 events", more("waits"));

        for client in &mut inside {
            client.send(REST);
            let response = client.response();
            assert!(response.body == pattern(Files::SMALL.1), "{response:?}");
        }
        // The server uses freed descriptors again.
        inside.truncate(inside.len() - 5);
        server.eventually("five left", |status| status.count("closed") == 6);
        assert!(server.client().get(Files::MEDIUM.0).body == pattern(Files::MEDIUM.1));
        for client in &mut inside {
            assert_eq!(client.get(Files::SMALL.0).status, 200);
        }
        assert_eq!(server.status().count("turned_away"), 21);
        server.stop_well();
    });
}

#[test]
fn exhausted_descriptors_reclaim_the_longest_idle() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let flags = ["--arch=sped", "--dispatch", mechanism];
        let mut server = Server::start_with_descriptors(DESCRIPTORS, &files.root(), &flags);
        let mut inside: Vec<Client> = Vec::new();
        for _ in 0..DESCRIPTORS {
            let mut new = server.client();
            assert!(new.get(Files::SMALL.0).body == pattern(Files::SMALL.1));
            inside.push(new);
        }
        let status = server.eventually("some have left", |status| {
            status.count("accepts") == u64::from(DESCRIPTORS) && status.count("reclaimed") > 0
        });
        let (first, others) = inside.split_at_mut(status.count("reclaimed") as usize);
        assert!(first.iter_mut().all(Client::ends));
        for client in others {
            assert_eq!(client.get(Files::SMALL.0).status, 200);
        }
        assert_eq!(status.count("turned_away"), 0);
        drop(inside);
        server.stop_well();
    });
}

#[test]
fn admin_connection_takes_no_clients_descriptor() {
    let files = Files::new();
    let flags = ["--arch=sped", "--header-timeout=1h"];
    let mut server = Server::start_with_descriptors(DESCRIPTORS, &files.root(), &flags);
    let mut inside = fill(&mut server);
    inside.pop();
    server.eventually("one has left", |status| status.connections() == inside.len() as u64);
    let mut last = Client::connect(server.admin_address);
    assert_eq!(last.get("/status").status, 200);
    assert_eq!(server.status().count("admin_evicted"), 0);
    drop(inside);
    server.stop_well();
}

#[test]
fn unopenable_file_is_503_and_keeps_the_connection() {
    let files = Files::new();
    let mut server = Server::start_with_descriptors(DESCRIPTORS, &files.root(), &["--arch=sped"]);
    let mut inside = fill(&mut server);
    inside[0].send(REST);
    assert_eq!(inside[0].response().status, 200);
    // The remaining descriptors are reserved for clients that are turned away.
    let response = inside[0].get(Files::LARGE.0);
    assert_eq!((response.status, response.field("retry-after")), (503, Some("1")));
    server.eventually("it shows", |status| status.count("descriptors_exhausted") == 1);
    let leave = inside.len() - 3;
    inside.truncate(leave);
    server.eventually("three left", |status| status.count("closed") == 4);
    assert!(inside[0].get(Files::LARGE.0).body == pattern(Files::LARGE.1));
    drop(inside);
    server.stop_well();
}
