//! One connection: reading requests, answering them, and ending.
//!
//! Invariants:
//!
//! - Responses leave in the order of their requests.
//! - While the connection wants [`Wants::Receive`], it holds no complete request. The driver may sleep until
//!   bytes or the deadline come.
//! - The bytes of the responses depend on the received bytes, not on the pieces they came in. (Only 100
//!   (Continue) depends on the pieces: it is omitted if content has arrived already.)
//! - An idle connection holds no heap memory.

mod reading;

use base::Nanos;
use bytes::Bytes;
use http_semantics::server::{Awaiting, Context, LEAST_PROGRESS_BYTES, Settings, Unsent, Wants};
use http_semantics::{Body, Responder, Response, Status, Transport};

use super::inbox::Inbox;
use super::incoming::Incoming;
use super::outbox::{Outbox, Transmit};
use crate::head_syntax::HeadSyntax;
use crate::scan::HeadScan;
use reading::Content;

/// The stage of a connection's life.
///
/// ```text
///          close queued          all sent, peer may be sending             shut_down()
///   Open ---------------> Last --------------------------------> ShutDown -------------> Lingering
///    |                      | all sent, nothing to wait for                                  |
///    +----------------------+----------------------> Closed <--------------------------------+
///      idle, peer's end, stall, truncation, abort                    peer's end, deadline
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The last response is queued. `linger`: input may be unread. If the socket closed over unread input,
    /// the kernel would send a reset, and the peer might lose the response.
    Last {
        linger: bool,
    },
    ShutDown,
    Lingering,
    Closed,
}

/// The server's side of one connection; `F` is the handle of an open file.
#[derive(Debug)]
pub struct Connection<F> {
    inbox: Inbox,
    outbox: Outbox<F>,
    incoming: Option<Box<Incoming>>,
    /// The request in `incoming` is complete, and the responder's answer is pending.
    deferred: bool,
    unsent: Option<Box<Unsent>>,
    deadline: Nanos,
    /// Start of the request being read, of the wait for the next one, or of the wait for the peer's end.
    started: Nanos,
    scan: HeadScan,
    /// The progress of checking an incomplete head.
    syntax: HeadSyntax,
    requests: u32,
    empty_lines: u8,
    /// Bytes of output that left since the deadline was set.
    moved: u16,
    stage: Stage,
    awaiting: Awaiting,
    peer_ended: bool,
    draining: bool,
    /// The next request is the last one.
    retiring: bool,
    /// The transport ends with a message of its own, which the peer is to read before the end.
    always_lingers: bool,
    /// Given to the service with each request.
    transport: Transport,
}

impl<F> Connection<F> {
    /// A connection accepted at `now`. Allocates nothing.
    pub fn new(now: Nanos, settings: &Settings) -> Connection<F> {
        Connection {
            inbox: Inbox::default(),
            outbox: Outbox::new(),
            incoming: None,
            deferred: false,
            unsent: None,
            deadline: now.saturating_add(settings.timeouts.header),
            started: now,
            scan: HeadScan::default(),
            syntax: HeadSyntax::default(),
            requests: 0,
            empty_lines: 0,
            moved: 0,
            stage: Stage::Open,
            awaiting: Awaiting::FirstByte,
            peer_ended: false,
            draining: false,
            retiring: false,
            always_lingers: false,
            transport: Transport::default(),
        }
    }

    /// A transport that had to be set up first, such as TLS, is ready: the wait for the first byte begins now, and every
    /// end that follows a response lingers. Requests carry `transport`.
    pub fn transport_ready(&mut self, transport: Transport, now: Nanos, settings: &Settings) {
        self.always_lingers = true;
        self.transport = transport;
        if self.awaiting == Awaiting::FirstByte {
            self.started = now;
            self.deadline = now.saturating_add(settings.timeouts.header);
            if self.draining {
                self.deadline = self.deadline.min(self.idle_from());
            }
        }
    }

