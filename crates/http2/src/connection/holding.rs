//! Ends responses that the client's windows hold back.
//!
//! A client may open streams, close their windows, and keep the connection busy with other requests. So each stream has a
//! time of its own, and other frames do not extend it. The connection's window has one time, which any content extends:
//! equal streams wait for each other there.
//!
//! A stream that is held for the write timeout is reset. A connection whose streams all were is closed. It gives
//! way to a newcomer much earlier: a second after its content moved last.

use base::Nanos;
use http_semantics::Responder;
use http_semantics::server::LEAST_PROGRESS_BYTES;

use super::{Connection, Context, Stage};
use crate::frame::Code;
use crate::hold::Hold;
use crate::limits::HELD_IS_IDLE_AFTER;
use crate::stream::Stream;

impl<F> Stream<F> {
    /// True if the rest of the response waits for a window of this size. A pause of a paced response is not the client's.
    fn is_held_by(&self, window: i64) -> bool {
        Hold::is_closed(window, self.released())
    }
}

impl<F> Connection<F> {
    /// Notes which windows hold content back now. A hold begins when all output has left: the client cannot acknowledge
    /// earlier what it received.
    pub(super) fn note_holds(&mut self, now: Nanos) {
        let all_left = !self.has_output();
        let note = |hold: &mut Hold, is_held: bool| match is_held {
            true if all_left => hold.begin(now),
            true => {}
            false => hold.end(),
        };
        let mut connection_is_held = false;
        for stream in &mut self.streams {
            let is_held = stream.is_held_by(stream.window);
            note(&mut stream.hold, is_held);
            connection_is_held |= stream.is_held_by(self.window);
        }
        note(&mut self.hold, connection_is_held);
        self.held_since = self.streams.iter().filter_map(|stream| self.stream_held_since(stream)).min();
    }

    /// The time since when either window has held a stream back.
    fn stream_held_since(&self, stream: &Stream<F>) -> Option<Nanos> {
        let by_connection = self.hold.since().filter(|_| stream.is_held_by(self.window));
        stream.hold.since().into_iter().chain(by_connection).min()
    }

    /// The time from which a connection whose responses are all held counts as idle: neither a new stream nor a request
    /// without content postpones it.
    pub(super) fn held_idle_from(&self) -> Nanos {
        let is_held = |stream| self.stream_held_since(stream).is_some();
        let is_idle = self.block.is_none() && self.streams.iter().all(is_held);
        let since = self.held_since.filter(|_| is_idle).map(|since| since.max(self.progressed_at));
        since.map_or(Nanos::MAX, |since| since.saturating_add(HELD_IS_IDLE_AFTER))
    }

    /// Counts content that moved, on its stream and on the connection.
    pub(super) fn content_moved(&mut self, index: usize, bytes: u64, now: Nanos) {
        self.streams[index].hold.moved(bytes, now);
        self.hold.moved(bytes, now);
        self.progress += bytes;
        if self.progress >= LEAST_PROGRESS_BYTES {
            (self.progress, self.progressed_at) = (0, now);
        }
    }

    /// The time at which the longest hold is too long.
    pub(super) fn held_due_after(&self, timeout: Nanos) -> Nanos {
        self.held_since.map_or(Nanos::MAX, |since| since.saturating_add(timeout))
    }

    /// Ends the holds that have lasted for the write timeout.
    pub(super) fn expire_holds<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        let timeout = cx.http.settings.timeouts.write_stall;
        let is_late = |since: Nanos| since.saturating_add(timeout) <= cx.http.now;
        let late = self.streams.iter().filter(|stream| self.stream_held_since(stream).is_some_and(is_late));
        let late: Vec<u32> = late.map(|stream| stream.id).collect();
        if late.is_empty() {
            return;
        }
        if self.block.is_none() && late.len() == self.streams.len() {
            cx.http.counts.timeouts_write_stall += 1;
            self.end_held(cx);
        } else {
            cx.http.counts.timeouts_write_stall += late.len() as u64;
            late.into_iter().for_each(|id| self.reset(id, Code::Cancel, cx));
        }
        self.update_stage(cx);
    }

    /// Ends a connection whose streams are all held: sends GOAWAY and closes.
    pub(super) fn end_held<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        cx.http.counts.incomplete_responses += 1;
        self.makes_way = true;
        self.end_with(Code::NoError, cx);
        debug_assert_eq!(self.stage, Stage::Last);
    }
}
