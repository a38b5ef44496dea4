//! A TCP stack for one thread and one server: connections, their timers, and the link they share.
//!
//! The stack does for the generator's engine what kernel sockets and an interest set do, and the same loop
//! drives it. It reads no clock: the caller passes times, which never decrease.
//!
//! ```text
//!   loop {
//!       start, send, close ...            connect, send, finish, close, abort, grant
//!       stack.flush(now)                  segments leave, in one batch
//!       stack.wait(until next_due)        sleeps
//!       stack.expire(now)                 timers
//!       while let Some(event) = stack.next(now) {
//!           ... stack.bytes() ...         what came, where the link received it
//!       }
//!   }
//! ```
//!
//! An application names a connection by the [`Key`] from [`Stack::connect`], and the stack names it by the
//! application's token. The key is valid until the connection fails or the application closes it; the stack
//! completes the close by itself.
//!
//! Invariants: a connection that may have segments to send is queued. A connection with a deadline has an
//! entry in the wheel that is due no later. No event follows a failure or a close. (Exception:
//! [`Stack::expire`] reports a timeout with the next events, even if the application closes the connection
//! before.)

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use base::{Key, Nanos, Seed};
use dispatch::Token;
use rand::Rng as _;

use crate::counts::{Counts, Shared};
use crate::endpoint::{Endpoint, Failure, News, Window, refusal};
use crate::frame::{self, Flow, Segment};
use crate::isn::InitialSequence;
use crate::link::Link;
use crate::net::SourceNet;
use crate::table::Table;
use crate::ticks::{LATE_MS, Ticks};
use crate::wrapping::Millis;

/// Packets received between two flushes, so that requests and acknowledgments do not wait for a burst to end.
pub const PACKETS_PER_TURN: usize = 256;

/// The server of a stack, and the names of its connections.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The server.
    pub server: SocketAddr,
    /// The addresses that connections come from, of the server's family.
    pub net: SourceNet,
    /// The source of the secret of the initial sequence numbers, and of the first names.
    pub seed: Seed,
    /// The caller's time zero on a clock that all runs share, such as CLOCK_MONOTONIC. Timestamps and
    /// sequence numbers follow it, so that they rise from one run to the next.
    pub epoch: Nanos,
    /// The number of times that a SYN is sent again after a second each, before its timeout doubles. 4 is Linux's
    /// `tcp_syn_linear_timeouts` since 6.5: SYNs again after 1, 2, 3, 4, 5, 7 and 11 s. 0 gives 1, 3 and 7 s.
    pub syn_linear_timeouts: u8,
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The application's token for the connection.
    pub token: Token,
    /// The kind of event.
    pub kind: Kind,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The connection is established and takes bytes.
    Established,
    /// Bytes were received: [`Stack::bytes`].
    Received,
    /// The server sends nothing more.
    Ended,
    /// The send buffer has room, after [`Stack::send`] took only a part.
    HasRoom,
    /// The connection failed, and its key is no longer valid.
    Failed(Failure),
}

/// The news of one segment that were not returned yet.
#[derive(Debug, Default)]
struct Untold {
    /// The connection's place while news remain.
    index: Option<u32>,
    news: News,
    /// The offset of the segment's payload in the packet.
    payload: usize,
}

/// The location of the last event's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Bytes {
    None,
    InPacket(Range<usize>),
    Filled,
}

/// The TCP stack of one thread.
pub struct Stack<L> {
    link: L,
    config: Config,
    numbers: InitialSequence,
    table: Table,
    timers: Ticks,
    due: Vec<Token>,
    /// Places of connections that may have segments to send.
    queue: Vec<u32>,
    /// Connections that timed out.
    failed: VecDeque<Event>,
    untold: Untold,
    bytes: Bytes,
    filled: Vec<u8>,
    /// Packets received since the last flush.
    packets: usize,
    shared: Shared,
}

