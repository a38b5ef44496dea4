//! Connections that end, and those that the server takes over.

use std::io::Write;
use std::net::TcpListener;

use crate::common::packet::{ACK, FIN, PSH, RST, SYN};
use crate::common::wire::{Client, Offer, SERVER};
use crate::fixture::{
    Fixture, PORT, collect, end_by_client, end_by_server, exchange, get, read, reset_by_client, response,
};

#[test]
fn either_side_may_close_an_answered_connection() {
    for by_client in [true, false] {
        for known in [0, 1, 2] {
            let Some(mut fixture) = Fixture::new() else { return };
            let request = get("/a");
            fixture.known(&request, &response(1000));
            let mut client = fixture.client(Offer::default());
            let server = fixture.accept();
            for _ in 0..known {
                exchange(&mut client, &request, 1000);
            }
            let connections = usize::from(known > 0);
            assert_eq!(fixture.cache.connections().unwrap(), connections);
            if by_client {
                end_by_client(&mut client, server);
                assert_eq!(fixture.cache.connections().unwrap(), 0, "nothing is left of it");
            } else {
                end_by_server(&mut client, server);
                assert_eq!(fixture.cache.connections().unwrap(), connections, "it may repeat its end");
            }
        }
    }
}

#[test]
fn server_fin_is_repeated_until_acknowledged() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    exchange(&mut client, &request, 1000);
    client.transmit(client.next, client.expected, FIN | ACK, &[], &[]);
    client.next = client.next.wrapping_add(1);
    assert_eq!(client.receive().ack, client.next);
    drop(server);
    // The first one is lost. What else the client sends acknowledges nothing.
    let fin = client.receive();
    client.transmit(client.next, client.expected, ACK, &[], &[]);
    let again = client.receive();
    assert!(again.is(FIN) && (again.seq, again.ack) == (fin.seq, fin.ack), "{again:?}");
    assert_eq!(fixture.cache.connections().unwrap(), 1);
    client.expected = fin.end();
    client.acknowledge();
    client.receives_only_again(&fin);
    assert_eq!(fixture.cache.connections().unwrap(), 0);
}

#[test]
fn server_fin_follows_a_response_under_way() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(3000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    client.send(&request);
    drop(server);
    let segments: Vec<_> = (0..3).map(|_| client.receive_data()).collect();
    let fin = client.receive();
    assert!(fin.is(FIN) && fin.seq == client.expected, "{fin:?}");
    // The second segment was lost.
    client.expected = segments[0].end();
    client.send_again(&request);
    assert_eq!(client.receive_data().payload, segments[1].payload);
    assert_eq!(client.receive_data().payload, segments[2].payload);
    client.expected = fin.end();
    client.acknowledge();
    client.transmit(client.next, client.expected, FIN | ACK, &[], &[]);
    client.next = client.next.wrapping_add(1);
    let answer = client.receive();
    assert!(answer.flags == ACK && answer.ack == client.next, "{answer:?}");
}

#[test]
fn known_request_after_server_fin_is_not_answered() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    exchange(&mut client, &request, 1000);
    drop(server);
    assert!(client.receive().is(FIN));
    client.send(&request);
    let reset = client.receive();
    assert!(reset.is(RST) && reset.seq == client.expected, "{reset:?}, expected {}", client.expected);
}

#[test]
fn client_fin_with_its_request_gets_the_response() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(3000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    client.send(&request);
    // The end comes while the response is under way: it has to come again.
    client.transmit(client.next, client.expected, FIN | ACK, &[], &[]);
    let data: Vec<u8> = (0..3).flat_map(|_| client.receive_data().payload).collect();
    assert_eq!(data, response.bytes);
    client.receives_nothing();
    client.acknowledge();
    assert_eq!(client.receive().ack, client.next);
    end_by_client(&mut client, server);
}

#[test]
fn request_with_fin_in_one_segment_goes_to_server() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    client.transmit(client.next, client.expected, FIN | ACK | PSH, &request, &[]);
    assert_eq!(read(&server), Some(request.clone()));
    assert_eq!(read(&server), None);
}

#[test]
fn resets_reach_both_sides() {
    for known in [0, 1] {
        let Some(mut fixture) = Fixture::new() else { return };
        let request = get("/a");
        fixture.known(&request, &response(1000));
        let mut client = fixture.client(Offer::default());
        let server = fixture.accept();
        for _ in 0..known {
            exchange(&mut client, &request, 1000);
        }
        reset_by_client(&mut client, &server);

        let mut client = Client::connect(&fixture.wire, fixture.address, PORT + 1, Offer::default());
        let server = fixture.accept();
        for _ in 0..known {
            exchange(&mut client, &request, 1000);
        }
        client.send(b"unread");
        assert_eq!(client.receive().ack, client.next);
        // Unread data is answered with a reset.
        drop(server);
        let reset = client.receive();
        assert!(reset.is(RST) && reset.seq == client.expected, "{reset:?}");
        assert_eq!(fixture.cache.connections().unwrap(), 0);
    }
}

