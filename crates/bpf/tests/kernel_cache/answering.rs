//! Requests that the program answers.

use std::io::Write;

use base::{Clock, Nanos, RealClock};
use bpf::kernel_cache::{LONGEST, Totals};

use crate::common::packet::{ACK, PSH};
use crate::common::wire::{Offer, SERVER, SERVER6};
use crate::fixture::{Fixture, SEGMENT, collect, end_by_client, exchange, get, read, response};

#[test]
fn known_request_is_answered_without_the_server() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(1000));
    let object = fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    for _ in 0..3 {
        assert_eq!(exchange(&mut client, &request, 1000), response.bytes);
    }
    assert_eq!(read(&server), Some(Vec::new()));
    let used = fixture.cache.last_used(object);
    assert!(used <= RealClock.now() && used + Nanos::from_secs(60) > RealClock.now(), "{used:?}");
    let totals = fixture.cache.totals();
    assert_eq!(totals, Totals { answers: 3, bytes: 3000, taken: 1, ..totals });
    assert_eq!((totals.repeated, totals.handed_over, totals.damaged), (0, 0, 0));
}

#[test]
fn response_echoes_timestamps_from_server_address() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(1000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    let tsval = client.echo;
    client.send(&request);
    let answer = client.receive_data();
    assert_eq!(answer.timestamps, Some((tsval, client.clock)));
    assert_eq!(answer.flags, ACK | PSH);
    assert_eq!(answer.ack, client.next, "a client with Nagle's algorithm waits for that");
    assert!(answer.window > 0);
    client.acknowledge();
    client.receives_nothing();
}

#[test]
fn every_kind_of_client_is_answered() {
    let request = get("/a");
    let linux = Offer::default();
    for (name, offer) in [
        ("no timestamps", Offer { timestamps: false, ..linux }),
        ("no window scale", Offer { scale: None, ..linux }),
        ("no selective acknowledgements", Offer { sack: false, ..linux }),
        ("none of them", Offer { timestamps: false, scale: None, sack: false, ..linux }),
        ("sequence numbers that wrap in the request", Offer { isn: u32::MAX - 20, ..linux }),
        ("sequence numbers that wrap at the handshake", Offer { isn: u32::MAX, ..linux }),
        ("jumbo frames", Offer { mss: 8960, ..linux }),
    ] {
        for address in [(SERVER, 0).into(), (SERVER6, 0).into()] {
            let Some(mut fixture) = Fixture::at(address) else { return };
            let response = response(4000);
            fixture.known(&request, &response);
            let mut client = fixture.client(offer);
            if offer.scale.is_none() {
                client.window = 64_000;
            }
            for _ in 0..2 {
                assert_eq!(exchange(&mut client, &request, 4000), response.bytes, "{name} {address}");
            }
            let server = fixture.accept();
            client.send(b"then something else");
            assert_eq!(read(&server), Some(b"then something else".to_vec()), "{name} {address}");
            (&server).write_all(b"the server's").unwrap();
            assert_eq!(collect(&mut client, 12), b"the server's", "{name} {address}");
        }
    }
}

#[test]
fn a_client_of_small_segments_gets_small_segments() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(2000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer { mss: 536, ..Offer::default() });
    client.send(&request);
    let lengths: Vec<usize> = (0..5).map(|_| client.receive_data().payload.len()).collect();
    assert_eq!(lengths, [448, 448, 448, 448, 208]);
}

#[test]
fn long_response_leaves_by_window_and_by_acks() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/long"), response(LONGEST));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    client.send(&request);
    let (mut data, unacknowledged) = (Vec::new(), client.next.wrapping_sub(request.len() as u32));
    for _ in 0..10 {
        let segment = client.receive_data();
        assert_eq!(segment.ack, unacknowledged, "the client is to send it again where the rest gets lost");
        assert_eq!(segment.payload.len(), SEGMENT);
        data.extend(segment.payload);
    }
    client.receives_nothing();
    client.acknowledge();
    data.extend(collect(&mut client, LONGEST - data.len()));
    assert_eq!(data, response.bytes);
    client.acknowledge();
    assert_eq!(client.receive().ack, client.next);
}

