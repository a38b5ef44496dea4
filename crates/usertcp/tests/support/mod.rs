//! A link without a network, and the code that tests and fuzz targets share.
#![allow(dead_code, reason = "each test binary and fuzz target uses its part")]

pub mod client;
pub mod impaired;
pub mod model;
pub mod properties;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use base::{Nanos, Seed};
use usertcp::frame::{self, Arriving, Flow, Leaving, Received, Segment};
use usertcp::link::Packet;
use usertcp::{Config, Link, SourceNet, Stack};

/// The server's address and port in all tests.
pub fn server() -> SocketAddr {
    "10.0.0.1:80".parse().unwrap()
}

/// The net that connections come from.
pub fn net() -> SourceNet {
    "10.94.0.0/24".parse().unwrap()
}

/// Packets on their way, seen from both ends of a [`Wire`].
#[derive(Debug, Default)]
pub struct Wires {
    /// Packets sent by the stack.
    pub to_server: VecDeque<Vec<u8>>,
    /// Packets for the stack to receive.
    pub to_client: VecDeque<Vec<u8>>,
}

/// A link whose other end belongs to the test.
#[derive(Clone, Debug, Default)]
pub struct Wire(pub Rc<RefCell<Wires>>);

/// The stack's end. It holds its own packets, because it lends them.
pub struct ClientEnd {
    wire: Wire,
    out: Vec<Vec<u8>>,
    current: Vec<u8>,
}

impl Wire {
    pub fn client_end(&self) -> ClientEnd {
        ClientEnd { wire: self.clone(), out: Vec::new(), current: Vec::new() }
    }

    /// The next segment that the stack sent.
    pub fn take(&self) -> Option<(Received, Vec<u8>)> {
        let packet = self.0.borrow_mut().to_server.pop_front()?;
        let received = frame::read(&packet, Arriving::Whole).expect("the stack writes what can be read");
        let payload = packet[received.payload.clone()].to_vec();
        Some((received, payload))
    }

    /// Lets the stack receive a segment from the server, sent to `client`.
    pub fn inject(&self, client: SocketAddr, segment: &Segment, payload: &[u8]) {
        self.0.borrow_mut().to_client.push_back(packet(client, segment, payload));
    }
}

/// A packet from the server to `client`.
pub fn packet(client: SocketAddr, segment: &Segment, payload: &[u8]) -> Vec<u8> {
    let flow = Flow { local: server(), remote: client };
    let mut packet = vec![0; frame::length(&flow, segment, payload.len())];
    frame::write(&mut packet, &flow, segment, payload, Leaving::Whole);
    packet
}

impl Link for ClientEnd {
    fn mtu(&self) -> usize {
        1500
    }

    fn leaving(&self) -> Leaving {
        Leaving::Whole
    }

    fn packet_out(&mut self, length: usize) -> Option<&mut [u8]> {
        self.out.push(vec![0; length]);
        self.out.last_mut().map(Vec::as_mut_slice)
    }

    fn flush(&mut self) -> io::Result<u64> {
        self.wire.0.borrow_mut().to_server.extend(self.out.drain(..));
        Ok(0)
    }

    fn receive(&mut self) -> io::Result<bool> {
        let next = self.wire.0.borrow_mut().to_client.pop_front();
        let is_there = next.is_some();
        self.current = next.unwrap_or_default();
        Ok(is_there)
    }

    fn packet(&self) -> Packet<'_> {
        Packet { bytes: &self.current, checksum: Arriving::Whole }
    }

    fn wait(&mut self, _timeout: Nanos) -> io::Result<()> {
        Ok(())
    }
}

/// A stack on a wire, at time zero.
pub fn stack(wire: &Wire, seed: Seed, epoch: Nanos) -> Stack<ClientEnd> {
    let config = Config { server: server(), net: net(), seed, epoch, syn_linear_timeouts: 4 };
    Stack::new(wire.client_end(), config, Nanos::ZERO)
}

/// The byte at an offset of a direction's stream; the two directions differ.
pub fn pattern(offset: u64, from_server: bool) -> u8 {
    let mixed = (offset ^ u64::from(from_server) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}
