//! One client connection as a state machine without I/O and without a clock (RFC 9293).
//!
//! Segments and times go in through [`Endpoint::receive`] and [`Endpoint::on_timer`], the application's calls
//! through the other methods. Segments come out of [`Endpoint::transmit`], and news for the application out
//! of `receive`. This module knows no addresses or ports.
//!
//! Owns the active side's handshake with the options of Linux, and retransmission (RFC 6298, with Linux's
//! bounds). Delivers in order without a copy, with a bounded store for early segments. Sends selective
//! acknowledgments (RFC 2018), timestamps with PAWS (RFC 7323) and delayed acknowledgments. Lets the
//! application open windows as it reads, closes in every order, and makes the checks of RFC 5961.
//!
//! Left out, because a load generator's client sends requests and not files:
//! - Congestion control towards the server is a fixed window of [`FLIGHT_SEGMENTS`] segments (RFC 6928's
//!   initial window). After a loss, each acknowledgment that advances retransmits one segment, as in RFC
//!   6582. Selective acknowledgments from the server are ignored.
//! - Simultaneous open, urgent data, ECN, Fast Open and keep-alive probes of our own. A short segment is sent
//!   at once (TCP_NODELAY).
//!
//! Acknowledgments: a pure one completes the handshake, separate from the request, as Linux sends it. One
//! segment at the end of a turn acknowledges everything received in that turn, with data if there is some.
//! That is Linux's quick acknowledgment, combined with the merging of segments by its GRO.
//!
//! A request that follows a reply within `DELAYED_ACK_MS` makes the exchange interactive. An acknowledgment
//! then waits for the next request for at most that time, unless there is a gap or more than one full segment
//! to acknowledge. If no request comes, the exchange is no longer interactive. That is Linux's ping-pong
//! mode.
//!
//! Invariants: the bytes delivered are the server's, in order, each once; `unacked <= next`;
//! `acked <= expected <= edge`; the advertised right edge never moves back; a backlog exists only while it
//! holds something; no input causes a panic.
//!
//! `transmit` is the sending side, `receive` the receiving one, and `backlog` the memory of a busy
//! connection.

mod backlog;
mod receive;
mod transmit;

pub use receive::{News, refusal};
pub use transmit::Outgoing;

use crate::counts::Shared;
use crate::frame::{Flags, Segment};
use crate::wrapping::{Millis, Seq};
use backlog::Backlog;

/// The most segments in flight: the initial window of RFC 6928, which this client never enlarges.
pub const FLIGHT_SEGMENTS: u32 = 10;

/// The most unacknowledged and unsent bytes of one connection.
pub const SEND_BUFFER: usize = 64 * 1024;

/// The initial receive window: Linux's on Ethernet, 44 segments of 1460 bytes.
pub const WINDOW_FIRST: u32 = 64_240;

/// The largest receive window. It grows by each byte delivered, at the pace of the server's slow start.
pub const WINDOW_MAX: u32 = 4 << 20;

/// The smallest initial window of an application that opens the window itself. A window below the segment
/// size would make the server wait for its persist timer each time.
pub const WINDOW_MIN: u32 = 2048;

/// The shift of our windows in bits: enough for [`WINDOW_MAX`].
pub const WINDOW_SCALE: u8 = 7;

/// The step of a window that the application opens (RFC 9293, section 3.8.6.2.2). The window is advertised
/// after it has moved by this many bytes, or by a whole segment if that is less.
const WINDOW_STEP: u32 = WINDOW_MIN / 2;

/// The first retransmission timeout (RFC 6298, section 2.1).
const RTO_FIRST_MS: u32 = 1000;
/// The minimum of the timeout above the smoothed round-trip time in Linux (TCP_RTO_MIN).
const RTO_MIN_MS: u32 = 200;
/// The longest timeout (TCP_RTO_MAX).
const RTO_MAX_MS: u32 = 120_000;

/// A longer round-trip time counts as this, the maximum that 16 bits hold in eighths.
const RTT_MAX_MS: u32 = 8000;
/// A longer round-trip time means that the echoed timestamp was not one of ours.
const RTT_BELIEVED_MS: u32 = 60_000;