#[test]
fn a_request_that_comes_again_is_answered_again() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(1000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    client.send(&request);
    let first = client.receive();
    // That one was lost.
    client.send_again(&request);
    let mut second = client.receive();
    second.timestamps = first.timestamps;
    assert_eq!(second, first);
    client.expected = second.end();
    // The acknowledgement was lost: the request comes with it.
    client.send_again(&request);
    let answer = client.receive();
    assert!(answer.payload.is_empty() && answer.ack == client.next, "{answer:?}");
    // The last acknowledgement was lost as well.
    client.send_again(&request);
    assert_eq!(client.receive().ack, client.next);
    assert_eq!(exchange(&mut client, &request, 1000), response.bytes);
    assert_eq!(fixture.cache.totals().answers, 2);
}

#[test]
fn lost_segment_is_sent_again_once_for_a_sack() {
    for lost in [0, 1] {
        let Some(mut fixture) = Fixture::new() else { return };
        let (request, response) = (get("/a"), response(SEGMENT * 4));
        fixture.known(&request, &response);
        let mut client = fixture.client(Offer::default());
        client.send(&request);
        let segments: Vec<_> = (0..4).map(|_| client.receive()).collect();
        client.expected = segments[lost].seq;
        for last in [lost + 1, 3] {
            let sack = [(segments[lost + 1].seq, segments[last].end())];
            client.transmit(client.next, client.expected, ACK, &[], &sack);
        }
        let again = client.receive();
        assert_eq!((again.seq, &again.payload), (segments[lost].seq, &segments[lost].payload));
        client.receives_nothing();
        client.expected = segments[3].end();
        client.acknowledge();
        let answer = client.receive();
        assert!(answer.ack == client.next && answer.payload.is_empty());
    }
}

#[test]
fn response_resumes_slowly_after_a_timeout() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(SEGMENT * 8));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer { sack: false, ..Offer::default() });
    client.send(&request);
    let segments: Vec<_> = (0..8).map(|_| client.receive()).collect();
    client.expected = segments[1].end();
    client.send_again(&request);
    let again: Vec<_> = (0..2).map(|_| client.receive_data()).collect();
    assert_eq!(again[0].seq, segments[2].seq);
    client.receives_nothing();
    client.acknowledge();
    let mut got = again.iter().map(|segment| segment.payload.len()).sum::<usize>();
    while got < SEGMENT * 6 {
        got += client.receive_data().payload.len();
        client.acknowledge();
    }
    assert_eq!(client.receive().ack, client.next);
}

#[test]
fn a_path_that_takes_no_long_packets_gets_short_ones() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(1000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    client.send(&request);
    assert_eq!(client.receive().payload.len(), 1000);
    client.send_again(&request);
    assert_eq!(client.receive().payload.len(), 1000);
    client.send_again(&request);
    let short = [client.receive_data(), client.receive_data()];
    assert_eq!(short.each_ref().map(|segment| segment.payload.len()), [448, 448]);
    client.acknowledge();
    let last = client.receive_data();
    let data = [&short[0].payload[..], &short[1].payload, &last.payload].concat();
    assert_eq!(data, response.bytes);
}

#[test]
fn unknown_request_gives_connection_to_server() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(1000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    exchange(&mut client, &request, 1000);
    // The response is acknowledged by the next request alone.
    client.send(&request);
    assert_eq!(collect(&mut client, 1000), response.bytes);
    client.send(&get("/other"));
    assert_eq!(read(&server), Some(get("/other")));
    (&server).write_all(b"the server's answer").unwrap();
    let answer = client.receive_data();
    assert_eq!(answer.payload, b"the server's answer");
    assert_eq!(answer.ack, client.next, "both requests are acknowledged");
    client.acknowledge();
    // Even a known request is the server's now.
    client.send(&request);
    assert_eq!(read(&server), Some(request.clone()));
    (&server).write_all(b"bye").unwrap();
    assert_eq!(client.receive_data().payload, b"bye");
    client.acknowledge();
    end_by_client(&mut client, server);
    let totals = fixture.cache.totals();
    assert_eq!((totals.answers, totals.taken, totals.handed_over), (2, 1, 1));
}
