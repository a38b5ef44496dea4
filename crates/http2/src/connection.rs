//! One connection: its streams, its windows, and its end.
//!
//! A driver uses it as it uses HTTP/1.1's, with two differences. It may receive while output waits, as long as
//! [`Connection::may_receive`] says so, because other streams go on. And it reads parts of files: while
//! [`Connection::file_part`] names one, the driver reads it and hands it over by [`Connection::supply`].
//!
//! ```text
//!          GOAWAY                  no streams left           all sent               shut_down()
//!   Open ----------> (going away) -----------------> Last -------------> ShutDown -------------> Lingering
//!    |   mistake: GOAWAY and no streams ---------------^ | made way                                  |
//!    +----------------------------------------> Closed <-+-------------------------------------------+
//! ```
//!
//! Invariants:
//!
//! - Output in memory is bounded: content is queued only while less than its limit waits, and nothing is received
//!   while twice as much waits. At most half of the limit has been sent and is still kept.
//! - The content and the status of each stream depend on the received bytes, not on the pieces they came in.
//! - A decoded header list, the table of fields, the streams and every list of streams have limits.

mod answering;
mod frames;
mod holding;
mod reading;
mod sending;

use std::collections::VecDeque;

use base::Nanos;
use http_semantics::server::{Awaiting, Settings, Unsent, Wants};
use http_semantics::{Responder, Transport};

use crate::block::Block;
use crate::counts::Counts;
use crate::floods::Floods;
use crate::frame::{self, Code, PREFACE, STREAM_LAST, kind, setting};
use crate::hold::Hold;
use crate::hpack::{Decoder, Encoder, Fields};
use crate::limits::{FAREWELL, SMALL_DATA_AFTER, STREAMS, WINDOW_BYTES};
use crate::priority::Priority;
use crate::stream::Stream;

/// The state that the connections of a loop share, lent for one call.
pub struct Context<'c, 'a, S: Responder> {
    /// The state that every version uses.
    pub http: &'c mut http_semantics::server::Context<'a, S>,
    /// Counters of HTTP/2 alone.
    pub counts: &'c mut Counts,
}

/// The next output.
#[derive(Debug, PartialEq, Eq)]
pub enum Transmit<'a> {
    /// Nothing, unless [`Connection::file_part`] names a part of a file.
    Nothing,
    /// Bytes to send; never empty.
    Bytes(&'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Last,
    ShutDown,
    Lingering,
    Closed,
}

/// The server's side of one connection; `F` is the handle of an open file.
#[derive(Debug)]
pub struct Connection<F> {
    stage: Stage,
    /// Bytes of the preface that have come.
    preface: usize,
    /// The client's first SETTINGS frame has come.
    greeted: bool,
    /// An incomplete frame.
    inbox: Vec<u8>,
    block: Option<Box<Block>>,
    decoder: Decoder,
    encoder: Encoder,
    fields: Fields,
    out: Vec<u8>,
    sent: usize,
    /// Bytes of output that left since the deadline was set.
    moved: u64,
    streams: Vec<Stream<F>>,
    /// Streams that ended lately; true for those that we reset.
    ended: VecDeque<(u32, bool)>,
    early_priorities: VecDeque<(u32, Priority)>,
    /// The greatest number of a client's stream that was taken. After GOAWAY, which names it, it stays.
    last: u32,
    /// The greatest number of a stream that was reset or came after our GOAWAY. Streams above `last` count as reset up
    /// to it.
    skipped: u32,
    /// Bytes of content that the client's windows allow: the connection's window, and that of a new stream.
    window: i64,
    initial_window: i64,
    /// The connection's window holds content back.
    hold: Hold,
    /// The time since when a window has held a response back; the earliest.
    held_since: Option<Nanos>,
    /// The time at which content made progress last, and the bytes that moved since then.
    progressed_at: Nanos,
    progress: u64,
    /// Bytes that the client may send before it gets more credit.
    credit: u32,
    turn: u64,
    /// The stream whose file is to be read.
    file_turn: Option<u32>,
    floods: Floods,
    requests: u32,
    going_away: bool,
    makes_way: bool,
    peer_ended: bool,
    /// Given to the service with each request.
    transport: Transport,
    awaiting: Awaiting,
    /// End of the last request, or the beginning.
    started: Nanos,
    deadline: Nanos,
    /// The time at which the content of a request is late.
    content_due: Nanos,
    /// The time at which a response has been held back for too long.
    held_due: Nanos,
    /// The time at which the first paced response that waits may go on.
    pace_due: Nanos,
    /// The time of the next GOAWAY of a connection that retires.
    farewell_at: Option<Nanos>,
    /// A GOAWAY has asked for no further request, and has named no last stream.
    announced: bool,
    /// The time until which content waits because the windows allow only a little.
    small_at: Option<Nanos>,
    /// True while such content is sent.
    sends_small: bool,
    unsent: Option<Box<Unsent>>,
}