impl<L: Link> Stack<L> {
    /// A stack without connections. `now` is the caller's time.
    ///
    /// # Panics
    /// Panics if server and net have different families, which no link allows.
    pub fn new(link: L, config: Config, now: Nanos) -> Stack<L> {
        assert_eq!(config.server.is_ipv4(), config.net.network().is_ipv4());
        let mut draws = config.seed.child("user TCP").rng();
        let numbers = InitialSequence::new([draws.next_u64(), draws.next_u64()], config.server);
        Stack {
            link,
            config,
            numbers,
            table: Table::new(config.net, draws.next_u32()),
            timers: Ticks::new(now),
            due: Vec::new(),
            queue: Vec::new(),
            failed: VecDeque::new(),
            untold: Untold::default(),
            bytes: Bytes::None,
            filled: Vec::new(),
            packets: 0,
            shared: Shared::new(config.syn_linear_timeouts),
        }
    }

    /// Begins a connection; its events will carry `token`. `None` if every name of the source net is in use.
    pub fn connect(&mut self, token: Token, window: Window, now: Nanos) -> Option<Key> {
        let millis = self.millis(now);
        let Some(taken) = self.table.take(token, millis) else {
            self.shared.counts.no_name += 1;
            return None;
        };
        self.shared.counts.names_reused_early += u64::from(taken.is_early);
        let index = taken.key.index;
        let first = self.numbers.at(self.config.epoch.saturating_add(now), self.table.name(index));
        let mss = frame::mss(self.config.server, self.link.mtu());
        self.table.place(index).endpoint = Endpoint::connect(first, mss, window);
        self.enqueue(index);
        Some(taken.key)
    }

    /// Takes bytes to send and returns the number taken ([`Endpoint::send`]); 0 for an invalid key.
    pub fn send(&mut self, key: Key, bytes: &[u8], now: Nanos) -> usize {
        let millis = self.millis(now);
        let Some(place) = self.table.held(key) else { return 0 };
        let taken = place.endpoint.send(bytes, millis);
        self.enqueue(key.index);
        taken
    }

    /// Ends our direction of a connection after the sent data; the server's direction stays open.
    pub fn finish(&mut self, key: Key) {
        if let Some(place) = self.table.held(key) {
            place.endpoint.finish();
            self.enqueue(key.index);
        }
    }

    /// Closes a connection; sent data and a FIN still reach the server. The key becomes invalid.
    pub fn close(&mut self, key: Key, now: Nanos) {
        let millis = self.millis(now);
        let Some(place) = self.table.held(key) else { return };
        place.endpoint.close(millis, &mut self.shared);
        self.enqueue(key.index);
        self.forget(key.index, now);
    }

    /// Abandons a connection with an RST, or silently if it was never established. The key becomes invalid.
    pub fn abort(&mut self, key: Key, now: Nanos) {
        let millis = self.millis(now);
        let Some(place) = self.table.held(key) else { return };
        let reset = place.endpoint.abort(millis, &mut self.shared);
        if let Some(reset) = reset {
            self.send_reset(self.table.name(key.index), &reset);
        }
        self.forget(key.index, now);
    }

    /// Lets the server send another `bytes`, on a connection with [`Window::Granted`].
    pub fn grant(&mut self, key: Key, bytes: u32) {
        if let Some(place) = self.table.held(key) {
            place.endpoint.grant(bytes);
            self.enqueue(key.index);
        }
    }

    /// Returns true if the server has acknowledged data of this connection ([`Endpoint::is_acknowledged`]).
    pub fn is_acknowledged(&mut self, key: Key) -> bool {
        self.table.held(key).is_some_and(|place| place.endpoint.is_acknowledged())
    }

    /// Sends all pending segments.
    ///
    /// # Errors
    /// The link is gone.
    pub fn flush(&mut self, now: Nanos) -> io::Result<()> {
        let millis = self.millis(now);
        let mut queue = std::mem::take(&mut self.queue);
        for index in queue.drain(..) {
            let flow = self.flow(index);
            let endpoint = &mut self.table.place(index).endpoint;
            endpoint.dequeue();
            while let Some(outgoing) = endpoint.transmit(millis) {
                let payload = endpoint.payload(outgoing.payload);
                put(&mut self.link, &mut self.shared.counts, &flow, &outgoing.segment, payload);
            }
            self.set_timer(index, now);
        }
        self.queue = queue;
        self.packets = 0;
        self.shared.counts.unsent += self.link.flush()?;
        Ok(())
    }

