//! The engine as one half of an S-client pair (Banga 1997, section 4.2).
//!
//! ```text
//!   establisher: connecting --established, request sent--> outbox ====> handler: awaiting a reply --> closed
//! ```
//!
//! The establisher sends the request, gives the connection away and never looks at it again. While the socket
//! between the two is full, connections wait in the establisher's outbox and it continues with the others.
//! The handler reads the replies and closes. A session is one request, so nothing comes back.
//!
//! The connections of TCP in user space have no descriptor and cannot be given away: the preflight refuses
//! such a pair.
//!
//! `handover` is the socket between the two.

pub(super) mod handover;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use base::{Clock, Key, Nanos};
use dispatch::Interest;
use http1::client::Reader;
use record::Outcome;
use sys::socket::passing::Sent;

use super::Engine;
use crate::engine::state::session::{Connection, Phase, Session};
use crate::engine::wire::Wire;
use crate::engine::wire::transport::Transport;
use crate::error::LoadError;
use crate::measurement::ledger::Account;
use crate::measurement::thread_metrics::failures::Example;
use crate::plan::terms::draws::Draws;
use handover::{Handover, Inbox, Outbox, Role, Taken};

/// Connections received in one turn, so that the engine reads replies in between.
const RECEIVED_PER_TURN: usize = 256;

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// Makes the engine the half that connects; it gives connections to the handler over this socket.
    pub(crate) fn establishing(mut self, socket: OwnedFd) -> Self {
        self.role = Role::Establisher(Outbox { socket, waiting: VecDeque::new(), is_watched: false });
        self
    }

    /// Makes the engine the half that reads replies, on the connections that come over this socket.
    pub(crate) fn handling(mut self, socket: OwnedFd) -> Self {
        self.transport.watch_half(socket.as_fd(), Interest::Read);
        self.role = Role::Handler(Inbox { socket, is_over: false });
        self
    }

    /// Handles a session's first request that went out at `now`: this engine or the handler awaits its reply.
    pub(super) fn first_request_sent(&mut self, key: Key, now: Nanos) {
        let Role::Establisher(outbox) = &mut self.role else { return self.await_reply(key, now) };
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.phase = Phase::Awaiting { sent: now };
        outbox.waiting.push_back((key, now));
        self.metrics.recorder.sent(now);
    }

    /// Gives the waiting connections away until the socket is full.
    ///
    /// # Errors
    /// The handler has ended.
    pub(super) fn hand_over(&mut self) -> Result<(), LoadError> {
        let Role::Establisher(outbox) = &mut self.role else { return Ok(()) };
        while let Some((key, sent)) = outbox.waiting.front().copied() {
            let Some(connection) = self.connections.get(key) else { break };
            let Some(descriptor) = T::descriptor(&connection.wire.socket) else { break };
            let passed = handover::send(outbox.socket.as_fd(), of(connection, sent), descriptor);
            let failed = LoadError::system("giving a connection to the handler");
            match passed {
                Ok(Sent::Yes) => {}
                Ok(Sent::Full) => break,
                Ok(Sent::Gone) => return Err(failed(io::ErrorKind::BrokenPipe.into())),
                Err(error) => return Err(failed(error)),
            }
            outbox.waiting.pop_front();
            let Some(connection) = self.connections.remove(key) else { break };
            // The account is now in the handler's ledger.
            self.transport.give_away(connection.wire.socket);
        }
        let is_full = !outbox.waiting.is_empty();
        match (is_full, outbox.is_watched) {
            (true, false) => self.transport.watch_half(outbox.socket.as_fd(), Interest::Write),
            (false, true) => self.transport.unwatch_half(outbox.socket.as_fd()),
            _ => {}
        }
        outbox.is_watched = is_full;
        Ok(())
    }

    /// Handles an event of the socket to the other half.
    ///
    /// # Errors
    /// The other half has ended, or sent something else than connections.
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
                    self.transport.unwatch_half(inbox.socket.as_fd());
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes over a connection from the establisher and awaits its reply.
    fn take_on(&mut self, handover: Handover, socket: Option<OwnedFd>) {
        let Handover { intended, sent, request, unsent, measured } = handover;
        let account = Account::taken_on(measured);
        let Some(socket) = socket.and_then(|descriptor| self.transport.adopt(descriptor)) else {
            self.metrics.recorder.unanswered(1, measured);
            return self.metrics.end(account, Outcome::NoDescriptor, None);
        };
        let draws = Draws::new(intended.0);
        let session = Session {
            left: 1,
            account: Some(account),
            draws,
            request,
            intended,
            retries: 0,
            frees_place: false,
            story: None,
            detour: None,
            users: None,
        };
        let mut reader = Reader::new();
        reader.expect_head(self.settings.workload.answers_head(request));
        let connection = Connection {
            wire: Wire::new(socket, None),
            session,
            phase: Phase::Awaiting { sent },
            reader,
            hasher: self.settings.expected.hasher(),
            example: Example::default(),
            pieces: None,
            is_kept: false,
            has_replied: false,
            unsent,
            http2: None,
        };
        let key = self.connections.next_key();
        self.transport.watch(&connection.wire.socket, key, connection.is_sending());
        self.connections.add_awaiting(connection, sent.saturating_add(self.settings.request_timeout));
        self.metrics.opened(self.connections.len());
    }
}

/// The handover of a connection whose request was sent at `sent`.
fn of<S>(connection: &Connection<S>, sent: Nanos) -> Handover {
    let Connection { session, unsent, .. } = connection;
    Handover {
        intended: session.intended,
        sent,
        request: session.request,
        unsent: *unsent,
        measured: session.account.as_ref().is_some_and(Account::is_counted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scripted::{Scripted, plan};
    use crate::engine::time::schedule::Schedule;

    #[test]
    fn the_establisher_begins_no_session_before_the_start() {
        let (plan, server) = (plan(|config| config.duration = Nanos::SECOND), Scripted::new());
        let start = server.clock.now() + Nanos::from_millis(200);
        let engine = server.engine(&plan, start, Schedule::closed(1, Nanos::ZERO));
        let (ours, _theirs) = sys::socket::passing::pair().unwrap();
        engine.establishing(ours).run(&|| false, &mut |_| {}).unwrap();
        server.assert_begun_after(start);
    }
}
