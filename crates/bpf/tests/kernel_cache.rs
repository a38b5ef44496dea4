//! The kernel cache, packet by packet: a client by hand at the end of a TUN device, a listener of the kernel's.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;

use base::Nanos;
use bpf::kernel_cache::{KernelCache, LONGEST, Limits, ObjectId, Totals};
use common::packet::{ACK, FIN, PSH, RST, SYN};
use common::wire::{Client, Offer, SERVER, SERVER6, TUN, Wire};
use common::{device, or_skip};
use sys::clock::monotonic;

const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";
const HOUR: Nanos = Nanos::from_secs(3600);
/// A segment of three pieces.
const SEGMENT: usize = 1344;
const PORT: u16 = 40_000;

/// A response, and where its date is.
#[derive(Clone)]
struct Response {
    bytes: Vec<u8>,
    date_at: usize,
}

/// A response of this many bytes, head and all, unlike any other.
fn response(length: usize) -> Response {
    let date_at = "HTTP/1.1 200 OK\r\nDate: ".len();
    let date = std::str::from_utf8(DATE).unwrap();
    let head = |body: usize| format!("HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {body}\r\n\r\n");
    let mut body = length - head(0).len();
    while head(body).len() + body > length {
        body -= 1;
    }
    let mut bytes = head(body).into_bytes();
    bytes.extend((0..length - bytes.len()).map(|at| (at * 31 + length) as u8));
    Response { bytes, date_at }
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: example\r\n\r\n").into_bytes()
}

/// A listener with the program before it, and the client's end of its device.
struct Fixture {
    wire: Rc<Wire>,
    listener: TcpListener,
    cache: KernelCache,
    address: SocketAddr,
}

impl Fixture {
    fn new() -> Option<Fixture> {
        Fixture::at((SERVER, 0).into())
    }

    fn at(address: SocketAddr) -> Option<Fixture> {
        let wire = Rc::new(Wire::create()?);
        if address.is_ipv6() && !wire.ipv6 {
            println!("skipped: no IPv6 here");
            return None;
        }
        let limits = Limits { objects: 16, requests: 64, connections: 100 };
        let mut cache = or_skip(KernelCache::load(limits, 0x1234_5678_9abc_def0))?;
        let listener = wire.namespace.enter(|| TcpListener::bind(address)).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        cache.add_listener(address).unwrap();
        let tun = device(&wire.namespace, TUN);
        or_skip(wire.namespace.enter(|| cache.attach(&tun)).unwrap())?;
        cache.set_date(DATE);
        cache.set_enabled(true);
        Some(Fixture { wire, listener, cache, address })
    }

    /// Has a request answered with a response.
    fn known(&mut self, request: &[u8], response: &Response) -> ObjectId {
        let mut undated = response.bytes.clone();
        undated[response.date_at..response.date_at + DATE.len()].fill(b'?');
        let object = self.cache.put(&undated, Some(response.date_at), monotonic()).unwrap();
        assert!(self.cache.know(request, object));
        assert!(self.cache.renew(object, monotonic() + HOUR));
        object
    }

    fn client(&self, offer: Offer) -> Client {
        Client::connect(&self.wire, self.address, PORT, offer)
    }

    /// The connection at the server, which has read nothing of it yet.
    fn accept(&self) -> TcpStream {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }
}

/// What the server has received and not read yet; `None` at the end of the connection.
fn read(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(0) => None,
        Ok(length) => Some(buffer[..length].to_vec()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(Vec::new()),
        Err(error) => panic!("read: {error}"),
    }
}

/// Asks, takes the whole response, and acknowledges it. Returns it.
fn exchange(client: &mut Client, request: &[u8], length: usize) -> Vec<u8> {
    client.send(request);
    if length <= SEGMENT && client.offer.mss > 1000 {
        let response = client.receive_data();
        assert_eq!(response.ack, client.next, "one segment acknowledges its request");
        client.acknowledge();
        return response.payload;
    }
    let response = collect(client, length);
    client.acknowledge();
    let answer = client.receive();
    assert!(answer.flags == ACK && answer.ack == client.next && answer.payload.is_empty(), "{answer:?}");
    response
}