    /// The next time at which [`expire`](Self::expire) has work.
    pub fn next_due(&self) -> Option<Nanos> {
        self.timers.next()
    }

    /// Sleeps until a packet arrives or the timeout passes.
    ///
    /// # Errors
    /// Errors of poll(2).
    pub fn wait(&mut self, timeout: Nanos) -> io::Result<()> {
        self.link.wait(timeout)
    }

    /// Handles due timers: retransmissions, delayed acknowledgments, timeouts.
    pub fn expire(&mut self, now: Nanos) {
        let millis = self.millis(now);
        let mut due = std::mem::take(&mut self.due);
        let table = &mut self.table;
        // A timer without a purpose wakes nobody up.
        let mut matters = |timer: &Token| {
            let Some(place) = table.living((*timer).into()) else { return false };
            // Another entry of this connection comes later.
            if !place.entry_at.is_due(millis) {
                return false;
            }
            let has_deadline = place.endpoint.deadline(millis).is_some();
            if !has_deadline {
                place.entry_at = Millis(0);
            }
            has_deadline
        };
        self.timers.expire(now, &mut due, &mut matters);
        for key in due.drain(..).map(Key::from) {
            let Some(place) = self.table.living(key).filter(|place| place.entry_at.is_due(millis)) else {
                continue;
            };
            place.entry_at = Millis(0);
            let was_over = place.endpoint.is_over();
            if let Some(failure) = place.endpoint.on_timer(millis, &mut self.shared) {
                let token = self.table.token(key.index);
                self.failed.push_back(Event { token, kind: Kind::Failed(failure) });
            }
            self.enqueue(key.index);
            self.update_table(key.index, was_over, now);
        }
        self.due = due;
    }

    /// The next event; `None` at the end of the turn.
    ///
    /// # Errors
    /// The link is gone.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot be handed the time")]
    pub fn next(&mut self, now: Nanos) -> io::Result<Option<Event>> {
        self.bytes = Bytes::None;
        loop {
            if let Some(event) = self.next_event().or_else(|| self.failed.pop_front()) {
                return Ok(Some(event));
            }
            if self.packets == PACKETS_PER_TURN || !self.link.receive()? {
                return Ok(None);
            }
            self.packets += 1;
            self.take_packet(now);
        }
    }

    /// Resets every connection, so that the server keeps none of them. Call it at the end of a run, after
    /// which no stack would answer the server.
    ///
    /// # Errors
    /// The link is gone.
    pub fn reset_all(&mut self, now: Nanos) -> io::Result<()> {
        let millis = self.millis(now);
        for index in 0..self.table.places() {
            let endpoint = &mut self.table.place(index).endpoint;
            if endpoint.is_over() {
                continue;
            }
            if let Some(reset) = endpoint.abort(millis, &mut self.shared) {
                self.send_reset(self.table.name(index), &reset);
            }
            self.forget(index, now);
            if (index as usize + 1).is_multiple_of(PACKETS_PER_TURN) {
                self.flush(now)?;
            }
        }
        self.flush(now)
    }

