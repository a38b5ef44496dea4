//! The checks that a connection's first bytes must pass before TLS and HTTP.
//!
//! ```text
//!   Header ──the proxy's own connection, or a client within its limits──> open
//!      │ └──a client at a limit──> Refused ──first byte after the header──> Open, answered 429
//!      └──no header of version 2──> the end
//! ```
//!
//! Owns the choice alone: the machine acts on it. Most connections are born with an open gate, which costs one
//! comparison.

use std::net::SocketAddr;

use base::Nanos;

use crate::clients::{Admission, Clients};
use crate::counts::PeerCounts;
use crate::proxy_protocol::{Header, Heard};

/// The state of a connection's first bytes. If it is open, they belong to TLS or HTTP.
#[derive(Default)]
pub(super) struct Gate(Option<Box<Closed>>);

/// The state of a gate that is not open.
enum Closed {
    /// A header of the PROXY protocol is expected.
    Header(Expected),
    /// The client has reached a limit. Its first bytes are answered, whatever they ask for.
    Refused,
}

/// An expected header, and the limits that decide on the client that it names.
struct Expected {
    header: Header,
    clients: Clients,
}

/// The result of passing bytes through the gate.
pub(super) enum Passed<'a> {
    /// More are needed.
    NotYet,
    /// The connection ends.
    Never,
    /// The header is complete. `client` is `None` for a connection of the proxy's own.
    Header { client: Option<SocketAddr>, admission: Admission, rest: &'a [u8] },
    /// The bytes are to be answered with a refusal.
    Refused,
}

impl Gate {
    /// Expects a header.
    pub(super) fn header(clients: &Clients) -> Gate {
        let expected = Expected { header: Header::default(), clients: clients.clone() };
        Gate(Some(Box::new(Closed::Header(expected))))
    }

    /// Refuses the first bytes.
    pub(super) fn refused() -> Gate {
        Gate(Some(Box::new(Closed::Refused)))
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// Takes bytes while the gate is not open, and counts the result.
    pub(super) fn receive<'a>(&mut self, bytes: &'a [u8], now: Nanos, counts: &mut PeerCounts) -> Passed<'a> {
        let Some(Closed::Header(expected)) = self.0.as_deref_mut() else {
            *self = Gate::default();
            return Passed::Refused;
        };
        let (client, rest) = match expected.header.receive(bytes) {
            Heard::Incomplete => return Passed::NotYet,
            Heard::VersionOne => {
                counts.proxy_version_1 += 1;
                return Passed::Never;
            }
            Heard::Malformed => {
                counts.proxy_malformed += 1;
                return Passed::Never;
            }
            Heard::Complete { client, rest } => (client, rest),
        };
        counts.proxy_headers += 1;
        let admission = client.map_or(Admission::Free, |client| expected.clients.admit(client, now, counts));
        *self = if matches!(admission, Admission::Refused) { Gate::refused() } else { Gate::default() };
        Passed::Header { client, admission, rest }
    }
}
