//! One connection of the readiness loop.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use base::Nanos;

use crate::accept::Arrived;
use crate::driver::machine::Machine;
use crate::settings::LiveSettings;
use crate::slots::Slot;

/// A socket, its protocol machine, and when its entry in the timers comes up.
pub struct Peer {
    pub socket: OwnedFd,
    pub machine: Machine,
    pub address: Option<SocketAddr>,
    /// The earliest entry this connection has in the timers.
    pub comes_up: Nanos,
    /// It is in the work-pending list.
    pub pending: bool,
    /// It waits for something else than its peer.
    pub waits: bool,
    /// It is among those whose last turn ended early.
    pub unfinished: bool,
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
            pending: false,
            waits: false,
            unfinished: false,
            _slot: slot,
        }
    }
}