    /// The transport has failed in a way that the peer is told of: drops what was under way, shuts down, and lingers.
    pub fn transport_refused<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        self.close(cx);
        self.stage = Stage::ShutDown;
        self.update_stage(cx);
    }

    /// Refuses a peer whose first bytes show that it does not speak the transport: answers `page`, as plain text, with
    /// 400 (Bad Request), and ends the connection.
    pub fn refuse_transport<S: Responder<File = F>>(
        &mut self,
        first: &[u8],
        page: &'static [u8],
        cx: &mut Context<'_, S>,
    ) {
        let body = Body::Bytes(Bytes::from_static(page));
        self.refuse_first(first, Response { body, ..Response::error(Status::BAD_REQUEST) }, cx);
    }

    /// Refuses a peer whatever it asks for: answers its first bytes, and ends the connection.
    pub fn refuse_first<S: Responder<File = F>>(
        &mut self,
        first: &[u8],
        response: Response<F>,
        cx: &mut Context<'_, S>,
    ) {
        cx.counts.received_bytes += first.len() as u64;
        self.refuse_with(response, first, cx);
        self.update_stage(cx);
    }

    /// Takes all bytes from the peer. Answers as many requests as the limits on queued output allow; the
    /// other requests wait inside.
    ///
    /// A driver should not receive while the connection wants [`Wants::Transmit`]: the connection would have
    /// to hold the bytes. Nothing else bounds pipelined input.
    pub fn receive<S: Responder<File = F>>(&mut self, bytes: &[u8], cx: &mut Context<'_, S>) {
        cx.counts.received_bytes += bytes.len() as u64;
        match &mut self.stage {
            Stage::Open if self.inbox.is_empty() => {
                let used = self.serve(bytes, cx);
                if self.stage == Stage::Open {
                    self.inbox.push(&bytes[used..], cx.buffers);
                }
            }
            Stage::Open => {
                self.inbox.push(bytes, cx.buffers);
                self.serve_inbox(cx);
            }
            Stage::Last { linger } => *linger = true,
            Stage::ShutDown | Stage::Lingering | Stage::Closed => {}
        }
        self.update_stage(cx);
    }

    /// Records that the peer has shut down its sending side. The connection finishes its queued responses,
    /// then ends.
    pub fn receive_end<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        self.peer_ended = true;
        self.update_stage(cx);
    }

    /// The next bytes to send. The result stays the same until a call of [`Connection::transmitted`].
    pub fn transmit(&self) -> Transmit<'_, F> {
        self.outbox.transmit()
    }

    /// Records that the transport took the first `count` bytes of [`Connection::transmit`]. May answer
    /// further pipelined requests.
    ///
    /// # Panics
    /// If `count` exceeds the bytes that [`Connection::transmit`] returned.
    pub fn transmitted<S: Responder<File = F>>(&mut self, count: u64, cx: &mut Context<'_, S>) {
        if count == 0 {
            return;
        }
        cx.counts.sent_bytes += count;
        self.outbox.advance(count, cx.buffers);
        if let (Some(unsent), Some(log)) = (&mut self.unsent, &mut cx.log) {
            unsent.advance(count, cx.now, *log);
            if unsent.is_empty() {
                self.unsent = None;
            }
        }
        self.moved = self.moved.saturating_add(u16::try_from(count).unwrap_or(u16::MAX));
        // A peer that took all that the pace let go has made progress.
        let is_paused = self.outbox.paused_until().is_some();
        let all_left = self.outbox.is_empty();
        if all_left || is_paused || u64::from(self.moved) >= LEAST_PROGRESS_BYTES {
            // The deadline also holds for a refusal that is queued next, because it awaits the same event.
            self.deadline = cx.now.saturating_add(cx.settings.timeouts.write_stall);
            self.moved = 0;
        }
        if !all_left && !is_paused {
            return;
        }
        if all_left && self.stage == Stage::Open && !self.inbox.is_empty() {
            self.serve_inbox(cx);
        }
        self.update_stage(cx);
    }

    /// Ends the connection because a file ended before its range. The promised length cannot be kept, and
    /// only the connection's end can tell the peer so.
    pub fn truncated<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        cx.counts.truncated += 1;
        self.close(cx);
    }

    /// Asks the responder again for its pending answer, then serves the bytes that arrived after that
    /// request. Does nothing if no answer is pending.
    pub fn resume<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        if !std::mem::take(&mut self.deferred) {
            return;
        }
        if let Some(incoming) = self.incoming.take() {
            self.request(&incoming.head, Content::Read(&incoming.content), cx);
        }
        if !self.deferred && !self.inbox.is_empty() {
            self.serve_inbox(cx);
        }
        self.update_stage(cx);
    }

    /// True if an answer is pending. Earlier answers may still be waiting to be sent.
    pub fn is_deferred(&self) -> bool {
        self.deferred
    }

    /// The action that this connection wants from its driver.
    pub fn wants(&self) -> Wants {
        match self.stage {
            Stage::Closed => Wants::Close,
            Stage::ShutDown => Wants::ShutdownThenReceive,
            Stage::Lingering => Wants::Receive,
            Stage::Open if self.outbox.is_empty() && self.deferred => Wants::Resume,
            Stage::Open | Stage::Last { .. } if self.outbox.is_empty() => Wants::Receive,
            Stage::Open | Stage::Last { .. } if self.outbox.paused_until().is_some() => Wants::Pause,
            Stage::Open | Stage::Last { .. } => Wants::Transmit,
        }
    }

    /// Records that the driver has shut down the sending side.
    pub fn shut_down(&mut self) {
        if self.stage == Stage::ShutDown {
            self.stage = Stage::Lingering;
        }
    }

    /// The time at which [`Connection::expire`] is due. Every call may move it, later or earlier.
    pub fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Ends the wait whose deadline has passed: answers 408 to a begun head or content, lets a paced response
    /// go on, and closes the connection in every other case. Does nothing before the deadline.
    pub fn expire<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        if cx.now < self.deadline {
            return;
        }
        match self.awaiting {
            Awaiting::FirstByte => {
                cx.counts.timeouts_header += 1;
                self.close(cx);
            }
            Awaiting::Request => {
                cx.counts.timeouts_idle += 1;
                self.close(cx);
            }
            Awaiting::Head => {
                cx.counts.timeouts_header += 1;
                let inbox = std::mem::take(&mut self.inbox);
                self.refuse(Status::REQUEST_TIMEOUT, inbox.pending(), cx);
                self.inbox = inbox;
                self.inbox.clear(cx.buffers);
                self.update_stage(cx);
            }
            Awaiting::Body => {
                cx.counts.timeouts_body += 1;
                if let Some(incoming) = self.incoming.take() {
                    self.refuse_content(Status::REQUEST_TIMEOUT, &incoming, cx);
                }
                self.update_stage(cx);
            }
            Awaiting::Write => {
                cx.counts.timeouts_write_stall += 1;
                self.close(cx);
            }
            Awaiting::Pace => {
                self.outbox.refill(cx.now);
                self.update_stage(cx);
            }
            Awaiting::PeersEnd => {
                cx.counts.timeouts_linger += 1;
                self.close(cx);
            }
            Awaiting::Windows | Awaiting::Responder | Awaiting::Nothing => {}
        }
    }

    /// Ends the connection after the work under way. Closes an idle connection at once, and a new one if its
    /// first request does not come in time. Every other connection has `Connection: close` in the next
    /// response that it begins.
    pub fn drain<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        if self.awaiting != Awaiting::PeersEnd {
            self.give_way(cx);
            self.deadline = self.deadline.min(self.idle_from());
        }
    }

    /// Ends the connection after its next response, which says so. It acts as [`drain`](Self::drain) does, but leaves an
    /// idle connection its time, so that no request crosses the end.
    pub fn retire(&mut self) {
        self.retiring = true;
    }

    /// Makes room for another connection. It acts as [`drain`](Self::drain) does, but also closes a lingering
    /// connection, and leaves a new one its time.
    pub fn give_way<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        self.draining = true;
        if self.idle_from() <= cx.now {
            self.close(cx);
        }
        self.update_stage(cx);
    }

    /// Ends the connection after a failure of the transport or by the driver's own choice. Frees its memory
    /// and logs cut responses. Harmless at any time.
    pub fn abort<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        self.close(cx);
    }

    /// The time from which the connection counts as idle if nothing arrives. It is the end of the last
    /// response between two requests. A new or lingering connection becomes idle after a while; one with a
    /// request or response under way never does.
    pub fn idle_from(&self) -> Nanos {
        let idle_at = |after| self.started.saturating_add(after).min(self.deadline);
        self.awaiting.idle_after().map_or(Nanos::MAX, idle_at)
    }

    /// True until the first request has been read.
    pub fn is_new(&self) -> bool {
        self.requests == 0
    }

    /// True if the connection waits for the first byte of a request.
    pub fn awaits_request(&self) -> bool {
        matches!(self.awaiting, Awaiting::FirstByte | Awaiting::Request)
    }

    /// Counts an idle connection as idle since `at`, when its peer was answered without this machine.
    pub fn answered_elsewhere(&mut self, at: Nanos, settings: &Settings) {
        if self.awaits_request() {
            self.started = self.started.max(at);
            self.deadline = self.deadline.max(at.saturating_add(settings.timeouts.idle));
        }
    }

    /// Moves on to the next stage if the current one is over, and sets the deadline.
    fn update_stage<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        if self.outbox.is_empty() {
            self.next_stage(cx);
        }
        let paused_until = self.outbox.paused_until();
        let awaiting = match self.stage {
            Stage::Closed => return,
            Stage::ShutDown | Stage::Lingering => Awaiting::PeersEnd,
            Stage::Open | Stage::Last { .. } if paused_until.is_some() => Awaiting::Pace,
            Stage::Open | Stage::Last { .. } if !self.outbox.is_empty() => Awaiting::Write,
            Stage::Open if self.deferred => Awaiting::Responder,
            Stage::Open if self.incoming.is_some() => Awaiting::Body,
            Stage::Open if !self.inbox.is_empty() => Awaiting::Head,
            // This includes an empty line before the first request, in any pieces.
            Stage::Open if self.requests == 0 => Awaiting::FirstByte,
            Stage::Open | Stage::Last { .. } => Awaiting::Request,
        };
        if awaiting == self.awaiting {
            return;
        }
        self.awaiting = awaiting;
        if matches!(awaiting, Awaiting::Request | Awaiting::PeersEnd) {
            self.started = cx.now;
        }
        let timeout = awaiting.timeout(&cx.settings.timeouts);
        self.deadline = paused_until.unwrap_or_else(|| cx.now.saturating_add(timeout));
        self.moved = 0;
    }

    /// True if a head is complete and its request has no answer yet.
    fn is_reading_request(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.answered)
    }

    /// Moves to the next stage after all queued output has been sent.
    fn next_stage<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        let between_requests = self.inbox.is_empty() && !self.is_reading_request();
        match self.stage {
            _ if self.deferred => {}
            _ if self.peer_ended => self.close(cx),
            Stage::Last { linger } if linger || self.always_lingers => self.stage = Stage::ShutDown,
            Stage::Last { .. } => self.close(cx),
            // The response had begun before the drain did, so it has no `Connection: close`. A new connection
            // keeps its time.
            Stage::Open if self.draining && between_requests && self.requests > 0 => {
                self.stage = Stage::ShutDown;
            }
            Stage::Open | Stage::ShutDown | Stage::Lingering | Stage::Closed => {}
        }
    }

    /// Ends the connection and frees its memory.
    fn close<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        if !self.outbox.is_empty() {
            cx.counts.incomplete_responses += 1;
        }
        if !self.inbox.is_empty() || self.is_reading_request() {
            cx.counts.incomplete_requests += 1;
        }
        if let (Some(mut unsent), Some(log)) = (self.unsent.take(), &mut cx.log) {
            unsent.end(cx.now, *log);
        }
        self.outbox.clear(cx.buffers);
        self.inbox.clear(cx.buffers);
        self.incoming = None;
        self.deferred = false;
        self.stage = Stage::Closed;
        self.awaiting = Awaiting::Nothing;
        self.deadline = Nanos::MAX;
    }
}
