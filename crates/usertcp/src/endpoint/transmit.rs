//! The sending side of a connection: one segment at a time.

use std::ops::Range;

use super::{Endpoint, FLIGHT_SEGMENTS, Marks, State, WINDOW_FIRST, WINDOW_SCALE, WINDOW_STEP};
use crate::frame::{Flags, Options, Segment, Timestamps};
use crate::wrapping::{Millis, Seq};

/// A segment to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The segment's header.
    pub segment: Segment,
    /// The range of its payload, for [`Endpoint::payload`].
    pub payload: Range<usize>,
}

impl Endpoint {
    /// The next segment to send; `None` when there is none. A returned segment counts as sent.
    pub fn transmit(&mut self, now: Millis) -> Option<Outgoing> {
        match self.state {
            State::Closed => return None,
            State::SynSent => return (self.next == self.unacked).then(|| self.syn(now)),
            _ => {}
        }
        if self.marks.take(Marks::HANDSHAKE_ACK) {
            return Some(self.pure_ack(self.next, now));
        }
        if self.marks.take(Marks::RETRANSMIT)
            && let Some(outgoing) = self.oldest(now)
        {
            return Some(outgoing);
        }
        if let Some(outgoing) = self.new_data(now) {
            return Some(outgoing);
        }
        if self.marks.take(Marks::PROBE) {
            // The number is already acknowledged, so the server answers with its window. Linux probes the
            // same way.
            return Some(self.pure_ack(Seq(self.unacked.0.wrapping_sub(1)), now));
        }
        self.marks.has(Marks::ACK).then(|| self.pure_ack(self.next, now))
    }

    /// Returns true if [`transmit`](Self::transmit) may have a segment.
    pub fn wants_to_send(&self) -> bool {
        const ANY: Marks =
            Marks(Marks::ACK.0 | Marks::HANDSHAKE_ACK.0 | Marks::RETRANSMIT.0 | Marks::PROBE.0);
        match self.state {
            State::Closed => false,
            State::SynSent => self.next == self.unacked,
            _ => {
                let unsent = self.buffered() > self.in_flight();
                let fin = self.marks.has(Marks::FINISHED) && !self.marks.has(Marks::FIN_SENT);
                self.marks.has(ANY) || unsent || fin
            }
        }
    }

    /// The bytes of a segment's payload.
    pub fn payload(&self, range: Range<usize>) -> &[u8] {
        self.backlog.as_ref().map_or(&[], |backlog| &backlog.bytes[range])
    }

    /// A segment with the current acknowledgment and window, which count as sent.
    pub(super) fn segment(&mut self, seq: Seq, flags: Flags, now: Millis) -> Segment {
        self.marks.clear(Marks::ACK);
        self.acked = self.expected;
        let options = Options { timestamps: self.timestamps(now), ..Options::default() };
        Segment { seq, ack: self.expected, flags, window: self.advertise(), options }
    }

    /// Bytes in flight, without the FIN.
    pub(super) fn in_flight(&self) -> usize {
        let fin = u32::from(self.marks.has(Marks::FIN_SENT) && self.next != self.unacked);
        (self.next.since(self.unacked) - fin) as usize
    }