/// Takes data in order, acknowledging each segment but the last.
fn collect(client: &mut Client, length: usize) -> Vec<u8> {
    let mut data = client.receive_data().payload;
    while data.len() < length {
        client.acknowledge();
        data.extend(client.receive_data().payload);
    }
    assert_eq!(data.len(), length);
    data
}

#[test]
fn a_known_request_is_answered_and_the_server_sees_nothing_of_it() {
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
    assert!(used <= monotonic() && used + Nanos::from_secs(60) > monotonic(), "{used:?}");
    let totals = fixture.cache.totals();
    assert_eq!(totals, Totals { answers: 3, bytes: 3000, taken: 1, ..totals });
    assert_eq!((totals.repeated, totals.handed_over, totals.damaged), (0, 0, 0));
}

#[test]
fn a_response_echoes_timestamps_and_comes_from_the_server() {
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
fn a_long_response_leaves_in_an_initial_window_and_then_by_acknowledgements() {
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
fn a_lost_segment_is_sent_again_for_a_selective_acknowledgement_once() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(SEGMENT * 4));
    fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    client.send(&request);
    let segments: Vec<_> = (0..4).map(|_| client.receive()).collect();
    client.expected = segments[0].end();
    for last in [2, 3] {
        let sack = [(segments[2].seq, segments[last].end())];
        client.transmit(client.next, client.expected, ACK, &[], &sack);
    }
    let again = client.receive();
    assert_eq!((again.seq, &again.payload), (segments[1].seq, &segments[1].payload));
    client.receives_nothing();
    client.expected = segments[3].end();
    client.acknowledge();
    let answer = client.receive();
    assert!(answer.ack == client.next && answer.payload.is_empty());
}

#[test]
fn after_a_timeout_a_response_goes_on_slowly_from_what_is_missing() {
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
fn the_first_other_request_makes_the_connection_the_servers_for_good() {
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

/// Closes a connection from the client's side, in order.
fn end_by_client(client: &mut Client, server: TcpStream) {
    client.transmit(client.next, client.expected, FIN | ACK, &[], &[]);
    client.next = client.next.wrapping_add(1);
    let answer = client.receive();
    assert!(answer.flags == ACK && answer.ack == client.next, "{answer:?}");
    assert_eq!(read(&server), None);
    drop(server);
    let fin = client.receive();
    assert!(fin.is(FIN) && fin.seq == client.expected && fin.ack == client.next, "{fin:?}");
    client.expected = fin.end();
    client.acknowledge();
    client.receives_nothing();
}

/// Closes a connection from the server's side, in order.
fn end_by_server(client: &mut Client, server: TcpStream) {
    drop(server);
    let fin = client.receive();
    assert!(fin.is(FIN) && fin.seq == client.expected, "{fin:?}, expected {}", client.expected);
    client.expected = fin.end();
    client.acknowledge();
    client.transmit(client.next, client.expected, FIN | ACK, &[], &[]);
    client.next = client.next.wrapping_add(1);
    let answer = client.receive();
    assert!(answer.flags == ACK && answer.ack == client.next && answer.seq == client.expected, "{answer:?}");
}

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
            if by_client {
                end_by_client(&mut client, server);
            } else {
                end_by_server(&mut client, server);
            }
        }
    }
}

