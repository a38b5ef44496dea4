//! A server behind the kernel cache, and the steps that most tests take.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;

use base::{Clock, Nanos, RealClock};
use bpf::kernel_cache::{KernelCache, Limits, ObjectId};

use crate::common::packet::{ACK, FIN};
use crate::common::wire::{Client, Offer, SERVER, TUN, Wire};
use crate::common::{device, or_skip};

pub const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";
pub const HOUR: Nanos = Nanos::from_secs(3600);
/// A segment of three pieces.
pub const SEGMENT: usize = 1344;
pub const PORT: u16 = 40_000;

/// A response, and where its date is.
#[derive(Clone)]
pub struct Response {
    pub bytes: Vec<u8>,
    pub date_at: usize,
}

/// A response of this many bytes, head and all, unlike any other.
pub fn response(length: usize) -> Response {
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

pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: example\r\n\r\n").into_bytes()
}

/// A listener with the program before it, and the client's end of its device.
pub struct Fixture {
    pub wire: Rc<Wire>,
    pub listener: TcpListener,
    pub cache: KernelCache,
    pub address: SocketAddr,
}

impl Fixture {
    pub fn new() -> Option<Fixture> {
        Fixture::at((SERVER, 0).into())
    }

    pub fn at(address: SocketAddr) -> Option<Fixture> {
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
    pub fn known(&mut self, request: &[u8], response: &Response) -> ObjectId {
        let mut undated = response.bytes.clone();
        undated[response.date_at..response.date_at + DATE.len()].fill(b'?');
        let object = self.cache.put(&undated, Some(response.date_at), RealClock.now()).unwrap();
        assert!(self.cache.know(request, object));
        assert!(self.cache.renew(object, RealClock.now() + HOUR));
        object
    }

    pub fn client(&self, offer: Offer) -> Client {
        Client::connect(&self.wire, self.address, PORT, offer)
    }

    /// The connection at the server, which has read nothing of it yet.
    pub fn accept(&self) -> TcpStream {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }
}

/// Returns the bytes that the server has received and not read yet; `None` at the end of the connection.
pub fn read(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(0) => None,
        Ok(length) => Some(buffer[..length].to_vec()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(Vec::new()),
        Err(error) => panic!("read: {error}"),
    }
}

/// Asks, takes the whole response, and acknowledges it. Returns it.
pub fn exchange(client: &mut Client, request: &[u8], length: usize) -> Vec<u8> {
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
pub fn collect(client: &mut Client, length: usize) -> Vec<u8> {
    let mut data = client.receive_data().payload;
    while data.len() < length {
        client.acknowledge();
        data.extend(client.receive_data().payload);
    }
    assert_eq!(data.len(), length);
    data
}

/// Closes a connection from the client's side, in order.
pub fn end_by_client(client: &mut Client, server: TcpStream) {
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

/// Resets a connection from the client's side. The server sees it.
pub fn reset_by_client(client: &mut Client, mut server: &TcpStream) {
    client.reset();
    let error = server.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Closes a connection from the server's side, in order.
pub fn end_by_server(client: &mut Client, server: TcpStream) {
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
