//! Running out of descriptors: those who are in are served, those who come are told, nothing spins.

use crate::common::{Client, Files, Server, on_every_mechanism, pattern};

/// Room for the program itself and for some twenty connections.
const DESCRIPTORS: u32 = 40;

/// Connects until there is no descriptor left; gives those who got in.
fn fill(server: &Server) -> Vec<Client> {
    let mut inside = Vec::new();
    for _ in 0..DESCRIPTORS {
        let mut client = server.client();
        client.send_get(Files::SMALL.0, "");
        match client.response() {
            served if served.status == 200 => inside.push(client),
            refused => {
                assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
                assert!(refused.says_close() && client.ends());
                return inside;
            }
        }
    }
    panic!("{DESCRIPTORS} connections fit into {DESCRIPTORS} descriptors");
}

#[test]
fn without_descriptors_those_inside_are_served_and_the_others_told() {
    let files = Files::new();
    on_every_mechanism(|mechanism| {
        let flags = ["--arch=sped", "--dispatch", mechanism];
        let mut server = Server::start_with_descriptors(DESCRIPTORS, &files.root(), &flags);
        assert!(server.said.contains("40 descriptors are fewer than the "), "{}", server.said);
        let mut inside = fill(&server);
        let at_first = server.eventually("it shows", |status| status.count("turned_away") == 1);
        assert_eq!(at_first.connections(), inside.len() as u64);

        // More at once than the pauses let in: each is turned away in its turn.
        let mut outside: Vec<Client> = (0..6).map(|_| server.client()).collect();
        for client in &mut inside {
            assert!(client.get(Files::SMALL.0).body == pattern(Files::SMALL.1));
        }
        for client in &mut outside {
            client.send_get(Files::SMALL.0, "");
            assert_eq!(client.response().status, 503);
        }
        let status = server.eventually("all turned away", |status| status.count("turned_away") == 7);
        let more = |name: &str| status.count(name) - at_first.count(name);
        assert_eq!(more("no_descriptor"), 6);
        // Each pause costs a wait that finds the listener ready, one that ends with the pause, and one to
        // publish; each request the same at most.
        let useful = 6 + inside.len() as u64;
        assert!(more("waits") <= 3 * useful + 10, "it spins: {} waits for {useful} events", more("waits"));

        // Descriptors that become free are used again.
        inside.truncate(inside.len() - 5);
        let closed = status.count("closed") + 5;
        server.eventually("five left", |status| status.count("closed") == closed);
        assert!(server.client().get(Files::MEDIUM.0).body == pattern(Files::MEDIUM.1));
        for client in &mut inside {
            assert_eq!(client.get(Files::SMALL.0).status, 200);
        }
        assert_eq!(server.status().count("turned_away"), 7);
        server.stop_well();
    });
}

#[test]
fn a_file_that_cannot_be_opened_for_want_of_descriptors_is_503_and_the_connection_stays() {
    let files = Files::new();
    let mut server = Server::start_with_descriptors(DESCRIPTORS, &files.root(), &["--arch=sped"]);
    let mut inside = fill(&server);
    // The last descriptor, which fill() found by being turned away, is the reserve.
    let response = inside[0].get(Files::LARGE.0);
    assert_eq!((response.status, response.field("retry-after")), (503, Some("1")));
    server.eventually("it shows", |status| status.count("descriptors_exhausted") == 1);
    let leave = inside.len() - 3;
    inside.truncate(leave);
    server.eventually("three left", |status| status.count("closed") == 3);
    assert!(inside[0].get(Files::LARGE.0).body == pattern(Files::LARGE.1));
    server.stop_well();
}
