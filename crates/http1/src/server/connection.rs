//! One connection: what is read, what is answered, when it ends.
//!
//! Invariants:
//! - Responses leave in the order of their requests.
//! - While [`Wants::Receive`] is what it wants, no complete request waits in here: the driver may sleep
//!   until bytes or the deadline come.
//! - The bytes of the responses depend on the bytes received, not on the pieces they came in. (Whether
//!   100 (Continue) is sent does depend: it is left out where content is already there.)
//! - An idle connection holds no heap memory.

mod reading;

use base::Nanos;

use super::awaiting::Awaiting;
use super::inbox::Inbox;
use super::incoming::Incoming;
use super::log::Unsent;
use super::outbox::Outbox;
use super::{Context, Responder, Settings, Transmit};
use crate::head_syntax::HeadSyntax;
use crate::scan::HeadScan;
use crate::status::Status;
use reading::Content;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Bytes from the peer.
    Receive,
    /// That what [`Connection::transmit`] gives is sent.
    Transmit,
    /// That what the responder has to wait for has come, and [`Connection::resume`] called.
    Resume,
    /// That the sending side is shut down, once, and [`Connection::shut_down`] called. From there
    /// on it receives, and forgets what it receives.
    ShutdownThenReceive,
    /// To be closed.
    Close,
}

