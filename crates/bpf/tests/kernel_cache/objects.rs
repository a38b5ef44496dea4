//! Objects, dates, the log and the table of connections.

use base::{Clock, Nanos, RealClock};

use crate::common::packet::RST;
use crate::common::wire::{Client, Offer};
use crate::fixture::{
    DATE, Fixture, HOUR, PORT, Response, collect, end_by_server, exchange, get, read, response,
};

#[test]
fn an_object_ends_when_it_is_no_longer_renewed() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    let object = fixture.known(&request, &response(1000));
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    exchange(&mut client, &request, 1000);
    fixture.cache.end(object, RealClock.now());
    client.send(&request);
    assert_eq!(read(&server), Some(request.clone()));
}

#[test]
fn response_under_way_outlives_its_object() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(3000));
    let object = fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    client.send(&request);
    let first = client.receive_data();
    client.receive();
    client.receive();
    fixture.cache.end(object, RealClock.now());
    client.send_again(&request);
    let data = [first.payload, client.receive_data().payload, client.receive_data().payload].concat();
    assert_eq!(data, response.bytes);
}

#[test]
fn response_of_a_reused_slot_ends_in_a_reset() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    let object = fixture.known(&request, &response(3000));
    let mut client = fixture.client(Offer::default());
    client.send(&request);
    client.receive_data();
    client.receive();
    client.receive();
    // Two minutes later by the server's clock.
    fixture.cache.end(object, RealClock.now());
    let later = RealClock.now() + HOUR;
    while fixture.cache.renew(object, RealClock.now()) {
        fixture.cache.put(&response(2000).bytes, None, later);
    }
    client.send_again(&request);
    let reset = client.receive();
    assert!(reset.is(RST) && reset.seq == client.expected, "{reset:?}");
    assert_eq!(fixture.cache.totals().aborted, 1);
}

#[test]
fn dates_follow_and_a_repeated_response_keeps_its_own() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(1000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    client.send(&request);
    client.receive();
    let next = b"Sun, 06 Nov 1994 08:49:38 GMT";
    fixture.cache.set_date(next);
    client.send_again(&request);
    assert_eq!(collect(&mut client, 1000), response.bytes);
    client.acknowledge();
    let mut expected = response.bytes.clone();
    expected[response.date_at..][..29].copy_from_slice(next);
    assert_eq!(exchange(&mut client, &request, 1000), expected);
}

#[test]
fn a_date_may_begin_anywhere() {
    let Some(mut fixture) = Fixture::new() else { return };
    for (index, date_at) in [17, 18, 100, 101, 400, 419].into_iter().enumerate() {
        let mut bytes = vec![b'.'; 600];
        bytes[date_at..date_at + 29].copy_from_slice(DATE);
        let request = get(&format!("/{index}"));
        fixture.known(&request, &Response { bytes: bytes.clone(), date_at });
        let mut client =
            Client::connect(&fixture.wire, fixture.address, PORT + index as u16, Offer::default());
        assert_eq!(exchange(&mut client, &request, 600), bytes, "{date_at}");
    }
}

#[test]
fn answers_are_logged() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    let object = fixture.known(&request, &response(1000));
    let mut client = fixture.client(Offer::default());
    exchange(&mut client, &request, 1000);
    fixture.cache.set_logging(true);
    exchange(&mut client, &request, 1000);
    let answers = fixture.cache.answers();
    assert_eq!(answers.len(), 1);
    let answer = answers[0];
    assert_eq!((answer.client, answer.port), (client.from, fixture.address.port()));
    assert_eq!((answer.object, answer.bytes), (object, 1000));
    assert!(answer.at <= RealClock.now() && answer.at + Nanos::SECOND * 60 > RealClock.now());
    assert!(fixture.cache.answers().is_empty());
}

#[test]
fn connections_are_forgotten_with_their_sockets() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    let mut diagnostics =
        fixture.wire.namespace.enter(sys::network::netlink::SocketDiagnostics::open).unwrap().unwrap();
    let mut exists = |client, server| diagnostics.connection_exists(server, client);
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    exchange(&mut client, &request, 1000);
    let now = RealClock.now();
    let last = fixture.cache.last_answer(client.from, fixture.address).unwrap().unwrap();
    assert!(last <= now && last + Nanos::SECOND * 60 > now);
    // An acknowledgement is no answer.
    client.acknowledge();
    assert_eq!(fixture.cache.last_answer(client.from, fixture.address).unwrap(), Some(last));
    let later = now + HOUR;
    assert_eq!(fixture.cache.sweep(later, Nanos::SECOND, &mut exists).unwrap(), 0, "its socket is there");
    exchange(&mut client, &request, 1000);
    end_by_server(&mut client, server);
    // Ends the kernel's TIME_WAIT, which the program does not see.
    client.reset();
    assert_eq!(fixture.cache.sweep(RealClock.now(), HOUR, &mut exists).unwrap(), 0, "it was there just now");
    assert_eq!(fixture.cache.sweep(later, Nanos::SECOND, &mut exists).unwrap(), 1);
    assert_eq!(fixture.cache.connections().unwrap(), 0);
    assert_eq!(fixture.cache.last_answer(client.from, fixture.address).unwrap(), None);
}

#[test]
fn full_connection_table_leaves_the_rest_to_server() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    let mut refused = 0;
    for index in 0..102 {
        let mut client = Client::connect(&fixture.wire, fixture.address, PORT + index, Offer::default());
        let server = fixture.accept();
        client.send(&request);
        let seen = read(&server).unwrap();
        assert!(seen.is_empty() || seen == request);
        refused += u64::from(!seen.is_empty());
        client.receive();
        std::mem::forget(server);
    }
    assert_eq!((refused, fixture.cache.totals().no_room), (2, 2), "the table has room for 100");
}

#[test]
fn it_can_be_switched_off_at_any_time() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(3000));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    client.send(&request);
    fixture.cache.set_enabled(false);
    assert_eq!(collect(&mut client, 3000), response.bytes);
    client.send(&request);
    assert_eq!(read(&server), Some(request.clone()));
}
