//! One connection of the completion loop.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use base::{Key, Nanos};

use crate::accept::Arrived;
use crate::driver::machine::Machine;
use crate::settings::LiveSettings;
use crate::slots::Slot;

/// A socket, its protocol machine, and its operations in flight.
pub struct Peer {
    pub socket: OwnedFd,
    pub machine: Machine,
    pub address: Option<SocketAddr>,
    /// The earliest entry this connection has in the timers.
    pub comes_up: Nanos,
    /// The receive in flight.
    pub receiving: Option<Key>,
    /// A send, or a wait for room in the socket, is in flight.
    pub sending: bool,
    /// Bytes have come, so that more are expected: the next receive goes on until it is ended.
    pub has_spoken: bool,
    /// Bytes that came while output waited.
    pub early: Vec<u8>,
    /// The receive in flight is being cancelled, because enough bytes wait.
    pub is_held: bool,
    /// The end of the stream came while output waited.
    pub ended_early: bool,
    /// Behind the socket: whoever gets the slot needs a descriptor.
    _slot: Slot,
}

impl Peer {
    /// A connection that was accepted.
    pub fn new(arrived: Arrived, settings: &LiveSettings) -> Peer {
        let Arrived { socket, peer: address, at, slot } = arrived;
        Peer {
            socket,
            machine: Machine::new(at, settings),
            address,
            comes_up: Nanos::MAX,
            receiving: None,
            sending: false,
            has_spoken: false,
            early: Vec::new(),
            is_held: false,
            ended_early: false,
            _slot: slot,
        }
    }
}
