//! A connection's HTTP, of either version, as the drivers see it.
//!
//! Owns the choice of the version, by the first bytes or by the protocol that TLS has negotiated. Leaves out TLS and
//! sockets.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::Nanos;
use http_semantics::server::{Settings, Wants};
use http_semantics::{FileRange, Responder, Transport};
use http1::server::{self, Transmit};

type Handle = Arc<OwnedFd>;

/// The first bytes of HTTP/2's preface, which begin no HTTP/1.1 request.
const TELLING: &[u8] = b"PRI ";

/// HTTP/1.1 or HTTP/2.
pub enum Http {
    /// HTTP/1.1, or no version yet.
    One(server::Connection<Handle>),
    /// HTTP/2.
    Two(Box<http2::Connection<Handle>>),
}

/// Methods that report an event to either version. HTTP/2 counts in its own counters too.
macro_rules! told {
    ($($method:ident($($argument:ident: $type:ty)?)),+ $(,)?) => {$(
        pub fn $method<S: Responder<File = Handle>>(
            &mut self,
            $($argument: $type,)?
            cx: &mut http2::Context<'_, '_, S>,
        ) {
            match self {
                Http::One(one) => one.$method($($argument,)? cx.http),
                Http::Two(two) => two.$method($($argument,)? cx),
            }
        }
    )+};
}

/// Calls a getter of either version.
macro_rules! ask {
    ($http:ident, $method:ident) => {
        match $http {
            Http::One(one) => one.$method(),
            Http::Two(two) => two.$method(),
        }
    };
}

impl Http {
    pub fn wants(&self) -> Wants {
        ask!(self, wants)
    }

    pub fn deadline(&self) -> Nanos {
        ask!(self, deadline)
    }

    pub fn idle_from(&self) -> Nanos {
        ask!(self, idle_from)
    }

    pub fn is_new(&self) -> bool {
        ask!(self, is_new)
    }

    pub fn is_deferred(&self) -> bool {
        ask!(self, is_deferred)
    }

    pub fn shut_down(&mut self) {
        ask!(self, shut_down);
    }

    /// True if an idle HTTP/1.1 connection waits for a request. Only this loop answers HTTP/2.
    pub fn awaits_request(&self) -> bool {
        matches!(self, Http::One(one) if one.awaits_request())
    }

    pub fn answered_elsewhere(&mut self, at: Nanos, settings: &Settings) {
        if let Http::One(one) = self {
            one.answered_elsewhere(at, settings);
        }
    }

    pub fn transmit(&self) -> Transmit<'_, Handle> {
        match self {
            Http::One(one) => one.transmit(),
            Http::Two(two) => match two.transmit() {
                http2::Transmit::Nothing => Transmit::Nothing,
                http2::Transmit::Bytes(bytes) => Transmit::Bytes { bytes, more: false },
            },
        }
    }

    /// The part of a file that HTTP/2 needs before it can send more.
    pub fn file_part(&self) -> Option<FileRange<Handle>> {
        match self {
            Http::One(_) => None,
            Http::Two(two) => two.file_part(),
        }
    }

    pub fn supply<S: Responder<File = Handle>>(&mut self, bytes: &[u8], cx: &mut http2::Context<'_, '_, S>) {
        if let Http::Two(two) = self {
            two.supply(bytes, cx);
        }
    }

    /// Begins HTTP/2, whose requests carry `transport`. It inherits the order that HTTP/1.1 was given.
    pub fn begin_http2<S: Responder<File = Handle>>(
        &mut self,
        order: Order,
        transport: Transport,
        cx: &mut http2::Context<'_, '_, S>,
    ) {
        let mut two = Box::new(http2::Connection::new(transport, cx));
        match order {
            Order::GoOn => {}
            Order::Retire => two.retire(cx),
            Order::Drain => two.drain(cx),
        }
        *self = Http::Two(two);
    }

    told! {
        receive(bytes: &[u8]),
        receive_end(),
        transmitted(count: u64),
        resume(),
        drain(),
        give_way(),
        expire(),
        abort(),
        transport_refused(),
    }
}

/// The order of a connection's server about its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// None.
    GoOn,
    /// To end after a hand-over, which no client may notice.
    Retire,
    /// To end after the work under way.
    Drain,
}

/// The version of a connection without TLS, as far as its first bytes determine it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The connection has sent this number of the preface's bytes, and no others.
    Open(u8),
    /// The version is known.
    Known,
}

impl Version {
    /// Compares further bytes with the preface. Returns true for HTTP/2, false for HTTP/1.1, and `None` while it needs
    /// more bytes.
    pub fn read(&mut self, bytes: &[u8]) -> Option<bool> {
        let Version::Open(matched) = self else { return Some(false) };
        let missing = &TELLING[usize::from(*matched)..];
        let count = missing.len().min(bytes.len());
        let is_prefix = missing.starts_with(&bytes[..count]);
        if is_prefix && count < missing.len() {
            *matched += count as u8;
            return None;
        }
        *self = Version::Known;
        Some(is_prefix)
    }
}
