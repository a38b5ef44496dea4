//! A listener that accepts no connection, as a target whose arrivals cost no other process anything.
//!
//! Its accept queue has room for two connections. The kernel drops every further SYN, and counts it. An abandoned
//! connect sends one SYN only, if it is given up before the kernel's first retransmission, 1 s later.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use crate::exit::Exit;

/// A listener whose queue is full after two connections.
pub struct FullListener {
    listener: TcpListener,
}

impl FullListener {
    /// Listens on an address; port 0 is any free port.
    pub fn listen(address: SocketAddr) -> Result<FullListener, Exit> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            rustix::net::listen(&listener, 1)?;
            Ok(FullListener { listener })
        };
        listen().map_err(|error: io::Error| Exit::Failed(format!("cannot listen on {address}: {error}")))
    }

    /// The address with its port.
    pub fn address(&self) -> Result<SocketAddr, Exit> {
        self.listener.local_addr().map_err(|error| Exit::Failed(format!("cannot listen: {error}")))
    }

    /// Connections for which the kernel had no room, since the listener was made. The count wraps.
    pub fn dropped(&self) -> Result<u32, Exit> {
        let queue = sys::socket::accept_queue(self.listener.as_fd())
            .map_err(|error| Exit::Failed(format!("cannot ask for the accept queue: {error}")))?;
        Ok(queue.drops)
    }
}