/// SYN retransmissions with a doubled timeout before a connect times out (Linux: `tcp_syn_retries`). Linear ones come
/// before them.
const SYN_RETRIES: u8 = 6;
/// Retransmissions before a connection times out (Linux: `tcp_retries2`).
const DATA_RETRIES: u8 = 15;
/// Retransmissions after the application has closed (Linux: `tcp_orphan_retries`).
const CLOSED_RETRIES: u8 = 8;

/// The time for which an acknowledgment waits for data to travel with (Linux: TCP_DELACK_MIN). It fits 8
/// bits.
const DELAYED_ACK_MS: u8 = 40;

/// The time for which a closed connection waits for the server's FIN (Linux: `tcp_fin_timeout`).
const FIN_WAIT_MS: u32 = 60_000;

/// The states of a connection (RFC 9293, section 3.3.2), without those of the passive side.
///
/// ```text
///              connect: SYN            RST, retries used up
///   Closed ──────────────────> SynSent ─────────────────────> Closed: refused, timed out
///                                 │ SYN-ACK: ACK
///                                 v
///        finish: FIN         Established         FIN: ACK
///     ┌───────────────────────────┴──────────────────────────┐
///     v                                                      v
///  FinWait1 ──FIN: ACK──> Closing                        CloseWait
///     │ ACK of FIN           │ ACK of FIN                    │ finish: FIN
///     v                      v                               v
///  FinWait2 ──FIN: ACK──> TimeWait                        LastAck ──ACK of FIN──> Closed
/// ```
///
/// An acceptable RST leads from every state but `TimeWait` to `Closed`. Timeouts of segments in flight and
/// [`Endpoint::abort`] lead there too. `TimeWait` ends when the table needs the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No connection.
    Closed,
    /// The SYN was sent.
    SynSent,
    /// Both directions are open.
    Established,
    /// We have finished; our FIN is not acknowledged.
    FinWait1,
    /// We have finished, and the server knows it.
    FinWait2,
    /// Both have finished at the same time; our FIN is not acknowledged.
    Closing,
    /// Both have finished and know it; the server's FIN may come again.
    TimeWait,
    /// The server has finished.
    CloseWait,
    /// Both have finished, the server first; our FIN is not acknowledged.
    LastAck,
}

/// The ways in which a connection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An RST answered the SYN.
    Refused,
    /// An RST ended the connection.
    Reset,
    /// No answer came to a SYN, data or a FIN after all retransmissions.
    TimedOut,
}

/// The policy that opens the receive window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The window stays open: the application takes every byte at once.
    Open,
    /// The application takes this many bytes, then the bytes that it adds with [`Endpoint::grant`]. The
    /// initial value is at least [`WINDOW_MIN`] and at most [`WINDOW_FIRST`].
    Granted(u32),
}

/// Flags of a connection, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks(u16);

impl Marks {
    /// Both ends use timestamps.
    const TIMESTAMPS: Marks = Marks(1);
    /// The server understands selective acknowledgments.
    const SACK: Marks = Marks(1 << 1);
    /// Both ends scale their windows.
    const SCALED: Marks = Marks(1 << 2);
    /// An acknowledgment has to leave at the end of the turn.
    const ACK: Marks = Marks(1 << 3);
    /// A pure acknowledgment has to leave before any data: the handshake's last segment.
    const HANDSHAKE_ACK: Marks = Marks(1 << 4);
    /// The oldest segment in flight has to be sent again.
    const RETRANSMIT: Marks = Marks(1 << 5);
    /// A closed window has to be probed.
    const PROBE: Marks = Marks(1 << 6);
    /// The application sends nothing more.
    const FINISHED: Marks = Marks(1 << 7);
    /// The FIN was sent.
    const FIN_SENT: Marks = Marks(1 << 8);
    /// The application has closed and wants no news.
    const CLOSED: Marks = Marks(1 << 9);
    /// Data came from the server.
    const RECEIVED: Marks = Marks(1 << 10);
    /// A request followed a reply: acknowledgments may wait.
    const INTERACTIVE: Marks = Marks(1 << 11);
    /// The server has acknowledged data.
    const ACKNOWLEDGED: Marks = Marks(1 << 12);
    /// The application opens the window itself.
    const GRANTED: Marks = Marks(1 << 13);
    /// The application waits for room to send.
    const WANTS_ROOM: Marks = Marks(1 << 14);
    /// The stack has this connection in its queue of connections that may have segments to send.
    const QUEUED: Marks = Marks(1 << 15);

