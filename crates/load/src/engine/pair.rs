//! The engine as one half of an S-client pair (Banga 1997, section 3).
//!
//! ```text
//!   establisher: connecting --established, request sent--> outbox ====> handler: awaiting a reply --> closed
//! ```
//!
//! The establisher sends the request, gives the connection away and never looks at it again; while the
//! socket between the two takes no more, connections wait in its outbox, and it goes on with the others. The
//! handler reads the replies and closes. A session is one request, so nothing comes back.
//!
//! A connection that was given away stays open at this end until the interest set of connecting sockets has
//! forgotten it: the kernel would go on reporting it there as long as the handler has it open.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use base::{Clock, Key, Nanos};
use dispatch::{Interest, Token};
use http1::client::Reader;
use record::Outcome;

use super::session::{Connection, Phase, Session};
use super::{CONNECTING_SET, Engine};
use crate::LoadError;
use crate::draws::Draws;
use crate::handover::{self, Handover, Passed, Taken};
use crate::ledger::Account;
use crate::wire::Wire;

/// Names the socket to the other half; like [`CONNECTING_SET`] the token of no connection.
pub(super) const OTHER_HALF: Token = Token(CONNECTING_SET.0 - 1);

/// Connections that are received in one turn, so that replies are read in between.
const RECEIVED_PER_TURN: usize = 256;

/// Which part of an S-client an engine is.
pub(super) enum Role {
    /// All of it.
    Whole,
    /// The half that connects.
    Establisher(Outbox),
    /// The half that reads replies.
    Handler(Inbox),
}

/// The establisher's side of the socket.
pub(super) struct Outbox {
    socket: OwnedFd,
    /// Connections whose request went out, and when, the longest waiting first.
    waiting: VecDeque<(Key, Nanos)>,
    /// Whether the socket is to say when it takes more.
    is_watched: bool,
    /// What was given away and is still open here.
    given_away: Vec<Connection>,
}

impl Outbox {
    /// Connections that the socket has not taken yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// The handler's side.
pub(super) struct Inbox {
    socket: OwnedFd,
    /// Whether the establisher has ended and all it sent is here.
    is_over: bool,
}

impl Inbox {
    /// Whether no connection will come any more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

impl<C: Clock> Engine<'_, C> {
    /// Makes it the half that connects, and gives connections to the handler over this socket.
    pub(crate) fn establishing(mut self, socket: OwnedFd) -> Self {
        let (waiting, given_away) = (VecDeque::new(), Vec::new());
        self.role = Role::Establisher(Outbox { socket, waiting, is_watched: false, given_away });
        self
    }

    /// Makes it the half that reads replies, of the connections that come over this socket.
    pub(crate) fn handling(mut self, socket: OwnedFd) -> Self {
        self.established.register(socket.as_fd(), OTHER_HALF, Interest::Read);
        self.role = Role::Handler(Inbox { socket, is_over: false });
        self
    }

    /// A session's first request went out at `now`: its reply is awaited here or by the handler.
    pub(super) fn first_request_sent(&mut self, key: Key, now: Nanos) {
        let Role::Establisher(outbox) = &mut self.role else { return self.await_reply(key, now) };
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.phase = Phase::Awaiting { sent: now };
        outbox.waiting.push_back((key, now));
        self.books.recorder.sent(now);
    }

    /// Gives away the connections that wait, as far as the socket takes them.
    ///
    /// # Errors
    /// The handler has ended.
    pub(super) fn hand_over(&mut self) -> Result<(), LoadError> {
        let Role::Establisher(outbox) = &mut self.role else { return Ok(()) };
        while let Some((key, sent)) = outbox.waiting.front().copied() {
            let Some(connection) = self.connections.get(key) else { break };
            let handover = of(connection, sent);
            let passed = handover::send(outbox.socket.as_fd(), handover, connection.wire.as_fd());
            match passed.map_err(LoadError::system("giving a connection to the handler"))? {
                Passed::Full => break,
                Passed::Yes => {}
            }
            outbox.waiting.pop_front();
            let Some(connection) = self.connections.remove(key) else { break };
            self.connecting.deregister(connection.wire.as_fd());
            self.connecting_waits = true;
            // Its account is now in the handler's ledger.
            outbox.given_away.push(connection);
        }
        let is_full = !outbox.waiting.is_empty();
        match (is_full, outbox.is_watched) {
            (true, false) => self.established.register(outbox.socket.as_fd(), OTHER_HALF, Interest::Write),
            (false, true) => self.established.deregister(outbox.socket.as_fd()),
            _ => {}
        }
        outbox.is_watched = is_full;
        Ok(())
    }

    /// What was given away and may be closed as soon as the set of connecting sockets has been waited for.
    pub(super) fn given_away(&mut self) -> Vec<Connection> {
        match &mut self.role {
            Role::Establisher(outbox) => std::mem::take(&mut outbox.given_away),
            Role::Whole | Role::Handler(_) => Vec::new(),
        }
    }

    /// Attends to the socket to the other half.
    ///
    /// # Errors
    /// The other half is none of ours, or has ended.
    pub(super) fn attend_other_half(&mut self) -> Result<(), LoadError> {
        match &self.role {
            Role::Whole => Ok(()),
            Role::Establisher(_) => self.hand_over(),
            Role::Handler(_) => self
                .receive_connections()
                .map_err(LoadError::system("receiving connections from the establisher")),
        }
    }

    fn receive_connections(&mut self) -> io::Result<()> {
        for _ in 0..RECEIVED_PER_TURN {
            let Role::Handler(inbox) = &mut self.role else { break };
            match handover::receive(inbox.socket.as_fd())? {
                Taken::Nothing => break,
                Taken::One(handover, socket) => self.take_on(handover, socket),
                Taken::End => {
                    inbox.is_over = true;
                    self.established.deregister(inbox.socket.as_fd());
                    break;
                }
            }
        }
        Ok(())
    }

    /// Awaits the reply of a connection that was given to us.
    fn take_on(&mut self, handover: Handover, socket: Option<OwnedFd>) {
        let Handover { intended, sent, request, unsent, measured } = handover;
        let account = Account::taken_on(measured);
        let Some(socket) = socket else {
            self.books.recorder.unanswered(account.left(), account.measured());
            return self.books.end(account, Outcome::NoDescriptor);
        };
        let draws = Draws::new(intended.0);
        let session = Session { account, draws, request, intended, retries: 0, frees_client: false };
        let mut reader = Reader::new();
        reader.expect_head(self.settings.workload.answers_head());
        let connection = Connection {
            wire: Wire::new(socket, None),
            session,
            phase: Phase::Awaiting { sent },
            reader,
            hasher: self.settings.expected.hasher(),
            has_replied: false,
            unsent,
        };
        let interest = if connection.is_sending() { Interest::Both } else { Interest::Read };
        let key = self.connections.insert(connection);
        self.books.opened(self.connections.len());
        let connection = self.connections.get(key).expect("it was inserted just now");
        self.established.register(connection.wire.as_fd(), key.into(), interest);
        self.reply_deadlines.push(key, sent + self.settings.request_timeout);
    }
}

/// What the handler has to know of a connection whose request was sent then.
fn of(connection: &Connection, sent: Nanos) -> Handover {
    let Connection { session, unsent, .. } = connection;
    Handover {
        intended: session.intended,
        sent,
        request: session.request,
        unsent: *unsent,
        measured: session.account.measured(),
    }
}
