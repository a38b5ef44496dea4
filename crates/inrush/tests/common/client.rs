//! A client that sends any bytes and reads responses one by one.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::PATIENCE;

/// One connection to the server.
pub struct Client {
    pub stream: TcpStream,
    received: Vec<u8>,
}

/// A response, with its content free of any framing.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// Status line and fields.
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn says_close(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        Client::over(TcpStream::connect(address).unwrap())
    }

    /// A client on an established connection.
    pub fn over(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, received: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a GET with further header lines, each with its line end.
    pub fn send_get(&mut self, path: &str, lines: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"));
    }

    pub fn get_with(&mut self, path: &str, lines: &str) -> Response {
        self.send_get(path, lines);
        self.response()
    }

    pub fn get(&mut self, path: &str) -> Response {
        self.get_with(path, "")
    }

    /// Shuts down the sending side.
    pub fn end(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The next response.
    pub fn response(&mut self) -> Response {
        let (status, head) = self.head();
        let mut response = Response { status, head, body: Vec::new() };
        if !matches!(status, 100..=199 | 204 | 304) {
            let length = response.field("content-length").expect("a length").parse().unwrap();
            response.body = self.take(length);
        }
        response
    }

    /// The next response, to a HEAD request.
    pub fn response_to_head(&mut self) -> Response {
        let (status, head) = self.head();
        Response { status, head, body: Vec::new() }
    }

    fn head(&mut self) -> (u16, String) {
        let end = loop {
            match self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => assert!(self.receive() > 0, "the connection ended within {}", self.so_far()),
            }
        };
        let head = String::from_utf8(self.received.drain(..end).collect()).unwrap();
        let status = head.strip_prefix("HTTP/1.1 ").expect("a status line")[..3].parse().unwrap();
        (status, head)
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        while self.received.len() < length {
            assert!(self.receive() > 0, "the connection ended {} bytes short", length - self.received.len());
        }
        self.received.drain(..length).collect()
    }

    /// All bytes up to the end of the connection, by FIN or by reset.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.receive() > 0 {}
        std::mem::take(&mut self.received)
    }

    /// Waits for the end. Returns true if no byte came before it.
    pub fn ends(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// Reads once. Returns 0 at the end.
    pub fn receive(&mut self) -> usize {
        let mut chunk = [0; 64 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(count) => {
                    self.received.extend_from_slice(&chunk[..count]);
                    return count;
                }
                // A read with a timeout is not restarted after a signal, such as that of a stopped child.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return 0,
                Err(error) => panic!("{error}, after {}", self.so_far()),
            }
        }
    }

    fn so_far(&self) -> String {
        format!("{} bytes: {:?}", self.received.len(), String::from_utf8_lossy(&self.received))
    }
}