    fn has(self, mark: Marks) -> bool {
        self.0 & mark.0 != 0
    }

    fn set(&mut self, mark: Marks) {
        self.0 |= mark.0;
    }

    fn clear(&mut self, mark: Marks) {
        self.0 &= !mark.0;
    }

    /// Clears a mark and returns true if it was set.
    fn take(&mut self, mark: Marks) -> bool {
        let had = self.has(mark);
        self.clear(mark);
        had
    }
}

/// The value of a retransmission timer that is not set.
const UNSET: Millis = Millis(0);

/// One connection: 56 bytes, and a backlog while data is under way.
#[derive(Debug)]
pub struct Endpoint {
    backlog: Option<Box<Backlog>>,
    /// The oldest number not acknowledged (SND.UNA).
    unacked: Seq,
    /// The next number to be sent (SND.NXT).
    next: Seq,
    /// The server's window from `unacked` on, in bytes (SND.WND).
    peer_window: u32,
    /// The next number expected from the server (RCV.NXT).
    expected: Seq,
    /// The last acknowledgment number sent (Last.ACK.sent of RFC 7323).
    acked: Seq,
    /// The advertised right edge of the window; it never moves back.
    edge: Seq,
    /// The bytes from `expected` on that the application takes.
    window: u32,
    /// The server's timestamp to be echoed (TS.Recent).
    ts_recent: u32,
    /// The smoothed round-trip time in eighths of a millisecond (SRTT); 0 before the first measurement.
    srtt_8: u16,
    /// The mean deviation of the round-trip time in quarters of a millisecond (RTTVAR).
    deviation_4: u16,
    /// The timeout of the state: retransmission, probe of a closed window, or end of FinWait2.
    due: Millis,
    /// The largest payload that the server takes, without options.
    mss: u16,
    marks: Marks,
    state: State,
    /// Consecutive timeouts.
    retries: u8,
    /// The shift of the server's windows, in bits.
    peer_scale: u8,
    /// The time at which a delayed acknowledgment leaves, [`DELAYED_ACK_MS`] after the last data: its lowest
    /// 8 bits.
    ack_due: u8,
}

impl Endpoint {
    /// No connection.
    pub const CLOSED: Endpoint = Endpoint {
        backlog: None,
        unacked: Seq(0),
        next: Seq(0),
        peer_window: 0,
        expected: Seq(0),
        acked: Seq(0),
        edge: Seq(0),
        window: 0,
        ts_recent: 0,
        srtt_8: 0,
        deviation_4: 0,
        due: UNSET,
        mss: 0,
        marks: Marks(0),
        state: State::Closed,
        retries: 0,
        peer_scale: 0,
        ack_due: 0,
    };

    /// A connection whose SYN has the number `first`; `mss` is the largest payload without options that the
    /// link carries in either direction.
    pub fn connect(first: Seq, mss: u16, window: Window) -> Endpoint {
        let (window, marks) = match window {
            Window::Open => (WINDOW_FIRST, Marks(0)),
            Window::Granted(bytes) => (bytes.clamp(WINDOW_MIN, WINDOW_FIRST), Marks::GRANTED),
        };
        Endpoint {
            unacked: first,
            next: first,
            window,
            mss,
            marks,
            state: State::SynSent,
            ..Endpoint::CLOSED
        }
    }

    /// The connection's state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns true if server and application are done with the connection, except for a FIN that may come
    /// again.
    pub fn is_over(&self) -> bool {
        match self.state {
            State::Closed => true,
            State::TimeWait => self.marks.has(Marks::CLOSED),
            _ => false,
        }
    }

