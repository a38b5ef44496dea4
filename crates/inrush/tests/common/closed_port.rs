//! A port on which nobody listens.

use std::net::{SocketAddr, TcpListener};

use rustix::net::{AddressFamily, SocketType, bind, socket};

/// Binds a port on which nobody listens. Nobody else can take it while the socket lives.
pub fn closed_port() -> TcpListener {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    TcpListener::from(socket)
}
