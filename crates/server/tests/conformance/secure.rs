//! The common duties of all architectures under TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base::Nanos;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use server::{CertificateFiles, ServeConfig, architecture};
use tempfile::TempDir;

use super::client::question;
use super::harness::{Files, Running, Variant, alone, on_every};

const PATIENCE: Duration = Duration::from_secs(30);

/// A certificate for localhost, and a client that believes it.
pub struct Identity {
    folder: TempDir,
    client: Arc<ClientConfig>,
}

impl Identity {
    pub fn new() -> Identity {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Identity { folder, client: client(made.cert.der()) }
    }

    /// The same server as of a variant, under TLS.
    pub fn config(&self, variant: &Variant, files: &Files) -> ServeConfig {
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| self.folder.path().join(name));
        ServeConfig {
            tls: vec![CertificateFiles { certificate, key, ocsp: None, host: None }],
            ..variant.config(files)
        }
    }

    /// A stream that offers one protocol by ALPN.
    pub fn stream(&self, protocol: &str, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
        let mut config = (*self.client).clone();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Client::new(&Arc::new(config), address).stream
    }

    fn connect(&self, server: &Running) -> Client {
        Client::new(&self.client, server.address)
    }
}

fn client(certificate: &CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    // With the key exchange that browsers ask for: it takes the most stack and the longest hello.
    let provider = Arc::new(tls::provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

fn plain(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A client that blocks.
struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    pending: Vec<u8>,
}

impl Client {
    fn new(config: &Arc<ClientConfig>, address: SocketAddr) -> Client {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        Client { stream: StreamOwned::new(tls, plain(address)), pending: Vec::new() }
    }

    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
        self.stream.flush().unwrap();
    }

    fn get(&mut self, name: &str) -> Vec<u8> {
        self.send(&question(name));
        self.response()
    }

    /// The content of the next response.
    fn response(&mut self) -> Vec<u8> {
        let end = loop {
            match self.pending.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => assert!(self.receive() > 0, "the connection ended in a head"),
            }
        };
        let head = String::from_utf8(self.pending.drain(..end).collect()).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let length = length.parse().unwrap();
        while self.pending.len() < length {
            assert!(self.receive() > 0, "the connection ended in a body");
        }
        self.pending.drain(..length).collect()
    }

    /// Bytes that came; none at an end that the server has announced.
    fn receive(&mut self) -> usize {
        let mut buffer = [0; 64 * 1024];
        let count = self.stream.read(&mut buffer).unwrap();
        self.pending.extend_from_slice(&buffer[..count]);
        count
    }

    /// Returns true if the server ends the connection by close_notify, and sends nothing before.
    fn ends_well(&mut self) -> bool {
        self.receive() == 0
    }

    /// Ends as TLS wants it.
    fn close(mut self) {
        self.stream.conn.send_close_notify();
        self.stream.flush().unwrap();
    }
}

#[test]
fn tls_clients_get_their_bytes_in_order() {
    let identity = Identity::new();
    on_every(|variant, files| {
        let server = Running::start(variant, identity.config(variant, files));
        // The tickets of the first are there for the others.
        let mut first = identity.connect(&server);
        assert!(first.get(&files.contents[0].0) == files.contents[0].1);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut client = identity.connect(&server);
                    for (name, content) in &files.contents {
                        assert!(client.get(name) == *content, "{name}");
                    }
                    let questions: String = files.contents.iter().map(|(name, _)| question(name)).collect();
                    client.send(&questions.repeat(5));
                    for turn in 0..5 * files.contents.len() {
                        let (name, content) = &files.contents[turn % files.contents.len()];
                        assert!(client.response() == *content, "{turn}: {name}");
                    }
                    client.send("GET /10.bin HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
                    client.response();
                    assert!(client.ends_well());
                    client.close();
                });
            }
        });
        first.close();
        server.until("all to be closed", |counters| counters.loops.closed == 4);
        let loops = server.counters().loops;
        assert_eq!(loops.peers.tls_handshakes_begun, 4);
        assert_eq!(loops.peers.tls_handshakes_full + loops.peers.tls_handshakes_resumed, 4, "{loops:?}");
        assert!(loops.peers.tls_handshakes_resumed > 0, "{loops:?}");
        assert_eq!(
            loops.peers.tls_truncated + loops.peers.tls_broken + loops.peers.tls_handshakes_failed,
            0,
            "{loops:?}"
        );
        server.stop();
    });
}

/// One variant of each architecture that runs in this process.
fn on_each_architecture(case: impl Fn(&Variant, &Files)) {
    let _alone = alone();
    let files = Files::new();
    for known in architecture::ALL.iter().filter(|known| !known.has_workers() && known.name != "amped") {
        println!("{}", known.name);
        case(&Variant::plain(known), &files);
    }
}