/// How far a connection is in its life.
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
    /// The last response is queued. `linger`: input may be unread, and closing over unread input makes
    /// the kernel send a reset, upon which the peer may lose the response.
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
    /// The request in `incoming` is complete, and its answer is waited for.
    deferred: bool,
    unsent: Option<Box<Unsent>>,
    deadline: Nanos,
    /// When the request being read began, or the wait for the next one or the peer's end.
    started: Nanos,
    scan: HeadScan,
    /// How far a head that is not complete has been checked.
    syntax: HeadSyntax,
    requests: u32,
    empty_lines: u8,
    stage: Stage,
    awaiting: Awaiting,
    peer_ended: bool,
    draining: bool,
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
            stage: Stage::Open,
            awaiting: Awaiting::FirstByte,
            peer_ended: false,
            draining: false,
        }
    }

    /// Bytes came from the peer. Takes all of them and answers as many requests as the limits
    /// on queued output allow; the rest waits inside.
    ///
    /// A driver that receives although [`Wants::Transmit`] is what is wanted makes the connection hold
    /// what it brings: nothing but that order bounds pipelined input.
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
        self.settle(cx);
    }

    /// The peer has shut down its sending side: what is queued is finished, then the connection ends.
    pub fn receive_end<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        self.peer_ended = true;
        self.settle(cx);
    }

    /// What to send now. The same again until [`Connection::transmitted`] moves it on.
    pub fn transmit(&self) -> Transmit<'_, F> {
        self.outbox.transmit()
    }

    /// The transport took the first `count` bytes of what [`Connection::transmit`] gave. May answer
    /// further pipelined requests.
    ///
    /// # Panics
    /// If that is more than was given.
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
        // Also of what is queued next, where that is a refusal: it waits for the same as before.
        self.deadline = cx.now.saturating_add(cx.settings.timeouts.write_stall);
        if !self.outbox.is_empty() {
            return;
        }
        if self.stage == Stage::Open && !self.inbox.is_empty() {
            self.serve_inbox(cx);
        }
        self.settle(cx);
    }

    /// The file that is being sent ended before its range. The promised length cannot be kept, and
    /// nothing but the connection's end can tell the peer so.
    pub fn truncated<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        cx.counts.truncated += 1;
        self.close(cx);
    }

    /// Asks the responder once more for the answer that it had to wait for, and goes on with what has arrived
    /// behind that request. Does nothing where no answer is waited for.
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
        self.settle(cx);
    }

    /// Whether an answer is waited for. What was answered before it may be waiting to be sent meanwhile.
    pub fn is_deferred(&self) -> bool {
        self.deferred
    }

    /// What this connection waits for.
    pub fn wants(&self) -> Wants {
        match self.stage {
            Stage::Closed => Wants::Close,
            Stage::ShutDown => Wants::ShutdownThenReceive,
            Stage::Lingering => Wants::Receive,
            Stage::Open if self.outbox.is_empty() && self.deferred => Wants::Resume,
            Stage::Open | Stage::Last { .. } if self.outbox.is_empty() => Wants::Receive,
            Stage::Open | Stage::Last { .. } => Wants::Transmit,
        }
    }

    /// The driver has shut down the sending side.
    pub fn shut_down(&mut self) {
        if self.stage == Stage::ShutDown {
            self.stage = Stage::Lingering;
        }
    }

    /// When [`Connection::expire`] is due; moves with every call, later or earlier.
    pub fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Ends the waiting whose deadline has passed: 408 for a head or content that has begun, closing for
    /// everything else. Does nothing before the deadline.
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
                self.settle(cx);
            }
            Awaiting::Body => {
                cx.counts.timeouts_body += 1;
                if let Some(incoming) = self.incoming.take() {
                    self.refuse_content(Status::REQUEST_TIMEOUT, &incoming, cx);
                }
                self.settle(cx);
            }
            Awaiting::Write => {
                cx.counts.timeouts_write_stall += 1;
                self.close(cx);
            }
            Awaiting::PeersEnd => {
                cx.counts.timeouts_linger += 1;
                self.close(cx);
            }
            Awaiting::Responder | Awaiting::Nothing => {}
        }
    }

    /// Ends the connection after what is under way: closes an idle connection at once, and a new one whose first
    /// request does not come in time; any other says `Connection: close` on the next response that it begins.
    pub fn drain<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        if self.awaiting != Awaiting::PeersEnd {
            self.give_way(cx);
            self.deadline = self.deadline.min(self.idle_from());
        }
    }

    /// Another connection needs its place: the same, but closes one that lingers as well, and leaves a new one its time.
    pub fn give_way<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        self.draining = true;
        if self.idle_from() <= cx.now {
            self.close(cx);
        }
        self.settle(cx);
    }

    /// The transport has failed, or the driver has a reason of its own to give up. Gives memory back and logs
    /// what was cut off; harmless at any time.
    pub fn abort<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        self.close(cx);
    }

    /// When the connection counts as idle if nothing arrives until then: since the last response between two requests,
    /// after a while if it is new or lingers, and never while a request or response is under way.
    pub fn idle_from(&self) -> Nanos {
        let idle_at = |after| self.started.saturating_add(after).min(self.deadline);
        self.awaiting.idle_after().map_or(Nanos::MAX, idle_at)
    }

    /// Whether the connection waits for the first byte of a request.
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

    /// Moves on to the next stage where this one is over, and sets the deadline of what comes next.
    fn settle<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        if self.outbox.is_empty() {
            self.next_stage(cx);
        }
        let awaiting = match self.stage {
            Stage::Closed => return,
            Stage::ShutDown | Stage::Lingering => Awaiting::PeersEnd,
            Stage::Open | Stage::Last { .. } if !self.outbox.is_empty() => Awaiting::Write,
            Stage::Open if self.deferred => Awaiting::Responder,
            Stage::Open if self.incoming.is_some() => Awaiting::Body,
            Stage::Open if !self.inbox.is_empty() => Awaiting::Head,
            // Also after an empty line, in however many pieces it came.
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
        self.deadline = cx.now.saturating_add(awaiting.timeout(&cx.settings.timeouts));
    }

    /// Whether a head is complete whose request has no answer yet.
    fn is_reading_request(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.answered)
    }

    /// Everything queued has been sent.
    fn next_stage<S: Responder<File = F>>(&mut self, cx: &mut Context<'_, S>) {
        let between_requests = self.inbox.is_empty() && !self.is_reading_request();
        match self.stage {
            _ if self.deferred => {}
            _ if self.peer_ended => self.close(cx),
            Stage::Last { linger: false } => self.close(cx),
            Stage::Last { linger: true } => self.stage = Stage::ShutDown,
            // Its response had begun before the server knew that it was the last. A new connection keeps its time.
            Stage::Open if self.draining && between_requests && self.requests > 0 => {
                self.stage = Stage::ShutDown;
            }
            Stage::Open | Stage::ShutDown | Stage::Lingering | Stage::Closed => {}
        }
    }

    /// Ends the connection and gives back all that it holds.
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
