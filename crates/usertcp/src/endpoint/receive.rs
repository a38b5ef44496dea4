//! The receiving side of a connection: the effect of each segment (RFC 9293, section 3.10.7).

use std::ops::Range;

use super::{
    DATA_RETRIES, DELAYED_ACK_MS, Endpoint, FIN_WAIT_MS, Failure, Marks, SEND_BUFFER, State, UNSET,
    WINDOW_MAX,
};
use crate::counts::Shared;
use crate::frame::{Flags, Segment};
use crate::wrapping::{Millis, Seq};

/// An acknowledgment this far in the past counts as injected (RFC 5961, section 5.2): the largest possible
/// window.
const OLDEST_ACK: u32 = 1 << 30;

/// Duplicate acknowledgments that mean a loss (RFC 5681, section 3.2).
const DUPLICATE_ACKS: u8 = 3;

/// The effects of a segment for application and stack, in the order of the fields.
#[derive(Debug, Default)]
pub struct News {
    /// The handshake is complete.
    pub established: bool,
    /// Bytes that are next in order, as a range of the segment's payload.
    pub delivered: Range<usize>,
    /// Bytes that had come early and are now in order.
    pub filled: Vec<u8>,
    /// The server sends nothing more.
    pub ended: bool,
    /// The send buffer has room again.
    pub has_room: bool,
    /// The connection has failed and is closed.
    pub failed: Option<Failure>,
    /// An RST to be sent.
    pub reset: Option<Segment>,
}

/// The RST that answers a segment of no connection (RFC 9293, section 3.10.7.1); `None` for an RST.
pub fn refusal(segment: &Segment, payload: usize) -> Option<Segment> {
    if segment.flags.has(Flags::RST) {
        return None;
    }
    if segment.flags.has(Flags::ACK) {
        return Some(Segment { seq: segment.ack, flags: Flags::RST, ..Segment::default() });
    }
    let length = length(segment, payload) + u32::from(segment.flags.has(Flags::SYN));
    Some(Segment { ack: segment.seq + length, flags: Flags::RST | Flags::ACK, ..Segment::default() })
}

/// The length in sequence numbers, without a SYN.
fn length(segment: &Segment, payload: usize) -> u32 {
    payload as u32 + u32::from(segment.flags.has(Flags::FIN))
}

impl Endpoint {
    /// Handles a received segment.
    pub fn receive(&mut self, segment: &Segment, payload: &[u8], now: Millis, shared: &mut Shared) -> News {
        let mut news = News::default();
        match self.state {
            State::Closed => {
                shared.counts.unknown += 1;
                news.reset = refusal(segment, payload.len());
            }
            State::SynSent => self.receive_answer(segment, payload, now, shared, &mut news),
            _ => self.receive_synchronized(segment, payload, now, shared, &mut news),
        }
        news
    }

    /// Handles a segment in SynSent (section 3.10.7.3). A payload is ignored: the server retransmits it.
    fn receive_answer(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        now: Millis,
        shared: &mut Shared,
        news: &mut News,
    ) {
        let flags = segment.flags;
        if flags.has(Flags::ACK) && segment.ack != self.unacked + 1 {
            shared.counts.wrong_acks += 1;
            news.reset = refusal(segment, payload.len());
        } else if flags.has(Flags::RST) {
            if flags.has(Flags::ACK) {
                shared.counts.resets_received += 1;
                self.end(shared);
                news.failed = Some(Failure::Refused);
            }
        } else if flags.has(Flags::SYN | Flags::ACK) {
            self.establish(segment, now);
            news.established = true;
        }
    }

