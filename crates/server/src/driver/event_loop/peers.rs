//! The connections of a loop, with their deadlines and the order in which they became idle.
//!
//! A connection has at least one entry in the timers until its deadline; an entry that comes up too early is checked and
//! renewed. So a deadline that moves away costs nothing.
//!
//! Invariant: a connection without a place in the table has none in the idle list.

use std::os::fd::OwnedFd;

use base::{Key, Nanos, Slab};
use connection::{LiveSettings, Machine};
use dispatch::{Timers, Token};

use super::TIMER_SLOT;
use crate::connections::accept::Arrived;
use crate::connections::idle::IdleList;
use crate::connections::slots::Slot;

/// A socket, its protocol machine, and the loop's own notes on it.
pub struct Peer<W> {
    pub socket: OwnedFd,
    pub machine: Machine,
    /// The time of the earliest entry that this connection has in the timers.
    pub comes_up: Nanos,
    /// The loop's own notes.
    pub own: W,
    /// Dropped after the socket: the next owner of the slot needs a descriptor.
    _slot: Slot,
}

/// All connections of a loop.
pub struct Peers<W> {
    table: Slab<Peer<W>>,
    idle: IdleList,
    timers: Timers,
    due: Vec<Token>,
}

impl<W: Default> Peers<W> {
    pub fn new(now: Nanos) -> Peers<W> {
        Peers {
            table: Slab::new(),
            idle: IdleList::default(),
            timers: Timers::new(TIMER_SLOT, now),
            due: Vec::new(),
        }
    }

    /// Gives a connection a place. It has no deadline until [`Peers::enter`].
    pub fn insert(&mut self, mut arrived: Arrived, settings: &LiveSettings) -> Token {
        let machine = arrived.machine(settings);
        let Arrived { socket, slot, .. } = arrived;
        let peer = Peer { socket, machine, comes_up: Nanos::MAX, own: W::default(), _slot: slot };
        Token::from(self.table.insert(peer))
    }

    pub fn get_mut(&mut self, token: Token) -> Option<&mut Peer<W>> {
        self.table.get_mut(Key::from(token))
    }

    pub fn contains(&self, token: Token) -> bool {
        self.table.get(Key::from(token)).is_some()
    }

    pub fn remove(&mut self, token: Token) -> Option<Peer<W>> {
        self.idle.leave(Key::from(token));
        self.table.remove(Key::from(token))
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub fn tokens(&self) -> Vec<Token> {
        self.table.keys().map(Token::from).collect()
    }

    /// Enters a connection by what its machine waits for now: among the idle ones, and under its deadline.
    pub fn enter(&mut self, token: Token) {
        let key = Key::from(token);
        let Some(peer) = self.table.get_mut(key) else { return };
        match peer.machine.idle_from() {
            Nanos::MAX => drop(self.idle.leave(key)),
            idle_from => self.idle.enter(key, idle_from),
        }
        let deadline = peer.machine.deadline();
        if deadline < peer.comes_up {
            peer.comes_up = self.timers.schedule(token, deadline);
        }
    }

    /// Takes a connection off the idle list, because something has arrived.
    pub fn leave_idle(&mut self, token: Token) {
        self.idle.leave(Key::from(token));
    }

    /// The time since when the longest-idle connection has been idle; [`Nanos::MAX`] without one.
    pub fn idle_from(&self) -> Nanos {
        self.idle.idle_from()
    }

    /// The longest-idle connection, if one is idle by now.
    pub fn longest_idle(&self, now: Nanos) -> Option<Token> {
        self.idle.longest(now).map(Token::from)
    }

    /// The time at which the next timer entry comes up.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// Removes and returns a connection whose timer entry is due. Its deadline may have moved away.
    pub fn take_due(&mut self, now: Nanos) -> Option<Token> {
        if self.due.is_empty() {
            self.timers.expire(now, &mut self.due);
        }
        self.due.pop()
    }
}