#[test]
fn the_servers_end_follows_a_response_that_is_under_way() {
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
fn a_known_request_after_the_servers_end_is_not_answered() {
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
fn a_client_that_ends_with_its_request_gets_the_response() {
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
fn a_request_and_an_end_in_one_segment_are_the_servers() {
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
        client.reset();
        let error = (&server).read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        let mut client = Client::connect(&fixture.wire, fixture.address, PORT + 1, Offer::default());
        let server = fixture.accept();
        for _ in 0..known {
            exchange(&mut client, &request, 1000);
        }
        client.send(b"unread");
        assert_eq!(client.receive().ack, client.next);
        // What was not read is answered with a reset.
        drop(server);
        let reset = client.receive();
        assert!(reset.is(RST) && reset.seq == client.expected, "{reset:?}");
    }
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
    client.reset();
    let error = (&server).read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
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
fn a_known_request_behind_an_unanswered_one_waits_for_the_server() {
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
fn a_segment_that_overtakes_makes_the_connection_the_servers() {
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
fn the_servers_own_losses_are_repaired_after_it_has_taken_over() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
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
fn a_window_too_small_for_the_response_makes_the_connection_the_servers() {
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
    let mut client = fixture.client(Offer::default());
    exchange(&mut client, &request, 1000);
    for probe in [&[][..], b"x"] {
        client.transmit(client.next.wrapping_sub(1), client.expected, ACK, probe, &[]);
        let answer = client.receive();
        assert_eq!((answer.seq, answer.ack, answer.flags), (client.expected, client.next, ACK), "{probe:?}");
    }
    exchange(&mut client, &request, 1000);
    assert_eq!(fixture.cache.totals().handed_over, 0);
}

#[test]
fn nothing_is_answered_on_what_is_no_established_connection() {
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
        let mut client = fixture.client(Offer { isn, ..Offer::default() });
        let server = fixture.accept();
        for _ in 0..2 {
            assert_eq!(exchange(&mut client, &request, 1000), response.bytes);
        }
        client.send(b"something else");
        assert_eq!(read(&server), Some(b"something else".to_vec()));
        assert_eq!(client.receive().ack, client.next);
        end_by_client(&mut client, server);
        isn = client.next.wrapping_add(100_000);
    }
    assert_eq!(fixture.cache.connections().unwrap(), 1);
}

#[test]
fn an_object_ends_when_it_is_no_longer_renewed() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    let object = fixture.known(&request, &response(1000));
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    exchange(&mut client, &request, 1000);
    fixture.cache.end(object, monotonic());
    client.send(&request);
    assert_eq!(read(&server), Some(request.clone()));
}

#[test]
fn a_response_under_way_is_ended_though_its_object_has() {
    let Some(mut fixture) = Fixture::new() else { return };
    let (request, response) = (get("/a"), response(3000));
    let object = fixture.known(&request, &response);
    let mut client = fixture.client(Offer::default());
    client.send(&request);
    let first = client.receive_data();
    client.receive();
    client.receive();
    fixture.cache.end(object, monotonic());
    client.send_again(&request);
    let data = [first.payload, client.receive_data().payload, client.receive_data().payload].concat();
    assert_eq!(data, response.bytes);
}

#[test]
fn a_response_whose_place_was_used_again_ends_in_a_reset() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    let object = fixture.known(&request, &response(3000));
    let mut client = fixture.client(Offer::default());
    client.send(&request);
    client.receive_data();
    client.receive();
    client.receive();
    // Two minutes later by the server's clock.
    fixture.cache.end(object, monotonic());
    let later = monotonic() + HOUR;
    while fixture.cache.renew(object, monotonic()) {
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
    assert!(answer.at <= monotonic() && answer.at + Nanos::SECOND * 60 > monotonic());
    assert!(fixture.cache.answers().is_empty());
}

#[test]
fn connections_are_forgotten_with_their_sockets() {
    let Some(mut fixture) = Fixture::new() else { return };
    let request = get("/a");
    fixture.known(&request, &response(1000));
    let mut diagnostics =
        fixture.wire.namespace.enter(sys::netlink::SocketDiagnostics::open).unwrap().unwrap();
    let mut exists = |client, server| diagnostics.connection_exists(server, client);
    let mut client = fixture.client(Offer::default());
    let server = fixture.accept();
    exchange(&mut client, &request, 1000);
    let now = monotonic();
    let last = fixture.cache.last_packet(client.from, fixture.address).unwrap().unwrap();
    assert!(last <= now && last + Nanos::SECOND * 60 > now);
    let later = now + HOUR;
    assert_eq!(fixture.cache.sweep(later, Nanos::SECOND, &mut exists).unwrap(), 0, "its socket is there");
    exchange(&mut client, &request, 1000);
    client.reset();
    drop(server);
    assert_eq!(fixture.cache.sweep(monotonic(), HOUR, &mut exists).unwrap(), 0, "it was there just now");
    assert_eq!(fixture.cache.sweep(later, Nanos::SECOND, &mut exists).unwrap(), 1);
    assert_eq!(fixture.cache.connections().unwrap(), 0);
    assert_eq!(fixture.cache.last_packet(client.from, fixture.address).unwrap(), None);
}

#[test]
fn a_full_table_of_connections_leaves_the_rest_to_the_server() {
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
    assert!(refused > 0);
    assert_eq!(fixture.cache.totals().no_room, refused);
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