    /// Returns true if the application holds the connection.
    pub fn is_held(&self) -> bool {
        self.state != State::Closed && !self.marks.has(Marks::CLOSED)
    }

    /// Returns true if the server has acknowledged data. If it acknowledges no request for a long time, the
    /// connection exists at our end only. The server's accept queue was full, so the server dropped the final
    /// ACK of the handshake.
    pub fn is_acknowledged(&self) -> bool {
        self.marks.has(Marks::ACKNOWLEDGED)
    }

    /// Takes bytes to be sent and returns the number taken, limited by the buffer. After a partial call, an
    /// event reports room. No bytes are taken before the connection is established or after
    /// [`finish`](Self::finish).
    pub fn send(&mut self, bytes: &[u8], now: Millis) -> usize {
        let may_send = matches!(self.state, State::Established | State::CloseWait);
        if !may_send || self.marks.has(Marks::FINISHED) || bytes.is_empty() {
            return 0;
        }
        let backlog = self.backlog.get_or_insert_default();
        let taken = bytes.len().min(SEND_BUFFER - backlog.bytes.len());
        backlog.bytes.extend_from_slice(&bytes[..taken]);
        if taken < bytes.len() {
            self.marks.set(Marks::WANTS_ROOM);
        }
        // The last data came less than the delay ago, or a multiple of 256 ms earlier, which does no harm.
        if self.marks.has(Marks::RECEIVED) && self.ack_remains(now) > 0 {
            self.marks.set(Marks::INTERACTIVE);
        }
        taken
    }

