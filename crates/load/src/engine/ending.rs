//! The end of a run: nothing begins any more, and the replies that are on their way are waited for.
//!
//! A request that was sent just before the schedule's end has had no time to be answered. It gets as long as the
//! slowest correct reply took, and at least [`PATIENCE`]; its own time-outs stay in force. So the moment at which a
//! run ends is held against no server that answers, and a server that hangs makes the run a second longer.

use base::{Clock, Key, Nanos};

use super::pair::Role;
use super::session::Phase;
use super::{Engine, Held};
use crate::LoadError;
use crate::books::Report;
use crate::recorder::Interval;
use crate::transport::Transport;

/// How long replies are waited for at least; at most, where the run was ended early.
const PATIENCE: Nanos = Nanos::SECOND;

/// A run whose schedule has ended.
#[derive(Clone, Copy)]
pub(super) struct Ending {
    /// When it ended.
    pub at: Nanos,
    /// When the engine noticed; a handler goes on as long as its establisher.
    since: Nanos,
    /// Whether that was before the planned end.
    is_early: bool,
}

impl<C: Clock, T: Transport> Engine<'_, C, T> {
    /// Begins what was due before the end, and nothing after it.
    pub(super) fn end_schedule(&mut self, now: Nanos) {
        let planned = self.settings.window.until;
        let at = now.min(planned);
        while let Some(intended) = self.schedule.take(at.saturating_sub(Nanos(1))) {
            self.start_session(intended);
        }
        self.books.end_schedule(at);
        self.ending = Some(Ending { at, since: now, is_early: now < planned });
    }

    /// When the replies on their way have had their time.
    pub(super) fn patience_ends(&self, ending: Ending) -> Nanos {
        let longest = if ending.is_early { Nanos::ZERO } else { self.books.recorder.longest() };
        ending.since + longest.max(PATIENCE)
    }

    /// Whether nothing is on its way any more, or has had its time.
    pub(super) fn is_settled(&self, ending: Ending, now: Nanos) -> bool {
        let to_hand_over = match &self.role {
            Role::Establisher(outbox) => outbox.waiting(),
            Role::Whole | Role::Handler(_) => 0,
        };
        let on_their_way = self.connect_deadlines.len() + self.reply_deadlines.len() + to_hand_over;
        on_their_way == 0 || now >= self.patience_ends(ending)
    }

    /// Closes the connections, enters what has not ended in the books, and closes them.
    ///
    /// # Errors
    /// None that a peer can cause.
    pub(super) fn finish(
        mut self,
        ending: Ending,
        tell: &mut dyn FnMut(Interval),
    ) -> Result<Report, LoadError> {
        let (held, given_up): (Held, u64) = (self.held(), self.retries.given_up());
        let counted = self.settings.counted;
        let keys: Vec<Key> = self.connections.keys().collect();
        for connection in keys.into_iter().filter_map(|key| self.connections.remove(key)) {
            let session = connection.session;
            let due = u32::from(!matches!(connection.phase, Phase::Thinking { .. }));
            self.books.recorder.unanswered(due, counted.contains(session.intended));
            self.books.ledger.in_flight(session.account, due);
            self.transport.close(connection.wire.socket);
        }
        for again in self.retries.waiting() {
            self.books.recorder.unanswered(again.requests, counted.contains(again.intended));
        }
        let report = Report { given_up, ..self.books.close(ending.at, held, tell) };
        let (clock, origin) = (&self.clock, self.origin);
        let ended = self.transport.finish(&|| clock.now().saturating_sub(origin));
        ended.map_err(LoadError::system("ending connections"))?;
        Ok(report)
    }
}