    /// The bytes of the last event, until the next call of [`next`](Self::next).
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::None => &[],
            Bytes::InPacket(range) => &self.link.packet().bytes[range.clone()],
            Bytes::Filled => &self.filled,
        }
    }

    /// The number of connections, including closed ones that still exchange segments with the server.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if there are no connections.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Bytes stored out of order.
    pub fn stored(&self) -> usize {
        self.shared.stored()
    }

    /// The totals so far.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    fn millis(&self, now: Nanos) -> Millis {
        Millis((self.config.epoch.saturating_add(now).0 / Nanos::MILLISECOND.0) as u32)
    }

    fn flow(&self, index: u32) -> Flow {
        Flow { local: self.table.name(index), remote: self.config.server }
    }

    /// The next event from the news of the last segment.
    fn next_event(&mut self) -> Option<Event> {
        let token = self.table.token(self.untold.index?);
        let news = &mut self.untold.news;
        let kind = if std::mem::take(&mut news.established) {
            Kind::Established
        } else if !news.delivered.is_empty() {
            let Range { start, end } = std::mem::take(&mut news.delivered);
            self.bytes = Bytes::InPacket(self.untold.payload + start..self.untold.payload + end);
            Kind::Received
        } else if !news.filled.is_empty() {
            self.filled = std::mem::take(&mut news.filled);
            self.bytes = Bytes::Filled;
            Kind::Received
        } else if std::mem::take(&mut news.has_room) {
            Kind::HasRoom
        } else if std::mem::take(&mut news.ended) {
            Kind::Ended
        } else if let Some(failure) = news.failed.take() {
            Kind::Failed(failure)
        } else {
            self.untold.index = None;
            return None;
        };
        Some(Event { token, kind })
    }

    /// Handles the packet that the link advanced to.
    fn take_packet(&mut self, now: Nanos) {
        let millis = self.millis(now);
        let packet = self.link.packet();
        let received = match frame::read(packet.bytes, packet.checksum) {
            Ok(received) => received,
            Err(why) => return self.shared.counts.dropped(why),
        };
        let Some(number) = self.config.net.number(received.flow.local) else {
            self.shared.counts.not_ours += 1;
            return;
        };
        if received.flow.remote != self.config.server {
            self.shared.counts.strangers += 1;
            return;
        }
        self.shared.counts.received += 1;
        let payload = &packet.bytes[received.payload.clone()];
        let Some(index) = self.table.find(number) else {
            self.shared.counts.unknown += 1;
            if let Some(reset) = refusal(&received.segment, payload.len()) {
                self.send_reset(received.flow.local, &reset);
            }
            return;
        };
        let endpoint = &mut self.table.place(index).endpoint;
        let was_over = endpoint.is_over();
        let mut news = endpoint.receive(&received.segment, payload, millis, &mut self.shared);
        if let Some(reset) = news.reset.take() {
            self.send_reset(received.flow.local, &reset);
        }
        self.untold = Untold { index: Some(index), news, payload: received.payload.start };
        self.enqueue(index);
        self.update_table(index, was_over, now);
    }

    fn send_reset(&mut self, local: SocketAddr, reset: &Segment) {
        self.shared.counts.resets_sent += 1;
        let flow = Flow { local, remote: self.config.server };
        put(&mut self.link, &mut self.shared.counts, &flow, reset, &[]);
    }

    /// Queues a place if its connection may have segments to send.
    fn enqueue(&mut self, index: u32) {
        let endpoint = &mut self.table.place(index).endpoint;
        if endpoint.wants_to_send() && endpoint.enqueue() {
            self.queue.push(index);
        }
    }

    /// Drops the news of a connection that the application has closed; the connection was not over before.
    fn forget(&mut self, index: u32, now: Nanos) {
        if self.untold.index == Some(index) {
            self.untold.index = None;
        }
        self.update_table(index, false, now);
    }

    /// Updates table and timers after any change of a connection's state or deadline.
    fn update_table(&mut self, index: u32, was_over: bool, now: Nanos) {
        if !was_over && self.table.place(index).endpoint.is_over() {
            let millis = self.millis(now);
            self.table.rest(index, millis);
        }
        self.set_timer(index, now);
    }

    /// Adds an entry to the wheel for the connection's deadline, unless an entry exists that is early enough.
    fn set_timer(&mut self, index: u32, now: Nanos) {
        let millis = self.millis(now);
        let place = self.table.place(index);
        let Some(deadline) = place.endpoint.deadline(millis) else { return };
        if place.entry_at != Millis(0) && place.entry_at.is_due(deadline + LATE_MS) {
            return;
        }
        let ahead = if deadline.is_due(millis) { 0 } else { deadline.since(millis) };
        let at = self.timers.schedule(self.table.key(index).into(), now + Nanos::from_millis(ahead.into()));
        self.table.place(index).entry_at = self.millis(at);
    }
}

/// Writes a segment into the link.
fn put<L: Link>(link: &mut L, counts: &mut Counts, flow: &Flow, segment: &Segment, payload: &[u8]) {
    let leaving = link.leaving();
    match link.packet_out(frame::length(flow, segment, payload.len())) {
        Some(buffer) => {
            frame::write(buffer, flow, segment, payload, leaving);
            counts.sent += 1;
        }
        None => counts.unsent += 1,
    }
}
