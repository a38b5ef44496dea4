//! Tests of one connection's TLS over a socket pair.

use super::*;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use rustls::{NamedGroup, ServerConnection, StreamOwned};

use crate::engine::scripted::identity::{Identity, identity, identity_with};
use crate::engine::wire::transport::KernelSockets;
use crate::engine::wire::transport::sources::Sources;
use crate::plan::choices::tls::{KeyExchange, TlsOptions, TlsVersion, Trust};
use crate::plan::config::Close;
use crate::plan::terms::target::addressing::Target;

fn sockets() -> KernelSockets {
    let nobody = Target::Internet(vec!["127.0.0.1:1".parse().unwrap()]);
    KernelSockets::new(&nobody, Sources::new(None, 0, Close::Fin)).unwrap()
}

fn trusting(identity: &Identity, resume: bool) -> Tls {
    let trust = Trust::Roots(identity.pem.path().to_owned());
    Tls::new("localhost", &TlsOptions { trust, resume, ..TlsOptions::default() }, false).unwrap()
}

/// Sends one request to an echoing server; returns the kind of handshake and the echo.
fn ask(tls: &Tls, identity: &Identity) -> io::Result<(Handshake, Vec<u8>)> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let config = Arc::clone(&identity.config);
    let server = thread::spawn(move || -> io::Result<()> {
        let session = ServerConnection::new(config).unwrap();
        let mut stream = StreamOwned::new(session, theirs);
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes)?;
        stream.write_all(&bytes)?;
        stream.conn.send_close_notify();
        stream.flush()
    });
    let socket = OwnedFd::from(ours);
    let (mut connection, mut transport) = (TlsConnection::new(tls), sockets());
    let exchange = || -> io::Result<(Handshake, Vec<u8>)> {
        assert_eq!(connection.send(&mut transport, &socket, b"hello")?, 5);
        let (mut handshake, mut got) = (None, Vec::new());
        let mut buffer = [0; 1024];
        loop {
            let received = connection.receive(&mut transport, &socket, &mut buffer).map(<[u8]>::to_vec);
            handshake = handshake.or(connection.handshake_ended());
            match received {
                Ok(bytes) if bytes.is_empty() => return Ok((handshake.unwrap(), got)),
                Ok(bytes) => got.extend(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    let result = { exchange }();
    drop(socket);
    let _ = server.join().unwrap();
    result
}

#[test]
fn second_connection_resumes_unless_turned_off() {
    let identity = identity();
    let resuming = trusting(&identity, true);
    for resumed in [false, true] {
        let (handshake, echo) = ask(&resuming, &identity).unwrap();
        assert_eq!((handshake.resumed, &echo[..]), (resumed, &b"hello"[..]));
    }
    let full = trusting(&identity, false);
    for _ in 0..2 {
        assert!(!ask(&full, &identity).unwrap().0.resumed);
    }
}

/// Both clients at a server with ring's groups alone, and at one with the hybrid.
#[test]
fn key_exchange_is_the_first_that_the_server_has() {
    let (modern, older) = (identity_with(::tls::provider()), identity());
    let (hybrid, classical) = (KeyExchange::Hybrid, KeyExchange::Classical);
    let (x25519, both) = (NamedGroup::X25519, NamedGroup::X25519MLKEM768);
    for (client, version, server, group) in [
        (hybrid, None, &modern, both),
        (classical, None, &modern, x25519),
        (hybrid, None, &older, x25519),
        (hybrid, Some(TlsVersion::V1_2), &modern, x25519),
    ] {
        let trust = Trust::Roots(server.pem.path().to_owned());
        let options = TlsOptions { trust, key_exchange: client, version, ..TlsOptions::default() };
        let tls = Tls::new("localhost", &options, false).unwrap();
        assert_eq!(ask(&tls, server).unwrap().0.group, Some(group), "{client} {version:?}");
        let again = ask(&tls, server).unwrap().0;
        // Only TLS 1.3 has a key exchange in a resumed handshake.
        assert_eq!((again.resumed, again.group), (true, version.is_none().then_some(group)));
    }
}

#[test]
fn strangers_are_refused_unless_anybody_is_trusted() {
    let (identity, stranger) = (identity(), identity());
    let error = ask(&trusting(&identity, true), &stranger).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    let anybody =
        Tls::new("localhost", &TlsOptions { trust: Trust::Anybody, ..TlsOptions::default() }, false).unwrap();
    assert_eq!(ask(&anybody, &stranger).unwrap().1, b"hello");
}

#[test]
fn a_socket_that_is_not_connected_takes_nothing() {
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    let anybody =
        Tls::new("127.0.0.1", &TlsOptions { trust: Trust::Anybody, ..TlsOptions::default() }, false).unwrap();
    assert!(TlsConnection::new(&anybody).send(&mut sockets(), &socket, b"hello").is_err());
}

#[test]
fn what_is_wrong_with_the_roots_is_named() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    let options = TlsOptions { trust: Trust::Roots(empty.path().to_owned()), ..TlsOptions::default() };
    let error = Tls::new("localhost", &options, false).unwrap_err().to_string();
    assert!(error.contains("it has no certificate; expected a PEM file"), "{error}");
    let error = Tls::new("a b", &TlsOptions::default(), false).unwrap_err().to_string();
    assert_eq!(error, "TLS: no certificate can name 'a b'");
}

/// The server closes the connection with the request unread, so sending fails after the reply.
#[test]
fn tls_reply_is_read_after_a_failed_send() {
    let identity = identity();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let config = Arc::clone(&identity.config);
    let (proceed, may_proceed) = channel();
    let server = thread::spawn(move || {
        let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), theirs);
        stream.conn.complete_io(&mut stream.sock).unwrap();
        may_proceed.recv().unwrap();
        stream.write_all(b"busy").unwrap();
        stream.flush().unwrap();
    });
    ours.set_nonblocking(true).unwrap();
    let socket = OwnedFd::from(ours);
    let tls = trusting(&identity, true);
    let (mut connection, mut transport) = (TlsConnection::new(&tls), sockets());
    connection.send(&mut transport, &socket, &vec![b'x'; 4 << 20]).unwrap();
    let mut buffer = [0; 16 * 1024];
    while connection.is_handshaking() {
        let received = connection.receive(&mut transport, &socket, &mut buffer);
        assert_eq!(received.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
    assert!(connection.wants_write());
    proceed.send(()).unwrap();
    server.join().unwrap();
    let received = connection.receive(&mut transport, &socket, &mut buffer);
    assert_eq!(received.unwrap(), b"busy");
}
