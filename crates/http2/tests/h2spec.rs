//! The conformance suite h2spec against a connection on a real socket; skipped where the program is not installed.
#![allow(clippy::disallowed_methods, reason = "runs a program")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;

use http_semantics::server::Wants;
use support::Peer;

fn serve(mut socket: TcpStream) {
    let mut peer = Peer::silent();
    let mut bytes = [0; 16_384];
    loop {
        let wanted = peer.connection.wants();
        peer.take_output();
        if socket.write_all(&std::mem::take(&mut peer.output)).is_err() || wanted == Wants::Close {
            return;
        }
        if wanted == Wants::ShutdownThenReceive {
            let _ = socket.shutdown(Shutdown::Write);
        }
        match socket.read(&mut bytes) {
            Ok(count) if count > 0 => peer.receive(&bytes[..count]),
            _ => return,
        }
        if peer.connection.deadline() < base::Nanos::from_secs(5) {
            // A lingering close: the simulated clock stands still.
            let _ = socket.write_all(&std::mem::take(&mut peer.output));
            let _ = socket.shutdown(Shutdown::Both);
            return;
        }
    }
}

#[test]
fn h2spec_passes() {
    let Ok(listener) = TcpListener::bind("127.0.0.1:0") else { return println!("skipped: no loopback") };
    let port = listener.local_addr().expect("a bound socket has an address").port();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || serve(socket));
        }
    });
    let run = Command::new("h2spec")
        .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--timeout", "2"])
        .output();
    let output = match run {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return println!("skipped: h2spec is not installed");
        }
        run => run.unwrap(),
    };
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "h2spec found mistakes");
}