    fn establish(&mut self, segment: &Segment, now: Millis) {
        let options = &segment.options;
        (self.unacked, self.next) = (segment.ack, segment.ack);
        (self.expected, self.acked) = (segment.seq + 1, segment.seq + 1);
        self.edge = self.expected + self.window;
        // The window of a SYN is never scaled.
        self.peer_window = u32::from(segment.window);
        self.mss = self.mss.min(options.mss.unwrap_or(536)).max(64);
        if let Some(timestamps) = options.timestamps {
            self.marks.set(Marks::TIMESTAMPS);
            self.ts_recent = timestamps.value;
            self.mss -= 12;
        }
        if options.sack_permitted {
            self.marks.set(Marks::SACK);
        }
        if let Some(scale) = options.window_scale {
            self.marks.set(Marks::SCALED);
            self.peer_scale = scale;
        }
        match options.timestamps {
            Some(timestamps) => self.measure(now.since(Millis(timestamps.echo))),
            // With several SYNs sent, it is unknown which one was answered (Karn's algorithm, RFC 6298,
            // section 3).
            None if self.retries == 0 => {
                // The timeout of the SYN may have passed already.
                self.measure(now.since(self.due).wrapping_add(super::RTO_FIRST_MS))
            }
            None => {}
        }
        self.state = State::Established;
        self.due = UNSET;
        self.retries = 0;
        self.marks.set(Marks::HANDSHAKE_ACK);
    }

    /// Handles a segment in every state after SynSent (section 3.10.7.4).
    fn receive_synchronized(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        now: Millis,
        shared: &mut Shared,
        news: &mut News,
    ) {
        if segment.flags.has(Flags::RST) {
            return self.receive_reset(segment, now, shared, news);
        }
        if segment.flags.has(Flags::SYN) {
            return self.receive_syn(segment, now, shared);
        }
        if !segment.flags.has(Flags::ACK) {
            return;
        }
        let length = length(segment, payload.len());
        if self.is_of_the_past(segment) {
            shared.counts.old_timestamps += 1;
            return self.challenge(length, now, shared);
        }
        if !self.is_acceptable(segment.seq, length) {
            let old = !(segment.seq + length).is_after(self.expected);
            *(if old { &mut shared.counts.duplicates } else { &mut shared.counts.beyond_window }) += 1;
            return self.challenge(length, now, shared);
        }
        if let Some(timestamps) = segment.options.timestamps
            && !segment.seq.is_after(self.acked)
        {
            self.ts_recent = timestamps.value;
        }
        if !self.receive_ack(segment, payload.is_empty(), now, shared, news) {
            return;
        }
        if length > 0 && self.state != State::Closed {
            self.receive_data(segment, payload, now, shared, news);
        }
        self.drop_idle_backlog();
    }

    /// Handles an RST. Only the exact expected number ends the connection (RFC 5961, section 3.2).
    fn receive_reset(&mut self, segment: &Segment, now: Millis, shared: &mut Shared, news: &mut News) {
        if segment.seq == self.expected {
            // TIME-WAIT is not cut short (RFC 1337).
            if self.state != State::TimeWait {
                shared.counts.resets_received += 1;
                news.failed = self.is_held().then_some(Failure::Reset);
                self.end(shared);
            }
        } else if self.is_acceptable(segment.seq, 0) {
            self.challenge(0, now, shared);
        }
    }

    /// Handles a SYN, which is never acceptable (RFC 5961, section 4.2). Usually it is the SYN-ACK again,
    /// because the server dropped our final ACK; the answer repeats that ACK.
    fn receive_syn(&mut self, segment: &Segment, now: Millis, shared: &mut Shared) {
        let again =
            segment.flags.has(Flags::ACK) && (segment.seq + 1).since(self.expected).cast_signed() <= 0;
        if again {
            shared.counts.syn_acks_again += 1;
            self.marks.set(Marks::ACK);
        } else {
            self.challenge(0, now, shared);
        }
    }

    /// Answers a dropped segment, so that a confused server learns our state. The number of answers to empty
    /// segments is limited, because two confused ends would answer each other for ever.
    fn challenge(&mut self, length: u32, now: Millis, shared: &mut Shared) {
        if length > 0 || shared.challenge(now) {
            self.marks.set(Marks::ACK);
        }
    }

    /// Returns true for a timestamp older than one already seen (PAWS, RFC 7323, section 5.3). A segment
    /// without a timestamp passes, as in Linux: some middleboxes strip options.
    fn is_of_the_past(&self, segment: &Segment) -> bool {
        let timestamps = segment.options.timestamps.filter(|_| self.marks.has(Marks::TIMESTAMPS));
        timestamps.is_some_and(|timestamps| (timestamps.value.wrapping_sub(self.ts_recent) as i32) < 0)
    }