/// The server challenges a reset in its window with another number than the next, and the connection goes on.
#[test]
fn a_reset_with_a_guessed_number_ends_nothing() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    exchange(&mut client, &request, 1000);
    client.transmit(client.next.wrapping_add(1), client.expected, RST | ACK, &[], &[]);
    let challenge = client.receive();
    assert!(challenge.flags == ACK && challenge.ack == client.next, "{challenge:?}");
    assert_eq!(fixture.cache.connections().unwrap(), 1);
    client.send(b"something else");
    assert_eq!(read(&server), Some(b"something else".to_vec()));
    assert_eq!(client.receive().ack, client.next);
    reset_by_client(&mut client, &server);
    assert_eq!(fixture.cache.connections().unwrap(), 0);
}

#[test]
fn a_reset_under_way_reaches_the_server() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(3000));
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    client.send(&request);
    client.receive_data();
    reset_by_client(&mut client, &server);
}

#[test]
fn requests_that_differ_in_any_way_are_the_servers() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    let mut longer = request.clone();
    longer.extend(b"GET / HTTP/1.1\r\n\r\n");
    let mut others =
        vec![longer, request[..request.len() - 1].to_vec(), request[..10].to_vec(), vec![b'x'; 600]];
    for at in 0..request.len() {
        let mut other = request.clone();
        other[at] ^= 0x20;
        others.push(other);
    }
    for (index, other) in others.iter().enumerate() {
        let port = PORT + index as u16;
        let mut client = Client::connect(&fixture.wire, fixture.address, port, Offer::default());
        let server = fixture.accept();
        client.send(other);
        assert_eq!(read(&server).as_ref(), Some(other));
        assert_eq!(client.receive().ack, client.next);
        client.reset();
    }
    assert_eq!(fixture.cache.totals().answers, 0);
    assert_eq!(fixture.cache.connections().unwrap(), 0);
}

#[test]
fn pipelined_requests_come_in_order() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(1000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    client.send(&request);
    // The next one waits, be it known or not, until the first response is acknowledged.
    let next = client.next;
    client.send(&request);
    client.next = next;
    client.send(&get("/other"));
    assert_eq!(collect(&mut client, 1000), response.bytes);
    client.receives_nothing();
    assert_eq!(read(&server), Some(Vec::new()));
    client.next = next;
    client.send(&get("/other"));
    assert_eq!(read(&server), Some(get("/other")));
}

#[test]
fn known_request_behind_an_open_one_waits_for_server() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    client.send(&get("/slow"));
    client.send(&request);
    assert_eq!(read(&server), Some([get("/slow"), request.clone()].concat()));
    assert_eq!(fixture.cache.totals().answers, 0);
}

#[test]
fn overtaking_segment_gives_connection_to_server() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    for known in [0, 1] {
        let mut client = Client::connect(&fixture.wire, fixture.address, PORT + known, Offer::default());
        let server = fixture.accept();
        for _ in 0..known {
            exchange(&mut client, &request, 1000);
        }
        let first = client.next;
        client.next = first.wrapping_add(request.len() as u32);
        client.send(b"behind");
        let gap = client.receive();
        assert_eq!(gap.ack, first);
        let sacked = first.wrapping_add(request.len() as u32);
        assert_eq!(gap.sack, [(sacked, sacked.wrapping_add(6))], "in the client's numbers");
        client.transmit(first, client.expected, ACK | PSH, &request, &[]);
        assert_eq!(read(&server), Some([&request[..], b"behind"].concat()));
    }
}

#[test]
fn server_repairs_its_own_losses_after_takeover() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    // On a busy machine a probe for a lost tail would come before the acknowledgements.
    fixture.wire.namespace.set_sysctl("net.ipv4.tcp_early_retrans", "0").unwrap();
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    exchange(&mut client, &request, 1000);
    client.send(&get("/other"));
    assert_eq!(read(&server), Some(get("/other")));
    let data: Vec<u8> = (0..5000_u32).map(|at| at as u8).collect();
    (&server).write_all(&data).unwrap();
    let mut segments = vec![client.receive_data()];
    while segments.last().unwrap().end() != segments[0].seq.wrapping_add(5000) {
        segments.push(client.receive_data());
    }
    // All but the first arrived: the kernel must know it from the selective acknowledgement, in its own numbers.
    client.expected = segments[0].seq;
    let sack = [(segments[1].seq, segments.last().unwrap().end())];
    for _ in 0..3 {
        client.transmit(client.next, client.expected, ACK, &[], &sack);
    }
    let again = client.receive();
    assert_eq!((again.seq, &again.payload), (segments[0].seq, &segments[0].payload));
    client.expected = segments.last().unwrap().end();
    client.acknowledge();
    client.receives_nothing();
}

