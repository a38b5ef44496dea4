//! The event that a connection awaits, with the time that its peer has for it.

use base::Nanos;

use super::settings::Timeouts;

/// Silence after which a new connection counts as idle: time for one retransmission (RFC 6298, 2.4).
const FIRST_REQUEST: Nanos = Nanos::SECOND;
/// Lingering after which a connection counts as idle: the peer has read the refusal, unless it is far away.
const LEAST_LINGER: Nanos = Nanos::from_millis(100);

/// The subject of a connection's deadline, which is set when this changes and when output moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaiting {
    FirstByte,
    Request,
    Head,
    Body,
    Write,
    PeersEnd,
    /// The responder is at work: no peer is at fault, so there is no deadline.
    Responder,
    Nothing,
}

impl Awaiting {
    /// Time until the deadline.
    pub fn timeout(self, timeouts: &Timeouts) -> Nanos {
        match self {
            Awaiting::Responder => Nanos::MAX,
            Awaiting::FirstByte | Awaiting::Head => timeouts.header,
            Awaiting::Request => timeouts.idle,
            Awaiting::Body => timeouts.body,
            Awaiting::Write => timeouts.write_stall,
            Awaiting::PeersEnd | Awaiting::Nothing => timeouts.linger,
        }
    }

    /// Time until the connection counts as idle; nothing while a request or response is under way.
    pub fn idle_after(self) -> Option<Nanos> {
        match self {
            Awaiting::FirstByte => Some(FIRST_REQUEST),
            Awaiting::Request => Some(Nanos::ZERO),
            Awaiting::PeersEnd => Some(LEAST_LINGER),
            _ => None,
        }
    }
}