    /// Returns true for a segment that overlaps the receive window. A segment of any size at the left edge is
    /// acceptable too: its acknowledgment counts even while the window is closed (section 3.10.7.4).
    fn is_acceptable(&self, seq: Seq, length: u32) -> bool {
        let end = seq + length;
        seq == self.expected
            || (seq.is_before(self.edge)
                && if length > 0 { end.is_after(self.expected) } else { !seq.is_before(self.expected) })
    }

    /// Handles acknowledgment and window; returns true if the rest of the segment may be handled.
    fn receive_ack(
        &mut self,
        segment: &Segment,
        is_empty: bool,
        now: Millis,
        shared: &mut Shared,
        news: &mut News,
    ) -> bool {
        let ack = segment.ack;
        if ack.is_after(self.next) || self.unacked.since(ack).cast_signed() > OLDEST_ACK as i32 {
            shared.counts.wrong_acks += 1;
            self.challenge(0, now, shared);
            return false;
        }
        let window = u32::from(segment.window) << self.peer_scale;
        if ack.is_after(self.unacked) {
            self.advance(ack, segment, now, shared, news);
        } else if ack == self.unacked && is_empty && window == self.peer_window && self.next != self.unacked {
            self.count_duplicate_ack(shared);
        }
        // RFC 9293 compares with the segment of the last update. A segment that is behind in neither
        // direction is at least as new.
        if ack == self.unacked && !segment.seq.is_before(self.expected) {
            self.peer_window = window;
            self.probe_answered();
        }
        true
    }

    /// Handles the answer to a probe. A server that answers probes may keep its window closed for any time,
    /// unless the application has closed.
    fn probe_answered(&mut self) {
        if self.next != self.unacked || self.state == State::FinWait2 {
            return;
        }
        if self.peer_window > 0 {
            self.due = UNSET;
            self.retries = 0;
        } else if !self.marks.has(Marks::CLOSED) {
            self.retries = self.retries.min(DATA_RETRIES - 1);
        }
    }

    fn count_duplicate_ack(&mut self, shared: &mut Shared) {
        let end = self.next;
        let Some(backlog) = &mut self.backlog else { return };
        backlog.duplicate_acks = backlog.duplicate_acks.saturating_add(1);
        if backlog.duplicate_acks == DUPLICATE_ACKS && backlog.recovery_end.is_none() {
            backlog.recovery_end = Some(end);
            shared.counts.fast_retransmitted += 1;
            self.marks.set(Marks::RETRANSMIT);
        }
    }

    /// Handles an acknowledgment of new data.
    fn advance(&mut self, ack: Seq, segment: &Segment, now: Millis, shared: &mut Shared, news: &mut News) {
        let fin = self.marks.has(Marks::FIN_SENT) && ack == self.next;
        let bytes = (ack.since(self.unacked) - u32::from(fin)) as usize;
        self.unacked = ack;
        self.retries = 0;
        if let Some(timestamps) = segment.options.timestamps.filter(|_| self.marks.has(Marks::TIMESTAMPS)) {
            self.measure(now.since(Millis(timestamps.echo)));
        }
        if ack == self.next {
            self.due = UNSET;
        } else {
            self.set_timer(now, self.backed_off(0));
        }
        if let Some(backlog) = &mut self.backlog {
            backlog.bytes.drain(..bytes);
            backlog.duplicate_acks = 0;
            backlog.recovery_end = backlog.recovery_end.filter(|end| end.is_after(ack));
            if backlog.recovery_end.is_some() {
                // The next segment was lost too (RFC 6582, section 3.2).
                self.marks.set(Marks::RETRANSMIT);
            } else {
                self.marks.clear(Marks::RETRANSMIT);
            }
            news.has_room = backlog.bytes.len() <= SEND_BUFFER / 2 && self.marks.take(Marks::WANTS_ROOM);
        }
        if bytes > 0 {
            self.marks.set(Marks::ACKNOWLEDGED);
        }
        if fin {
            self.fin_acknowledged(now, shared);
        }
    }