#[test]
fn small_window_gives_connection_to_server() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    for (port, window, scale) in [(PORT, 0, Some(7)), (PORT + 1, 7, Some(7)), (PORT + 2, 999, None)] {
        let mut client =
            Client::connect(&fixture.wire, fixture.address, port, Offer { scale, ..Offer::default() });
        let server = fixture.accept();
        client.window = window;
        client.send(&request);
        assert_eq!(read(&server), Some(request.clone()), "{window}");
    }
    assert_eq!(fixture.cache.totals().answers, 0);
}

#[test]
fn a_damaged_packet_is_dropped() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(1000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    let good = client.packet(client.next, client.expected, ACK | PSH, &request, &[]);
    for at in [24, 28, 35, 40, 60, good.len() - 1] {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        fixture.wire.send(&damaged);
        client.receives_nothing();
        assert_eq!(read(&server), Some(Vec::new()));
    }
    assert_eq!(exchange(&mut client, &request, 1000), response.bytes);
    // An acknowledgement of a response that is damaged ends nothing.
    client.send(&request);
    let end = client.receive_data().end();
    let mut damaged = client.packet(client.next, end, ACK, &[], &[]);
    damaged[33] ^= 4;
    fixture.wire.send(&damaged);
    client.receives_nothing();
    assert!(fixture.cache.totals().damaged >= 7);
}

#[test]
fn probes_are_answered_in_the_clients_numbers() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    fixture.wire.namespace.set_sysctl("net.ipv4.tcp_invalid_ratelimit", "0").unwrap();
    let mut client = fixture.client(Offer::default());
    exchange(&mut client, &request, 1000);
    let handshake = client.echo;
    let mut probe = |data: &[u8]| {
        client.transmit(client.next.wrapping_sub(1), client.expected, ACK, data, &[]);
        let answer = client.receive();
        assert_eq!((answer.seq, answer.ack, answer.flags), (client.expected, client.next, ACK), "{data:?}");
        answer.timestamps
    };
    // The kernel answers empty probes, with its own clock. The program is not to fall behind it.
    while probe(b"").unwrap().0 == handshake {}
    probe(b"x");
    exchange(&mut client, &request, 1000);
    assert_eq!(fixture.cache.totals().handed_over, 0);
}

#[test]
fn only_established_connections_are_answered() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    // Its last acknowledgement was lost: the request completes the handshake, at the kernel.
    let mut client = Client::new(&fixture.wire, fixture.address, PORT, Offer::default());
    client.transmit(client.next, 0, SYN, &[], &[]);
    client.next = client.next.wrapping_add(1);
    let answer = client.receive();
    client.expected = answer.end();
    client.send(&request);
    let server = fixture.accept();
    assert_eq!(read(&server), Some(request.clone()));
    // Somebody without a handshake.
    let mut stranger = Client::new(&fixture.wire, fixture.address, PORT + 1, Offer::default());
    stranger.send(&request);
    assert!(stranger.receive().is(RST));
    // Another's address.
    let other = fixture.wire.namespace.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let mut client = Client::connect(&fixture.wire, other.local_addr().unwrap(), PORT + 2, Offer::default());
    client.send(&request);
    let (server, _) = other.accept().unwrap();
    assert_eq!(read(&server), Some(request.clone()));
    assert_eq!(fixture.cache.totals().answers, 0);
}

#[test]
fn a_client_whose_packets_may_be_cut_is_the_servers() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    let mut client = fixture.client(Offer { whole: false, ..Offer::default() });
    client.send(&request);
    assert_eq!(read(&fixture.accept()), Some(request));
}

#[test]
fn two_ends_that_meet_again_have_a_new_connection() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(1000));
    fixture.known(&request, &response);
    let mut isn = 1000;
    for _ in 0..5 {
        let mut client = fixture.client(Offer { isn, timestamps: false, ..Offer::default() });
        let server = fixture.accept();
        for _ in 0..2 {
            assert_eq!(exchange(&mut client, &request, 1000), response.bytes);
        }
        client.send(b"something else");
        assert_eq!(read(&server), Some(b"something else".to_vec()));
        assert_eq!(client.receive().ack, client.next);
        // The connection of a server that closes first stays in the table. The kernel takes a SYN without timestamps
        // for a new one if its number is higher.
        end_by_server(&mut client, server);
        isn = client.next.wrapping_add(100_000);
    }
    assert_eq!(fixture.cache.connections().unwrap(), 1);
}
