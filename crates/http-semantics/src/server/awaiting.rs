//! The event that a connection awaits, with its peer's time limit.

use base::Nanos;

use super::settings::Timeouts;

/// Silence after which a new connection counts as idle: time for one retransmission (RFC 6298, 2.4).
const FIRST_REQUEST: Nanos = Nanos::SECOND;
/// Time of lingering after which a connection counts as idle. A peer that is not far away has then read the
/// refusal.
const LEAST_LINGER: Nanos = Nanos::from_millis(100);

/// The event that a connection's deadline bounds. The deadline is set when the event changes and when output
/// moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaiting {
    /// The first byte of a connection.
    FirstByte,
    /// The next request of a persistent connection.
    Request,
    /// The rest of a head.
    Head,
    /// The rest of a request's content.
    Body,
    /// Room for output.
    Write,
    /// The next grant of a paced response. The machine sets the deadline.
    Pace,
    /// The client's windows or the pace, under HTTP/2. Each response has its own deadline.
    Windows,
    /// The peer's end, after ours.
    PeersEnd,
    /// The responder is at work. The peer is not at fault, so there is no deadline.
    Responder,
    /// Nothing: the connection has ended.
    Nothing,
}

impl Awaiting {
    /// Time until the deadline.
    #[inline]
    pub fn timeout(self, timeouts: &Timeouts) -> Nanos {
        match self {
            Awaiting::Pace | Awaiting::Windows | Awaiting::Responder => Nanos::MAX,
            Awaiting::FirstByte | Awaiting::Head => timeouts.header,
            Awaiting::Request => timeouts.idle,
            Awaiting::Body => timeouts.body,
            Awaiting::Write => timeouts.write_stall,
            Awaiting::PeersEnd | Awaiting::Nothing => timeouts.linger,
        }
    }

    /// Time until the connection counts as idle; `None` while a request or response is under way.
    #[inline]
    pub fn idle_after(self) -> Option<Nanos> {
        match self {
            Awaiting::FirstByte => Some(FIRST_REQUEST),
            Awaiting::Request => Some(Nanos::ZERO),
            Awaiting::PeersEnd => Some(LEAST_LINGER),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_its_timeout_and_its_idleness() {
        let [header, idle, body, write_stall, linger] = [1, 2, 3, 4, 5].map(Nanos::from_secs);
        let timeouts = Timeouts { header, idle, body, write_stall, linger };
        for (awaiting, timeout, idle_after) in [
            (Awaiting::FirstByte, header, Some(Nanos::SECOND)),
            (Awaiting::Request, idle, Some(Nanos::ZERO)),
            (Awaiting::Head, header, None),
            (Awaiting::Body, body, None),
            (Awaiting::Write, write_stall, None),
            (Awaiting::Pace, Nanos::MAX, None),
            (Awaiting::Windows, Nanos::MAX, None),
            (Awaiting::PeersEnd, linger, Some(Nanos::from_millis(100))),
            (Awaiting::Responder, Nanos::MAX, None),
            (Awaiting::Nothing, linger, None),
        ] {
            let found = (awaiting.timeout(&timeouts), awaiting.idle_after());
            assert_eq!(found, (timeout, idle_after), "{awaiting:?}");
        }
    }
}
