//! Minimal servers for the tests, with one thread per connection.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base::Nanos;
use load::Url;
use rustix::net::{AddressFamily, SocketType, bind, socket};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A free port of this network namespace.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The address of a test server. Its threads end with the test process.
pub struct Server {
    address: SocketAddr,
    /// Keeps a listener open that no thread accepts from.
    _listener: Option<TcpListener>,
}

impl Server {
    /// Answers every request with these bytes and keeps the connection.
    pub fn replying(reply: &'static [u8]) -> Server {
        Server::replying_at(ANY_PORT, reply)
    }

    /// Does the same at this address.
    pub fn replying_at(address: SocketAddr, reply: &'static [u8]) -> Server {
        Server::accepting_at(address, move |mut stream| {
            while read_request(&mut stream) {
                if stream.write_all(reply).is_err() {
                    break;
                }
            }
        })
    }

    /// Does the same over TLS with this configuration.
    pub fn replying_over_tls(config: Arc<ServerConfig>, reply: &'static [u8]) -> Server {
        Server::accepting(move |stream| {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(session, stream);
            while read_request(&mut stream) {
                if stream.write_all(reply).is_err() {
                    break;
                }
            }
        })
    }

    /// Answers one request at a time over all connections. It stalls for `pause` before answer number
    /// `before`, counted from 1.
    pub fn stalling(reply: &'static [u8], before: usize, pause: Nanos) -> Server {
        let answered = Arc::new(Mutex::new(0));
        Server::accepting(move |mut stream| {
            while read_request(&mut stream) {
                let mut answered = answered.lock().unwrap();
                *answered += 1;
                if *answered == before {
                    sys::readiness::poll::wait(&mut [], Some(pause)).unwrap();
                }
                if stream.write_all(reply).is_err() {
                    break;
                }
            }
        })
    }

    /// Answers every request after a delay.
    pub fn delaying(reply: &'static [u8], delay: Nanos) -> Server {
        Server::accepting(move |mut stream| {
            while read_request(&mut stream) {
                sys::readiness::poll::wait(&mut [], Some(delay)).unwrap();
                if stream.write_all(reply).is_err() {
                    break;
                }
            }
        })
    }

    /// Answers every request in two parts, with a pause between them.
    pub fn streaming(first: &'static [u8], pause: Nanos, rest: &'static [u8]) -> Server {
        Server::accepting(move |mut stream| {
            while read_request(&mut stream) && stream.write_all(first).is_ok() {
                sys::readiness::poll::wait(&mut [], Some(pause)).unwrap();
                if stream.write_all(rest).is_err() {
                    break;
                }
            }
        })
    }

    /// Answers one request on each connection and closes it.
    pub fn replying_once(reply: &'static [u8]) -> Server {
        Server::accepting(move |mut stream| {
            if read_request(&mut stream) {
                let _ = stream.write_all(reply);
            }
        })
    }

    /// Answers one request with these bytes and resets the connection.
    pub fn resetting(reply: &'static [u8]) -> Server {
        Server::accepting(move |mut stream| {
            if read_request(&mut stream) {
                let _ = stream.write_all(reply);
            }
            let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        })
    }

    /// Reads requests and sends nothing.
    pub fn silent() -> Server {
        Server::accepting(|mut stream| while read_request(&mut stream) {})
    }

    /// Answers requests by turns with `odd` and `even`, counted over all connections.
    pub fn alternating(odd: &'static [u8], even: &'static [u8]) -> Server {
        let asked = Arc::new(AtomicUsize::new(0));
        Server::accepting(move |mut stream| {
            while read_request(&mut stream) {
                let reply = if asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) { odd } else { even };
                if stream.write_all(reply).is_err() {
                    break;
                }
            }
        })
    }

    /// Closes every connection at once.
    pub fn closing() -> Server {
        Server::accepting(drop)
    }

    /// Sends these bytes on every connection before any request, and closes after the client.
    pub fn greeting(reply: &'static [u8]) -> Server {
        Server::accepting(move |mut stream| {
            // The client may have closed the connection.
            let _ = stream.write_all(reply);
            while read_request(&mut stream) {}
        })
    }

    /// Answers one request on each connection and reports whether the client reset the connection.
    pub fn noting_resets(reply: &'static [u8]) -> (Server, Receiver<bool>) {
        let (sender, receiver) = channel();
        let server = Server::accepting(move |mut stream| {
            if read_request(&mut stream) && stream.write_all(reply).is_ok() {
                // The test may be over.
                let _ = sender.send(stream.read(&mut [0]).is_err());
            }
        });
        (server, receiver)
    }

    /// Answers nothing and reports the bytes of each read.
    pub fn listening() -> (Server, Receiver<Vec<u8>>) {
        let (sender, receiver) = channel();
        let server = Server::accepting(move |mut stream| {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                // The test may be over.
                let _ = sender.send(buffer[..length].to_vec());
            }
        });
        (server, receiver)
    }

    /// Answers every request and reports its line beforehand, with its number on the connection, counted from 0.
    pub fn noting_requests(reply: &'static [u8]) -> (Server, Receiver<(usize, String)>) {
        let (sender, receiver) = channel();
        let server = Server::accepting(move |mut stream| {
            for number in 0.. {
                let Some(head) = read_head(&mut stream) else { break };
                let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
                // The test may be over.
                let _ = sender.send((number, line));
                if stream.write_all(reply).is_err() {
                    break;
                }
            }
        });
        (server, receiver)
    }

    /// Has an accept queue for two connections and accepts none.
    pub fn never_accepting() -> Server {
        let listener = TcpListener::bind(ANY_PORT).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        Server { address: listener.local_addr().unwrap(), _listener: Some(listener) }
    }

    /// A port without a listener. Nobody else can take it while this lives.
    pub fn closed() -> Server {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &ANY_PORT).unwrap();
        let bound = TcpListener::from(socket);
        Server { address: bound.local_addr().unwrap(), _listener: Some(bound) }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its root.
    pub fn url(&self) -> Url {
        format!("http://{}/", self.address).parse().unwrap()
    }

    /// The URL of its root over TLS.
    pub fn secure_url(&self) -> Url {
        format!("https://localhost:{}/", self.address.port()).parse().unwrap()
    }

    /// Serves every connection in a thread of its own.
    pub fn accepting(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Server {
        Server::accepting_at(ANY_PORT, serve)
    }

    fn accepting_at(address: SocketAddr, serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Server {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serve = serve.clone();
                thread::spawn(move || serve(stream));
            }
        });
        Server { address, _listener: None }
    }
}

/// Reads the head of one request; returns false at the end of the connection.
pub fn read_request(stream: &mut impl Read) -> bool {
    read_head(stream).is_some()
}

fn read_head(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(head)
}