/// The memory in use of each stack of a user-level thread, with its size, in KiB. Such a stack is the only mapping of
/// less than a MiB that lies above a guard page.
fn user_stacks() -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut stacks = Vec::new();
    let (mut guard, mut end, mut size, mut is_stack) = (None, None, 0, false);
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(first), Some(second)) = (words.next(), words.next()) else { continue };
        match first {
            "Size:" => {
                size = second.parse().unwrap();
                guard = guard.filter(|_| size == 4);
            }
            "Rss:" if is_stack && size < 1024 => stacks.push((second.parse().unwrap(), size)),
            _ if first.contains('-') => {
                let (from, to) = first.split_once('-').unwrap();
                is_stack =
                    second == "rw-p" && guard.is_some() && guard == end && end.as_deref() == Some(from);
                guard = (second == "---p").then(|| to.to_owned());
                end = Some(to.to_owned());
            }
            _ => {}
        }
    }
    stacks
}

#[test]
fn hybrid_handshake_leaves_half_of_a_user_stack() {
    let identity = Identity::new();
    on_each_architecture(|variant, files| {
        if !variant.name().starts_with("knot") {
            return;
        }
        let server = Running::start(variant, identity.config(variant, files));
        for _ in 0..3 {
            let mut client = identity.connect(&server);
            assert!(client.get(&files.contents[0].0) == files.contents[0].1);
            let group = client.stream.conn.negotiated_key_exchange_group().unwrap().name();
            assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
            client.close();
        }
        let (most, size) = user_stacks().into_iter().max().unwrap();
        println!("{most} of {size} KiB");
        assert!(most > 8, "a handshake takes more than two pages");
        assert!(2 * most <= size, "{most} of {size} KiB");
        server.stop();
    });
}

#[test]
fn who_speaks_no_tls_is_told_at_once() {
    let identity = Identity::new();
    on_each_architecture(|variant, files| {
        let server = Running::start(variant, identity.config(variant, files));
        let mut client = plain(server.address);
        client.write_all(b"G").unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert!(
            said.starts_with("HTTP/1.1 400 ") && said.ends_with("use https:// in place of http://\n"),
            "{said}"
        );
        drop(client);
        let mut client = plain(server.address);
        client.write_all(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00").unwrap();
        let mut alert = Vec::new();
        client.read_to_end(&mut alert).unwrap();
        assert_eq!((alert[0], alert.len()), (21, 7), "a fatal alert");
        drop(client);
        server.until("both to be counted", |counters| {
            let loops = &counters.loops;
            (loops.closed, loops.peers.tls_plain_http, loops.peers.tls_handshakes_failed) == (2, 1, 1)
        });
        server.stop();
    });
}

#[test]
fn who_does_not_finish_is_counted_by_what_it_left_out() {
    let identity = Identity::new();
    on_each_architecture(|variant, files| {
        let mut config = identity.config(variant, files);
        // The first bytes of a client come earlier on a busy machine too.
        config.http.timeouts.header = Nanos::from_secs(2);
        let server = Running::start(variant, config);
        let mut slow = plain(server.address);
        slow.write_all(b"\x16\x03\x01").unwrap();
        let mut silent = plain(server.address);
        let ended = slow.read(&mut [0]);
        assert!(matches!(ended, Ok(0)) || ended.unwrap_err().kind() == ErrorKind::ConnectionReset);
        assert_eq!(silent.read(&mut [0]).unwrap(), 0);
        server.until("both to be counted", |counters| {
            counters.loops.peers.tls_handshakes_timed_out == 1 && counters.http.timeouts_header == 1
        });
        let mut gone = plain(server.address);
        gone.write_all(b"\x16\x03\x01").unwrap();
        drop(gone);
        server.until("it to be counted", |counters| counters.loops.peers.tls_handshakes_failed == 1);
        let mut cut = identity.connect(&server);
        cut.get(&files.contents[0].0);
        drop(cut);
        server.until("it to be counted", |counters| counters.loops.peers.tls_truncated == 1);
        drop((slow, silent));
        server.until("all to be gone", |counters| counters.loops.closed == 4);
        server.stop();
    });
}

#[test]
fn reclaimed_tls_connection_gets_close_notify() {
    let identity = Identity::new();
    on_each_architecture(|variant, files| {
        let mut config = identity.config(variant, files);
        config.max_connections = 1;
        let server = Running::start(variant, config);
        let (name, content) = &files.contents[0];
        let mut idle = identity.connect(&server);
        assert!(idle.get(name) == *content);
        server.until("it to be idle", |counters| counters.http.requests == 1);
        let mut new = identity.connect(&server);
        assert!(new.get(name) == *content);
        assert!(idle.ends_well());
        server.until("it to be counted", |counters| {
            (counters.loops.closed, counters.loops.reclaimed) == (1, 1)
        });
        assert_eq!(server.counters().loops.peers.tls_truncated, 0);
        drop((idle, new));
        server.stop();
    });
}

#[test]
fn tls_drain_finishes_requests_and_sends_close_notify() {
    let identity = Identity::new();
    on_each_architecture(|variant, files| {
        let server = Running::start(variant, identity.config(variant, files));
        let mut idle = identity.connect(&server);
        idle.get(&files.contents[0].0);
        let (name, content) = files.largest();
        let mut busy = identity.connect(&server);
        busy.get(&files.contents[0].0);
        busy.send(&question(name));
        let drained = server.stop_while(move || {
            assert!(busy.response() == *content);
            assert!(busy.ends_well());
            assert!(idle.ends_well());
        });
        assert_eq!(drained.cut_off, 0);
    });
}
