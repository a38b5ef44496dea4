//! A client that blocks, and knows what it should get.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than anything takes but a failure.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Client {
    stream: TcpStream,
    /// Received and not yet taken.
    pending: Vec<u8>,
}

pub struct Response {
    head: String,
    pub status: u16,
    pub body: Vec<u8>,
}

impl Response {
    /// The value of Retry-After.
    pub fn retry_after(&self) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix("Retry-After: "))
    }
}

/// A request for a file.
pub fn question(name: &str) -> String {
    format!("GET /{name} HTTP/1.1\r\nHost: test\r\n\r\n")
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, pending: Vec::new() }
    }

    pub fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// Sends an urgent byte, which wakes whoever waits for the connection and cannot be received in its order.
    pub fn nudge(&mut self) {
        let sent = rustix::net::send(&self.stream, b"!", rustix::net::SendFlags::OOB);
        assert_eq!(sent, Ok(1));
    }

    pub fn ask(&mut self, name: &str) {
        self.send(&question(name));
    }

    /// Asks for a file and gives what came, which must be a 200.
    pub fn get(&mut self, name: &str) -> Vec<u8> {
        self.ask(name);
        let response = self.response();
        assert_eq!(response.status, 200, "{name}");
        response.body
    }

    /// The next response, with the content that its Content-Length promises.
    pub fn response(&mut self) -> Response {
        let end = loop {
            match self.pending.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => assert!(self.receive().unwrap() > 0, "the connection ended in a head"),
            }
        };
        let head = String::from_utf8(self.pending.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while self.pending.len() < length {
            assert!(self.receive().unwrap() > 0, "the connection ended in a body");
        }
        Response { head, status, body: self.pending.drain(..length).collect() }
    }

    /// Waits for the connection's end, and gives how many bytes came before it.
    pub fn end(&mut self) -> usize {
        loop {
            match self.receive() {
                Ok(0) => return self.pending.len(),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return self.pending.len(),
                Err(error) => panic!("instead of the end: {error}"),
                Ok(_) => {}
            }
        }
    }

    /// Returns true if the connection has ended and nothing came before that.
    pub fn has_ended(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let ended = matches!(self.stream.peek(&mut [0]), Ok(0));
        self.stream.set_nonblocking(false).unwrap();
        ended
    }

    /// Waits until bytes have come, and takes some of them.
    pub fn wait_for_bytes(&mut self) {
        assert!(self.receive().unwrap() > 0);
    }

    /// Shuts down the sending side.
    pub fn end_sending(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    fn receive(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 64 * 1024];
        let count = self.stream.read(&mut buffer)?;
        self.pending.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}