impl<F> Connection<F> {
    /// A connection whose client is going to send the preface. Our SETTINGS frame waits to be sent.
    pub fn new<S: Responder<File = F>>(transport: Transport, cx: &mut Context<'_, '_, S>) -> Connection<F> {
        cx.counts.http2_connections += 1;
        let mut out = cx.http.buffers.take();
        let list = cx.http.settings.limits.head_bytes as u32;
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, STREAMS),
            (setting::MAX_HEADER_LIST_SIZE, list),
            // Without it, clients may stop sending the priorities that we know (RFC 9218, 2.1).
            (setting::NO_RFC7540_PRIORITIES, 1),
        ];
        frame::write_settings(&mut out, &settings);
        Connection {
            stage: Stage::Open,
            preface: 0,
            greeted: false,
            inbox: Vec::new(),
            block: None,
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            fields: Fields::default(),
            out,
            sent: 0,
            moved: 0,
            streams: Vec::new(),
            ended: VecDeque::new(),
            early_priorities: VecDeque::new(),
            last: 0,
            skipped: 0,
            window: i64::from(WINDOW_BYTES),
            initial_window: i64::from(WINDOW_BYTES),
            hold: Hold::default(),
            held_since: None,
            progressed_at: cx.http.now,
            progress: 0,
            credit: WINDOW_BYTES,
            turn: 0,
            file_turn: None,
            floods: Floods::default(),
            requests: 0,
            going_away: false,
            makes_way: false,
            peer_ended: false,
            transport,
            awaiting: Awaiting::Write,
            started: cx.http.now,
            deadline: cx.http.now.saturating_add(cx.http.settings.timeouts.write_stall),
            content_due: Nanos::MAX,
            held_due: Nanos::MAX,
            pace_due: Nanos::MAX,
            farewell_at: None,
            announced: false,
            small_at: None,
            sends_small: false,
            unsent: None,
        }
    }

    /// Notes that the first `count` bytes of the preface have come already, before the version was known.
    pub fn preface_began(&mut self, count: usize) {
        self.preface = count;
    }

    /// The peer has shut down its sending side. Complete requests are answered as far as its windows allow.
    pub fn receive_end<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        self.peer_ended = true;
        self.update_stage(cx);
    }

    /// The action that this connection wants from its driver. It wants [`Wants::Resume`] and [`Wants::Pause`] only after the
    /// client's end, when nothing is left to receive.
    pub fn wants(&self) -> Wants {
        match self.stage {
            Stage::Closed => Wants::Close,
            Stage::ShutDown => Wants::ShutdownThenReceive,
            Stage::Lingering => Wants::Receive,
            Stage::Open | Stage::Last if self.has_output() => Wants::Transmit,
            Stage::Open | Stage::Last if self.peer_ended && self.pace_due < Nanos::MAX => Wants::Pause,
            Stage::Open | Stage::Last if self.peer_ended && self.is_deferred() => Wants::Resume,
            Stage::Open | Stage::Last => Wants::Receive,
        }
    }

    /// True if bytes may be received now, even while output waits.
    pub fn may_receive(&self, settings: &Settings) -> bool {
        let has_room = self.out.len() - self.sent < 2 * settings.limits.outbox_bytes;
        has_room && !matches!(self.wants(), Wants::Close | Wants::Pause | Wants::Resume)
    }

    /// True if an answer is pending, so that [`Connection::resume`] is to be called.
    pub fn is_deferred(&self) -> bool {
        self.streams.iter().any(|stream| stream.deferred)
    }

    /// Records that the driver has shut down the sending side.
    pub fn shut_down(&mut self) {
        if self.stage == Stage::ShutDown {
            self.stage = Stage::Lingering;
        }
    }

    /// The time at which [`Connection::expire`] is due.
    pub fn deadline(&self) -> Nanos {
        let optional = [self.small_at, self.farewell_at].into_iter().flatten();
        let others = [self.deadline, self.content_due, self.held_due].into_iter().chain(optional);
        others.fold(self.pace_due, Nanos::min)
    }

    /// The time from which the connection counts as idle if nothing arrives.
    pub fn idle_from(&self) -> Nanos {
        if self.awaiting == Awaiting::Windows {
            return self.held_idle_from();
        }
        let idle_at = |after| self.started.saturating_add(after).min(self.deadline);
        self.awaiting.idle_after().map_or(Nanos::MAX, idle_at)
    }

    /// True until the first request has been read.
    pub fn is_new(&self) -> bool {
        self.requests == 0
    }

    /// Lets paced responses go on, and ends the waits whose deadline has passed: 408 for late content, a reset for a response that is held back, GOAWAY for
    /// a late head, an idle connection, or one whose responses are all held back.
    pub fn expire<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        if self.small_at.take_if(|at| *at <= cx.http.now).is_some() {
            self.sends_small = true;
            self.update_stage(cx);
        }
        if self.farewell_at.take_if(|at| *at <= cx.http.now).is_some() {
            self.say_farewell(cx);
        }
        if self.pace_due <= cx.http.now {
            self.streams
                .iter_mut()
                .filter_map(|stream| stream.budget.as_mut())
                .for_each(|budget| budget.refill(cx.http.now));
            self.update_stage(cx);
        }
        if self.content_due <= cx.http.now {
            self.expire_contents(cx);
        }
        if self.held_due <= cx.http.now {
            self.expire_holds(cx);
        }
        if cx.http.now < self.deadline {
            return;
        }
        let counts = &mut *cx.http.counts;
        match self.awaiting {
            Awaiting::FirstByte | Awaiting::Head => counts.timeouts_header += 1,
            Awaiting::Request => counts.timeouts_idle += 1,
            Awaiting::Write => {
                counts.timeouts_write_stall += 1;
                return self.close(cx);
            }
            Awaiting::PeersEnd => {
                counts.timeouts_linger += 1;
                return self.close(cx);
            }
            Awaiting::Body | Awaiting::Pace | Awaiting::Windows | Awaiting::Responder | Awaiting::Nothing => {
                return;
            }
        }
        self.makes_way = true;
        self.end_with(Code::NoError, cx);
        self.update_stage(cx);
    }

    /// Ends the connection after the requests under way: GOAWAY, and then no further request.
    pub fn drain<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        if self.stage == Stage::Open {
            self.go_away(Code::NoError, cx);
        }
        self.update_stage(cx);
    }

    /// Ends the connection as [`drain`](Self::drain) does, after a second in which it asks the client for no further
    /// request: none crosses the end. A new connection may make its first one before.
    pub fn retire<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        if self.stage == Stage::Open && !self.going_away && self.farewell_at.is_none() {
            if !self.is_new() {
                return self.say_farewell(cx);
            }
            self.farewell_at = Some(cx.http.now.saturating_add(FAREWELL));
        }
        self.update_stage(cx);
    }

    /// Asks for no further request at first, and names the last one the next time.
    fn say_farewell<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        // The last stream may have been named in the meantime, and must not grow.
        if self.announced || self.going_away || self.stage != Stage::Open {
            return self.drain(cx);
        }
        self.announced = true;
        self.farewell_at = Some(cx.http.now.saturating_add(FAREWELL));
        self.write_go_away(STREAM_LAST, Code::NoError, cx);
        self.update_stage(cx);
    }

    /// Makes room for another connection: acts as [`drain`](Self::drain), but an idle connection ends as soon as its
    /// GOAWAY is sent, and a lingering one at once.
    pub fn give_way<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        let is_idle = self.idle_from() <= cx.http.now;
        match self.stage {
            Stage::Open if is_idle && !self.streams.is_empty() => self.end_held(cx),
            Stage::Open => self.makes_way |= is_idle,
            _ if is_idle => self.close(cx),
            _ => {}
        }
        self.drain(cx);
    }

    /// Ends the connection because its transport failed in a way that the peer is told of: drops all streams, shuts
    /// down, and lingers.
    pub fn transport_refused<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        self.close(cx);
        self.stage = Stage::ShutDown;
        self.update_stage(cx);
    }

    /// Ends the connection at once. Frees its memory and logs cut responses. Harmless at any time.
    pub fn abort<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        self.close(cx);
    }

    fn has_output(&self) -> bool {
        self.sent < self.out.len() || self.file_turn.is_some()
    }

    /// Tells the client once that no further stream is served.
    fn go_away<S: Responder<File = F>>(&mut self, code: Code, cx: &mut Context<'_, '_, S>) {
        if !std::mem::replace(&mut self.going_away, true) || code != Code::NoError {
            self.write_go_away(self.last, code, cx);
        }
    }

    fn write_go_away<S: Responder<File = F>>(&mut self, last: u32, code: Code, cx: &mut Context<'_, '_, S>) {
        let payload = [last.to_be_bytes(), (code as u32).to_be_bytes()].concat();
        frame::frame(self.output(cx), kind::GOAWAY, 0, 0, &payload);
    }

    /// Ends the connection with a reason: drops all streams, and sends what is queued.
    fn end_with<S: Responder<File = F>>(&mut self, code: Code, cx: &mut Context<'_, '_, S>) {
        self.go_away(code, cx);
        self.drop_streams(cx);
        self.stage = Stage::Last;
    }

    fn output<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) -> &mut Vec<u8> {
        if self.out.capacity() == 0 {
            self.out = cx.http.buffers.take();
        }
        &mut self.out
    }

    /// Queues the output that the windows allow, moves on to the next stage if the current one is over, and sets the
    /// deadline.
    fn update_stage<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        self.queue_output(cx);
        self.pace_due = self.streams.iter().filter_map(Stream::paused_until).min().unwrap_or(Nanos::MAX);
        if self.stage == Stage::Open && self.going_away && self.streams.is_empty() && self.block.is_none() {
            self.stage = Stage::Last;
        }
        if !self.has_output() {
            match self.stage {
                _ if self.peer_ended && !self.is_deferred() && self.pace_due == Nanos::MAX => self.close(cx),
                Stage::Last if self.makes_way => self.close(cx),
                Stage::Last => self.stage = Stage::ShutDown,
                _ => {}
            }
        }
        if !self.has_output() {
            self.sends_small = false;
            let at = self.small_at.unwrap_or(cx.http.now.saturating_add(SMALL_DATA_AFTER));
            self.small_at = self.is_held_back().then_some(at);
        }
        self.note_holds(cx.http.now);
        let timeouts = &cx.http.settings.timeouts;
        self.held_due = self.held_due_after(timeouts.write_stall);
        // Neither other frames nor other streams give a request more time.
        let unfinished = self.streams.iter().filter(|stream| !stream.ended && !stream.unwanted);
        let begun = unfinished.map(|stream| stream.started).min();
        self.content_due = begun.map_or(Nanos::MAX, |begun| begun.saturating_add(timeouts.body));
        let awaiting = match self.stage {
            Stage::Closed => return,
            Stage::ShutDown | Stage::Lingering => Awaiting::PeersEnd,
            Stage::Open | Stage::Last if self.has_output() => Awaiting::Write,
            Stage::Open if self.streams.iter().any(|stream| stream.left() > 0) => Awaiting::Windows,
            Stage::Open if self.block.is_some() => Awaiting::Head,
            Stage::Open if self.streams.iter().any(|stream| !stream.ended) => Awaiting::Body,
            Stage::Open if !self.inbox.is_empty() => Awaiting::Head,
            Stage::Open if self.is_deferred() => Awaiting::Responder,
            Stage::Open if self.preface < PREFACE.len() || self.requests == 0 => Awaiting::FirstByte,
            Stage::Open | Stage::Last => Awaiting::Request,
        };
        if awaiting == Awaiting::PeersEnd && self.awaiting != awaiting {
            self.started = cx.http.now;
        }
        match awaiting {
            Awaiting::Body => self.deadline = self.content_due,
            Awaiting::FirstByte | Awaiting::Request => {
                self.deadline = self.started.saturating_add(awaiting.timeout(timeouts));
            }
            _ if awaiting != self.awaiting => {
                self.deadline = cx.http.now.saturating_add(awaiting.timeout(timeouts));
                self.moved = 0;
            }
            _ => {}
        }
        self.awaiting = awaiting;
    }

    /// Ends the connection and frees its memory.
    fn close<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, '_, S>) {
        if self.stage == Stage::Closed {
            return;
        }
        if self.has_output() || self.streams.iter().any(|stream| stream.left() > 0) {
            cx.http.counts.incomplete_responses += 1;
        }
        if self.block.is_some() || self.streams.iter().any(|stream| !stream.ended) {
            cx.http.counts.incomplete_requests += 1;
        }
        self.drop_streams(cx);
        if let (Some(mut unsent), Some(log)) = (self.unsent.take(), &mut cx.http.log) {
            unsent.end(cx.http.now, *log);
        }
        cx.http.buffers.give(std::mem::take(&mut self.out));
        cx.http.buffers.give(std::mem::take(&mut self.inbox));
        self.sent = 0;
        self.stage = Stage::Closed;
        self.awaiting = Awaiting::Nothing;
        (self.deadline, self.content_due, self.held_due) = (Nanos::MAX, Nanos::MAX, Nanos::MAX);
        (self.pace_due, self.small_at, self.farewell_at) = (Nanos::MAX, None, None);
    }
}
