//! A transport without a network, for tests: the test is the server, and waiting moves the clock.

#[path = "../../tests/engine/identity.rs"]
pub(super) mod identity;

use std::cell::{RefCell, RefMut};
use std::io;
use std::num::NonZeroU32;
use std::rc::Rc;

use base::{Clock, Key, Nanos, SimulatedClock, WallTime};
use rustix::io::Errno;

use super::Engine;
use super::settings::Settings;
use crate::engine::time::schedule::Schedule;
use crate::engine::wire::transport::{Event, Transport};
use crate::plan::Plan;
use crate::plan::config::{Client, Config};
use crate::plan::preflight::prepare;

/// A connection as its server sees it.
pub(super) struct Peer {
    /// The time of the connect on the test's clock.
    pub began: Nanos,
    /// The number of bytes that the connection still takes.
    pub room: usize,
    /// The bytes that the connection has taken.
    pub heard: Vec<u8>,
    /// The bytes that the client receives with its next read.
    pub says: &'static [u8],
    /// True after a reset: the client can send nothing, and still receives what the server said before.
    pub is_reset: bool,
}

/// A server for one client; clones are the same server.
#[derive(Clone)]
pub(super) struct Scripted {
    pub clock: SimulatedClock,
    /// The connections in the order of their connects.
    pub peers: Rc<RefCell<Vec<Peer>>>,
}

impl Scripted {
    pub fn new() -> Scripted {
        Scripted { clock: SimulatedClock::new(WallTime::default()), peers: Rc::default() }
    }

    /// One connection, counted from 0.
    pub fn peer(&self, number: usize) -> RefMut<'_, Peer> {
        RefMut::map(self.peers.borrow_mut(), |peers| &mut peers[number])
    }

    /// An engine whose run starts when the clock shows `origin`.
    pub fn engine<'a>(
        &self,
        plan: &'a Plan,
        origin: Nanos,
        schedule: Schedule,
    ) -> Engine<'a, SimulatedClock, Scripted> {
        let seeds = plan.config.seed.rng();
        Engine::new(self.clock.clone(), origin, Settings::of(plan), schedule, seeds, self.clone())
    }

    /// Asserts that there were connects, and none before `start`.
    #[track_caller]
    pub fn assert_begun_after(&self, start: Nanos) {
        let begun: Vec<Nanos> = self.peers.borrow().iter().map(|peer| peer.began).collect();
        assert!(!begun.is_empty() && begun.iter().all(|began| *began >= start), "{begun:?}");
    }
}

/// A plan of closed-loop clients, with room for eight connects, as `change` changes it.
pub(super) fn plan(change: impl FnOnce(&mut Config)) -> Plan {
    let client = Client::Closed { clients: NonZeroU32::new(8).unwrap() };
    let url = "http://127.0.0.1/".parse().unwrap();
    let mut config = Config { warmup: Nanos::ZERO, ..Config::new(vec![url], client) };
    change(&mut config);
    prepare(config).unwrap()
}

impl Transport for Scripted {
    type Socket = usize;

    fn connect(&mut self, _key: Key) -> io::Result<usize> {
        let mut peers = self.peers.borrow_mut();
        let began = self.clock.now();
        peers.push(Peer { began, room: usize::MAX, heard: Vec::new(), says: b"", is_reset: false });
        Ok(peers.len() - 1)
    }

    fn connect_again(&mut self, socket: &mut usize, key: Key) -> io::Result<()> {
        *socket = self.connect(key)?;
        Ok(())
    }

    fn established(&mut self, _socket: &usize) -> io::Result<()> {
        Ok(())
    }

    fn send(&mut self, socket: &usize, bytes: &[u8]) -> io::Result<usize> {
        let mut peer = self.peer(*socket);
        let taken = bytes.len().min(peer.room);
        if peer.is_reset {
            return Err(Errno::CONNRESET.into());
        }
        if taken == 0 {
            return Err(Errno::AGAIN.into());
        }
        peer.room -= taken;
        peer.heard.extend(&bytes[..taken]);
        Ok(taken)
    }

    fn receive<'b>(&'b mut self, socket: &usize, _scratch: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let mut peer = self.peer(*socket);
        match std::mem::take(&mut peer.says) {
            [] if peer.is_reset => Err(Errno::CONNRESET.into()),
            [] => Err(Errno::AGAIN.into()),
            said => Ok(said),
        }
    }

    fn watch(&mut self, _socket: &usize, _key: Key, _is_sending: bool) {}

    fn unwatch(&mut self, _socket: &usize) {}

    fn is_acknowledged(&mut self, _socket: &usize) -> bool {
        true
    }

    fn close(&mut self, _socket: usize) {}

    fn poll_connects(&mut self, _now: Nanos) -> io::Result<bool> {
        Ok(false)
    }

    fn wait(&mut self, _now: Nanos, timeout: Nanos) -> io::Result<()> {
        self.clock.advance(timeout);
        Ok(())
    }

    fn next(&mut self, _now: Nanos) -> io::Result<Option<Event>> {
        Ok(None)
    }
}