    /// Ends our direction after everything taken so far is sent.
    pub fn finish(&mut self) {
        let next = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            _ => return,
        };
        self.state = next;
        self.marks.set(Marks::FINISHED);
    }

    /// Closes the connection for the application: ends our direction and drops received data, as close(2)
    /// does. An incomplete connect is abandoned without a segment.
    pub fn close(&mut self, now: Millis, shared: &mut Shared) {
        if self.state == State::SynSent {
            return self.end(shared);
        }
        self.finish();
        self.marks.set(Marks::CLOSED);
        self.marks.clear(Marks::WANTS_ROOM);
        if self.state == State::FinWait2 {
            self.set_timer(now, FIN_WAIT_MS);
        }
    }

    /// Abandons the connection; returns the RST for the server, if the server may know of the connection.
    pub fn abort(&mut self, now: Millis, shared: &mut Shared) -> Option<Segment> {
        let reset = match self.state {
            State::Closed | State::SynSent | State::TimeWait => None,
            _ => Some(self.segment(self.next, Flags::RST | Flags::ACK, now)),
        };
        self.end(shared);
        reset
    }

    /// Opens the window by another `bytes`, for an application with [`Window::Granted`].
    pub fn grant(&mut self, bytes: u32) {
        self.window = self.window.saturating_add(bytes).min(WINDOW_FIRST);
        let synchronized = !matches!(self.state, State::Closed | State::SynSent);
        if synchronized && self.opened_edge() != self.edge {
            self.marks.set(Marks::ACK);
        }
    }

    /// The next time at which [`on_timer`](Self::on_timer) has work.
    pub fn deadline(&self, now: Millis) -> Option<Millis> {
        let timer = (self.due != UNSET).then_some(self.due);
        let ack = self.ack_is_delayed().then(|| now + self.ack_remains(now));
        match (timer, ack) {
            (Some(timer), Some(ack)) => Some(if timer.is_due(ack) { timer } else { ack }),
            (one, other) => one.or(other),
        }
    }

    /// Handles the timers that are due at `now`; returns a failure of the connection if the application holds
    /// it.
    pub fn on_timer(&mut self, now: Millis, shared: &mut Shared) -> Option<Failure> {
        if self.ack_is_delayed() && self.ack_remains(now) == 0 {
            self.marks.set(Marks::ACK);
            self.marks.clear(Marks::INTERACTIVE);
        }
        if self.due == UNSET || !self.due.is_due(now) {
            return None;
        }
        let limit = match self.state {
            State::SynSent => SYN_RETRIES.saturating_add(shared.syn_linear_timeouts()),
            _ if self.marks.has(Marks::CLOSED) => CLOSED_RETRIES,
            _ => DATA_RETRIES,
        };
        if self.state == State::FinWait2 || self.retries >= limit {
            let held = self.is_held();
            self.end(shared);
            return held.then_some(Failure::TimedOut);
        }
        if self.state == State::SynSent {
            shared.counts.syns_again += 1;
            // Sends the SYN as if for the first time.
            self.next = self.unacked;
            let doubled = (self.retries + 1).saturating_sub(shared.syn_linear_timeouts());
            self.set_timer(now, RTO_FIRST_MS << doubled);
        } else if self.unacked == self.next {
            shared.counts.window_probes += 1;
            self.marks.set(Marks::PROBE);
            self.set_timer(now, self.backed_off(self.retries + 1));
        } else {
            shared.counts.retransmitted += 1;
            self.marks.set(Marks::RETRANSMIT);
            let end = self.next;
            if let Some(backlog) = &mut self.backlog {
                backlog.recovery_end = Some(end);
            }
            // The first timeout is Linux's tail loss probe, which does not back off.
            self.set_timer(now, self.backed_off(self.retries));
        }
        self.retries += 1;
        None
    }

    /// Marks the connection as queued for sending; returns true if the caller has to queue it.
    pub fn enqueue(&mut self) -> bool {
        let queued = self.marks.has(Marks::QUEUED);
        self.marks.set(Marks::QUEUED);
        !queued
    }

    /// Clears the mark of [`enqueue`](Self::enqueue).
    pub fn dequeue(&mut self) {
        self.marks.clear(Marks::QUEUED);
    }

    /// Ends the connection without a segment. The numbers stay, for segments on their way.
    fn end(&mut self, shared: &mut Shared) {
        if let Some(mut backlog) = self.backlog.take() {
            backlog.discard(shared);
        }
        self.state = State::Closed;
        self.due = UNSET;
        self.marks = Marks(self.marks.0 & Marks::QUEUED.0);
    }

    fn set_timer(&mut self, now: Millis, after_ms: u32) {
        self.due = now + after_ms;
        if self.due == UNSET {
            self.due = UNSET + 1;
        }
    }

    /// The retransmission timeout, doubled `times` times.
    fn backed_off(&self, times: u8) -> u32 {
        let rto = match self.srtt_8 {
            0 => RTO_FIRST_MS,
            srtt => u32::from(srtt / 8) + u32::from(self.deviation_4).max(RTO_MIN_MS),
        };
        rto.saturating_mul(1 << times.min(16)).min(RTO_MAX_MS)
    }

    /// Includes a measured round-trip time (RFC 6298, sections 2.2 and 2.3).
    fn measure(&mut self, rtt_ms: u32) {
        if rtt_ms > RTT_BELIEVED_MS {
            return;
        }
        let rtt = rtt_ms.min(RTT_MAX_MS) as i32;
        if self.srtt_8 == 0 {
            // At least an eighth of a millisecond, because 0 means that there is no measurement.
            self.srtt_8 = (rtt * 8).max(1) as u16;
            self.deviation_4 = (rtt * 2) as u16;
            return;
        }
        let error = rtt - i32::from(self.srtt_8 / 8);
        let deviation = i32::from(self.deviation_4);
        self.deviation_4 = (deviation + error.abs() - deviation / 4) as u16;
        self.srtt_8 = (i32::from(self.srtt_8) + error).max(1) as u16;
    }

    fn ack_is_delayed(&self) -> bool {
        self.expected != self.acked && !self.marks.has(Marks::ACK) && self.state != State::Closed
    }

    /// Milliseconds until a delayed acknowledgment leaves.
    fn ack_remains(&self, now: Millis) -> u32 {
        let remains = self.ack_due.wrapping_sub(now.0 as u8);
        // A remainder above the whole delay means that the time has passed.
        if remains > DELAYED_ACK_MS { 0 } else { u32::from(remains) }
    }
}

#[cfg(test)]
mod tests;
