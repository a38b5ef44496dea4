//! Conversations with `examples/fdm-server.c`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base::Nanos;
use sys::process::{Child, Program};

use crate::installation::{Installation, Linked, under_valgrind};

const LONG: Nanos = Nanos::from_secs(60);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const LAST_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Compiles the server, and checks that it serves and ends, also under valgrind.
pub fn serves(installation: &Installation, linked: Linked) {
    let program = installation.compile("examples/fdm-server.c", linked);
    serves_and_ends(&Program::new(&program));
    if let Some((valgrind, arguments)) = under_valgrind(&program) {
        serves_and_ends(&Program::new(valgrind).arguments(arguments));
    }
}

fn serves_and_ends(program: &Program<'_>) {
    let mut child = program.start().unwrap();
    let address = address(&mut child);
    replies_are_kept_coming(address);
    idle_connections_do_not_hold_up_others(address);

    let left_open = connect(address);
    let exit = child.terminate(LONG).unwrap();
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert!(exit.status.success(), "{:?}: {:?}\n{complaints}", program.command_line(), exit.status);
    drop(left_open);
}

/// The address that the server prints.
fn address(child: &mut Child) -> SocketAddr {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().strip_prefix("listening on ").expect("where it listens").parse().unwrap()
}

fn replies_are_kept_coming(address: SocketAddr) {
    let mut connection = connect(address);
    // The requests come in pieces, then two at once, then the last.
    for piece in REQUEST.chunks(5) {
        connection.write_all(piece).unwrap();
    }
    reply(&mut connection);
    connection.write_all(&[REQUEST, REQUEST].concat()).unwrap();
    reply(&mut connection);
    reply(&mut connection);
    connection.write_all(LAST_REQUEST).unwrap();
    reply(&mut connection);
    assert_eq!(connection.read(&mut [0]).unwrap(), 0);
}

fn idle_connections_do_not_hold_up_others(address: SocketAddr) {
    let mut connections: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
    for _ in 0..50 {
        connections[0].write_all(REQUEST).unwrap();
        reply(&mut connections[0]);
    }
    // By now the others are in the set that is polled least often.
    for connection in &mut connections {
        connection.write_all(REQUEST).unwrap();
        reply(connection);
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(Duration::from(LONG))).unwrap();
    connection
}

/// Reads one reply and checks it.
fn reply(connection: &mut TcpStream) {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n";
    let mut received = vec![0; HEAD.len() + 1024];
    connection.read_exact(&mut received).unwrap();
    let (head, body) = received.split_at(HEAD.len());
    assert_eq!(head, HEAD);
    assert!(body.iter().all(|byte| *byte == b'x'));
}