    fn buffered(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.bytes.len())
    }

    fn timestamps(&self, now: Millis) -> Option<Timestamps> {
        let used = self.marks.has(Marks::TIMESTAMPS);
        used.then_some(Timestamps { value: now.0, echo: self.ts_recent })
    }

    /// The right edge that may be advertised: at least one step further right, or unchanged.
    pub(super) fn opened_edge(&self) -> Seq {
        let unit = self.window_unit();
        // Rounded down, so that the server never gets more than the application granted.
        let window = self.window.min(unit * u32::from(u16::MAX)) / unit * unit;
        let step = if self.marks.has(Marks::GRANTED) { WINDOW_STEP.min(u32::from(self.mss)) } else { 1 };
        match window >= self.edge.since(self.expected) + step {
            true => self.expected + window,
            false => self.edge,
        }
    }

    fn window_unit(&self) -> u32 {
        if self.marks.has(Marks::SCALED) { 1 << WINDOW_SCALE } else { 1 }
    }

    /// The window for the header. With an unchanged edge, the rounding may seem to withdraw some bytes; they
    /// are still accepted if they come (RFC 7323, section 2.4).
    fn advertise(&mut self) -> u16 {
        self.edge = self.opened_edge();
        (self.edge.since(self.expected) / self.window_unit()) as u16
    }

    /// The SYN, with Linux's options.
    fn syn(&mut self, now: Millis) -> Outgoing {
        self.next = self.unacked + 1;
        if self.retries == 0 {
            self.set_timer(now, super::RTO_FIRST_MS);
        }
        let options = Options {
            mss: Some(self.mss),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: now.0, echo: 0 }),
            window_scale: Some(WINDOW_SCALE),
            ..Options::default()
        };
        // The window of a SYN is never scaled (RFC 7323, section 2.2).
        let window = self.window.min(WINDOW_FIRST) as u16;
        let segment = Segment { seq: self.unacked, ack: Seq(0), flags: Flags::SYN, window, options };
        Outgoing { segment, payload: 0..0 }
    }

    /// An acknowledgment with the ranges that came early; a segment with data has no room for those.
    fn pure_ack(&mut self, seq: Seq, now: Millis) -> Outgoing {
        let mut segment = self.segment(seq, Flags::ACK, now);
        if self.marks.has(Marks::SACK)
            && let Some(backlog) = &self.backlog
        {
            segment.options.sack = backlog.sack();
        }
        Outgoing { segment, payload: 0..0 }
    }

    /// The oldest segment in flight, as a retransmission.
    fn oldest(&mut self, now: Millis) -> Option<Outgoing> {
        if self.unacked == self.next {
            return None;
        }
        let in_flight = self.in_flight();
        let length = in_flight.min(usize::from(self.mss));
        let fin = self.marks.has(Marks::FIN_SENT) && length == in_flight;
        Some(self.data(self.unacked, 0..length, fin, now))
    }

    /// The next unsent segment with data, or the FIN, within the server's window and ours.
    fn new_data(&mut self, now: Millis) -> Option<Outgoing> {
        if self.marks.has(Marks::FIN_SENT) {
            return None;
        }
        let (sent, buffered) = (self.in_flight(), self.buffered());
        let fin_waits = self.marks.has(Marks::FINISHED);
        if sent == buffered && !fin_waits {
            return None;
        }
        let mss = usize::from(self.mss);
        let allowed = (self.peer_window as usize).min(FLIGHT_SEGMENTS as usize * mss);
        let room = allowed.saturating_sub(sent);
        let length = (buffered - sent).min(mss).min(room);
        let fin = fin_waits && sent + length == buffered && room > length;
        // A short segment waits for further acknowledgments (RFC 9293, section 3.8.6.2.1).
        let sliver = length < mss && sent + length < buffered && sent > 0;
        if (length == 0 && !fin) || sliver {
            if sent == 0 && self.due == super::UNSET {
                self.set_timer(now, self.backed_off(0));
            }
            return None;
        }
        let (seq, range) = (self.next, sent..sent + length);
        self.next = seq + length as u32 + u32::from(fin);
        if fin {
            self.marks.set(Marks::FIN_SENT);
        }
        if sent == 0 {
            self.retries = 0;
            self.set_timer(now, self.backed_off(0));
        }
        Some(self.data(seq, range, fin, now))
    }

    fn data(&mut self, seq: Seq, payload: Range<usize>, fin: bool, now: Millis) -> Outgoing {
        let push = !payload.is_empty() && payload.end == self.buffered();
        let flags = match (push, fin) {
            (true, true) => Flags::ACK | Flags::PSH | Flags::FIN,
            (true, false) => Flags::ACK | Flags::PSH,
            (false, true) => Flags::ACK | Flags::FIN,
            (false, false) => Flags::ACK,
        };
        let owes_sack = self.marks.has(Marks::ACK) && self.has_gap();
        let segment = self.segment(seq, flags, now);
        if owes_sack {
            self.marks.set(Marks::ACK);
        }
        Outgoing { segment, payload }
    }

    fn has_gap(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| backlog.has_gap())
    }
}