    fn fin_acknowledged(&mut self, now: Millis, shared: &mut Shared) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.marks.has(Marks::CLOSED) {
                    self.set_timer(now, FIN_WAIT_MS);
                }
            }
            State::Closing => self.state = State::TimeWait,
            State::LastAck => self.end(shared),
            _ => {}
        }
    }

    /// Delivers or stores the payload, and handles a FIN.
    fn receive_data(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        now: Millis,
        shared: &mut Shared,
        news: &mut News,
    ) {
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            // The server sent a FIN before.
            shared.counts.beyond_window += 1;
            return self.challenge(1, now, shared);
        }
        let known = match segment.seq.is_before(self.expected) {
            true => (self.expected.since(segment.seq) as usize).min(payload.len()),
            false => 0,
        };
        let start = segment.seq + known as u32;
        let room = if start.is_before(self.edge) { self.edge.since(start) as usize } else { 0 };
        let taken = known..payload.len().min(known + room);
        let fin = segment.flags.has(Flags::FIN) && taken.end == payload.len();
        if taken.end < payload.len() {
            shared.counts.beyond_window += 1;
            self.marks.set(Marks::ACK);
        }
        if start != self.expected {
            return self.store(start, &payload[taken], fin, shared);
        }
        if self.marks.has(Marks::CLOSED) && !taken.is_empty() {
            // No application will read the data, and the RST tells the server (RFC 9293, section 3.6.1; RFC
            // 2525, section 2.17).
            shared.counts.data_after_close += 1;
            news.reset = self.abort(now, shared);
            return;
        }
        self.deliver(taken, fin, now, shared, news);
    }

    fn store(&mut self, seq: Seq, bytes: &[u8], fin: bool, shared: &mut Shared) {
        self.marks.set(Marks::ACK);
        if bytes.is_empty() && !fin {
            return;
        }
        if !self.backlog.get_or_insert_default().store(seq, bytes, fin, shared) {
            shared.counts.beyond_window += 1;
        }
    }

    fn deliver(&mut self, taken: Range<usize>, fin: bool, now: Millis, shared: &mut Shared, news: &mut News) {
        let before = self.expected;
        self.expected += taken.len() as u32;
        news.delivered = taken;
        let mut fin = fin;
        if let Some(backlog) = &mut self.backlog
            && backlog.has_gap()
        {
            let (expected, stored_fin) = backlog.fill(self.expected, &mut news.filled, shared);
            self.expected = expected;
            fin |= stored_fin;
            // A filled gap is acknowledged at once (RFC 5681, section 4.2).
            self.marks.set(Marks::ACK);
        }
        let delivered = self.expected.since(before);
        if delivered > 0 {
            self.marks.set(Marks::RECEIVED);
            self.window = match self.marks.has(Marks::GRANTED) {
                true => self.window.saturating_sub(delivered),
                false => (self.window + delivered).min(WINDOW_MAX),
            };
            self.acknowledge_soon(before, now);
        }
        if fin {
            self.receive_fin(shared, news);
        }
    }

    /// Schedules the acknowledgment of data: at the end of the turn, or delayed in an interactive exchange.
    fn acknowledge_soon(&mut self, before: Seq, now: Millis) {
        let much = self.expected.since(self.acked) > u32::from(self.mss);
        if much || !self.marks.has(Marks::INTERACTIVE) {
            self.marks.set(Marks::ACK);
        }
        if before == self.acked || !self.ack_is_delayed() {
            self.ack_due = (now.0 as u8).wrapping_add(DELAYED_ACK_MS);
        }
    }

    fn receive_fin(&mut self, shared: &mut Shared, news: &mut News) {
        self.expected += 1;
        if let Some(backlog) = &mut self.backlog {
            // Nothing follows a FIN.
            backlog.discard(shared);
        }
        if self.edge.is_before(self.expected) {
            // A FIN is accepted even while the window is closed.
            self.edge = self.expected;
        }
        self.marks.set(Marks::ACK);
        news.ended = !self.marks.has(Marks::CLOSED);
        self.state = match self.state {
            State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            State::FinWait2 => {
                self.due = UNSET;
                State::TimeWait
            }
            other => other,
        };
    }

    fn drop_idle_backlog(&mut self) {
        if self.backlog.as_ref().is_some_and(|backlog| backlog.is_idle()) {
            self.backlog = None;
        }
    }
}
