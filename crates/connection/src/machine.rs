//! The state that a driver keeps for a connection beside its socket: the HTTP machine, alone or under TLS.
//!
//! ```text
//!   a gate, for what comes before either: a proxy's header, a refusal (`gate`)
//!
//!   Plain ─────────────────────────────────────────────┐
//!   Awaited ──first byte of TLS──> Layer  (handshake, records, closing alert)
//!      └─────first byte of HTTP──> Plain, answered 400 │
//!                                                      v
//!                                                     Http  (`http`: HTTP/1.1, or HTTP/2 by preface or ALPN)
//! ```
//!
//! A driver treats a machine as if it were HTTP alone: it asks for the machine's wants and its deadline. While records
//! wait for room in the socket, the machine wants to transmit. `transfer` moves the bytes.
//!
//! Owns the order of the two layers. HTTP receives plain bytes, and learns that bytes have left when their records
//! have. Invariants: TLS costs a plain connection one comparison; a connection that has not sent a byte has no session;
//! a session exists until the connection ends.

mod gate;
pub(super) mod http;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::Nanos;
use http_semantics::server::{Context, Settings, Wants};
use http_semantics::{Responder, Sni, Transport};
use http1::server::{Connection, Transmit};
use tls::{Asked, Event, Session, Sessions, is_a_request};

use gate::{Gate, Passed};
use http::{Http, Order, Version};

use crate::clients::{Admission, Permit};
use crate::counts::PeerCounts;
use crate::custody::Custody;
use crate::refusal::too_many_requests;
use crate::settings::LiveSettings;

/// An open file.
type Handle = Arc<OwnedFd>;

/// The response to a plain request on a TLS port.
const PLAIN_PAGE: &[u8] = b"This port speaks TLS: use https:// in place of http://\n";

/// The resources that a machine borrows for a turn.
pub struct Lent<'a, S: Responder<File = Handle>> {
    /// The context of HTTP.
    pub context: Context<'a, S>,
    /// The buffer for received bytes, and for parts of files that are read to be enciphered.
    pub scratch: &'a mut [u8],
    /// The counters of what peers did.
    pub counts: &'a mut PeerCounts,
    /// The counters of HTTP/2.
    pub http2: &'a mut http2::Counts,
    /// Whose the listening sockets are.
    pub custody: &'a Custody,
}

impl<'a, S: Responder<File = Handle>> Lent<'a, S> {
    /// Returns the context of both HTTP versions.
    pub fn http(&mut self) -> http2::Context<'_, 'a, S> {
        self.parts().0
    }

    /// Returns the context of both HTTP versions, the scratch buffer, and the counters of peers.
    pub fn parts(&mut self) -> (http2::Context<'_, 'a, S>, &mut [u8], &mut PeerCounts) {
        let http = http2::Context { http: &mut self.context, counts: self.http2 };
        (http, self.scratch, self.counts)
    }
}

/// One connection's protocols.
pub struct Machine {
    pub(super) http: Http,
    pub(super) tls: Tls,
    version: Version,
    gate: Gate,
    /// The client, if known: the peer's address, or the address that a proxy has reported. Without the scope of a
    /// link-local address, which would take 12 bytes more in every connection.
    client: Option<(IpAddr, u16)>,
    /// Gives the connection back to its client's limit when the machine is dropped.
    _permit: Option<Box<Permit>>,
    /// The order about the connection's end, for a version that begins later.
    order: Order,
}

/// The layer between HTTP and the socket.
pub(super) enum Tls {
    /// Nothing.
    Plain,
    /// TLS is expected, but its first byte has not arrived.
    Awaited(Sessions),
    /// A TLS session.
    Layer(Box<Layer>),
}

/// A TLS session between HTTP and the socket.
pub(super) struct Layer {
    pub(super) session: Session,
    /// Bytes of HTTP that are in records, and that HTTP does not yet know to have left.
    pub(super) owed: u64,
    /// More of the same response follows.
    pub(super) more: bool,
    alert: Alert,
    handshake: Handshake,
    /// The server itself has shut down the receiving side of the socket.
    was_shut: bool,
}

/// The alert that ends a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alert {
    /// `close_notify` is to be sent when HTTP has ended.
    Due,
    /// No alert remains to be made: `close_notify` or another alert is in a record, or there must be none.
    Settled,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Handshake {
    UnderWay,
    Complete,
    /// And counted.
    Failed,
}

fn short(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip(), address.port())
}

impl Machine {
    /// Makes the machine of an accepted connection, under TLS if the settings enable it. Takes over the admission of
    /// its client.
    pub fn new(
        socket: &OwnedFd,
        peer: Option<SocketAddr>,
        now: Nanos,
        admission: Admission,
        settings: &LiveSettings,
    ) -> Machine {
        let tls = settings.tls_of(socket).map_or(Tls::Plain, |sessions| Tls::Awaited(sessions.clone()));
        let gate = match (settings.clients(), &admission) {
            (_, Admission::Refused) => Gate::refused(),
            (Some(clients), _) if clients.is_proxy(peer) => Gate::header(clients),
            _ => Gate::default(),
        };
        Machine {
            http: Http::One(Connection::new(now, settings)),
            tls,
            version: Version::Open(0),
            gate,
            client: peer.map(short),
            _permit: admission.permit(),
            order: Order::GoOn,
        }
    }

    /// Makes the machine of a connection that has neither TLS nor HTTP/2.
    pub fn plain(now: Nanos, settings: &http_semantics::server::Settings) -> Machine {
        let http = Http::One(Connection::new(now, settings));
        Machine {
            http,
            tls: Tls::Plain,
            version: Version::Known,
            gate: Gate::default(),
            client: None,
            _permit: None,
            order: Order::GoOn,
        }
    }

    /// Returns the client's address, if known.
    pub fn client(&self) -> Option<SocketAddr> {
        self.client.map(SocketAddr::from)
    }

    /// Returns the event that the connection waits for; as [`Connection::wants`].
    pub fn wants(&self) -> Wants {
        let wants = self.http.wants();
        match &self.tls {
            Tls::Layer(layer) if wants != Wants::Close && layer.session.wants_write() => Wants::Transmit,
            Tls::Layer(layer) if wants == Wants::ShutdownThenReceive && layer.may_say_goodbye() => {
                Wants::Transmit
            }
            _ => wants,
        }
    }

    /// As [`Connection::deadline`].
    pub fn deadline(&self) -> Nanos {
        self.http.deadline()
    }

    /// As [`Connection::idle_from`].
    pub fn idle_from(&self) -> Nanos {
        self.http.idle_from()
    }

    /// As [`Connection::is_new`].
    pub fn is_new(&self) -> bool {
        self.http.is_new()
    }

    /// As [`Connection::is_deferred`].
    pub fn is_deferred(&self) -> bool {
        self.http.is_deferred()
    }

    /// As [`Connection::awaits_request`].
    pub fn awaits_request(&self) -> bool {
        self.http.awaits_request()
    }

    /// As [`Connection::answered_elsewhere`].
    pub fn answered_elsewhere(&mut self, at: Nanos, settings: &http_semantics::server::Settings) {
        self.http.answered_elsewhere(at, settings);
    }

    /// True if bytes may be received now; under HTTP/2 even while output waits.
    pub fn may_receive(&self, settings: &Settings) -> bool {
        match &self.http {
            // Pending records count too: a client that takes no records must not cause more of them.
            Http::One(_) => self.wants() == Wants::Receive,
            Http::Two(two) => two.may_receive(settings),
        }
    }

    /// True if bytes in memory wait for room in the socket. Under HTTP/2 they may belong to other streams than the one
    /// whose file is missing.
    pub fn has_bytes(&self) -> bool {
        let has_records = matches!(&self.tls, Tls::Layer(layer) if layer.session.wants_write());
        has_records || matches!(self.http.transmit(), Transmit::Bytes { .. })
    }

    /// As [`Connection::resume`].
    pub fn resume<S: Responder<File = Handle>>(&mut self, lent: &mut Lent<'_, S>) {
        self.http.resume(&mut lent.http());
    }

    /// Tells the connection that the server is shutting down, as [`Connection::drain`]. After a hand-over it uses
    /// [`Connection::retire`] instead, because no client may notice a hand-over.
    pub fn drain<S: Responder<File = Handle>>(&mut self, lent: &mut Lent<'_, S>) {
        self.order = if lent.custody.is_passed_on() { Order::Retire } else { Order::Drain };
        match (&mut self.http, self.order) {
            (Http::One(one), Order::Retire) => one.retire(),
            (Http::Two(two), Order::Retire) => two.retire(&mut lent.http()),
            (http, _) => http.drain(&mut lent.http()),
        }
    }

    /// As [`Connection::retire`]. An HTTP/2 session goes on.
    pub fn retire(&mut self) {
        if let Http::One(one) = &mut self.http {
            one.retire();
        }
    }

    /// As [`Connection::give_way`].
    pub fn give_way<S: Responder<File = Handle>>(&mut self, lent: &mut Lent<'_, S>) {
        self.order = Order::Drain;
        self.http.give_way(&mut lent.http());
    }

    /// As [`Connection::expire`]; ends a handshake that took too long.
    pub fn expire<S: Responder<File = Handle>>(&mut self, lent: &mut Lent<'_, S>) {
        if let Tls::Layer(layer) = &mut self.tls
            && layer.handshake == Handshake::UnderWay
            && lent.context.now >= self.http.deadline()
        {
            layer.handshake = Handshake::Failed;
            lent.counts.tls_handshakes_timed_out += 1;
            return self.http.abort(&mut lent.http());
        }
        let was_sending = self.http.wants() == Wants::Transmit;
        self.http.expire(&mut lent.http());
        // A response that is cut off ends without `close_notify`.
        if was_sending
            && self.http.wants() == Wants::Close
            && let Tls::Layer(layer) = &mut self.tls
        {
            layer.alert = Alert::Settled;
        }
    }

    /// Takes bytes that the peer sent.
    pub fn receive<S: Responder<File = Handle>>(
        &mut self,
        bytes: &[u8],
        cx: &mut http2::Context<'_, '_, S>,
        counts: &mut PeerCounts,
    ) {
        match &mut self.tls {
            _ if !self.gate.is_open() => self.receive_at_gate(bytes, cx, counts),
            Tls::Plain if self.version == Version::Known => self.http.receive(bytes, cx),
            Tls::Plain => self.receive_plain(bytes, cx),
            Tls::Awaited(_) => self.receive_first(bytes, cx, counts),
            Tls::Layer(layer) => layer.receive(bytes, (&mut self.http, self.order), cx, counts),
        }
    }

    /// Takes the first bytes of a connection that is refused, or whose client a proxy has yet to report.
    #[cold]
    fn receive_at_gate<S: Responder<File = Handle>>(
        &mut self,
        bytes: &[u8],
        cx: &mut http2::Context<'_, '_, S>,
        counts: &mut PeerCounts,
    ) {
        match self.gate.receive(bytes, cx.http.now, counts) {
            Passed::NotYet => {}
            Passed::Never => self.http.abort(cx),
            Passed::Header { client, admission, rest } => {
                if let Some(client) = client {
                    self.client = Some(short(client));
                    cx.http.client = Some(client.ip());
                    cx.http.log.iter_mut().for_each(|log| log.client_is(client));
                }
                self._permit = admission.permit();
                if !rest.is_empty() {
                    self.receive(rest, cx, counts);
                }
            }
            // A handshake costs more than a refusal is worth.
            Passed::Refused if !matches!(self.tls, Tls::Plain) => {
                counts.client_refusals_unanswered += 1;
                self.http.abort(cx);
            }
            Passed::Refused => {
                self.version = Version::Known;
                if let Http::One(one) = &mut self.http {
                    one.refuse_first(bytes, too_many_requests(), cx.http);
                }
            }
        }
    }

    /// Takes the first bytes of a connection without TLS, which determine the version (RFC 9113, 3.3). Until they do,
    /// they are the beginning of a request over HTTP/1.1.
    fn receive_plain<S: Responder<File = Handle>>(
        &mut self,
        bytes: &[u8],
        cx: &mut http2::Context<'_, '_, S>,
    ) {
        let Version::Open(before) = self.version else { return };
        if self.version.read(bytes) == Some(true) {
            self.http.begin_http2(self.order, Transport::default(), cx);
            if let Http::Two(two) = &mut self.http {
                two.preface_began(usize::from(before));
            }
        }
        self.http.receive(bytes, cx);
    }

    /// Takes the first bytes of a connection that must speak TLS.
    #[cold]
    fn receive_first<S: Responder<File = Handle>>(
        &mut self,
        bytes: &[u8],
        cx: &mut http2::Context<'_, '_, S>,
        counts: &mut PeerCounts,
    ) {
        let Tls::Awaited(sessions) = &self.tls else { return };
        match bytes.first() {
            Some(first) if !is_a_request(*first) => {}
            _ => {
                counts.tls_plain_http += 1;
                self.tls = Tls::Plain;
                self.version = Version::Known;
                if let Http::One(one) = &mut self.http {
                    one.refuse_transport(bytes, PLAIN_PAGE, cx.http);
                }
                return;
            }
        }
        counts.tls_handshakes_begun += 1;
        let Some(session) = sessions.begin() else {
            counts.tls_handshakes_failed += 1;
            return self.http.abort(cx);
        };
        let mut layer = Box::new(Layer {
            session,
            owed: 0,
            more: false,
            alert: Alert::Due,
            handshake: Handshake::UnderWay,
            was_shut: false,
        });
        layer.receive(bytes, (&mut self.http, self.order), cx, counts);
        self.tls = Tls::Layer(layer);
    }

    /// Notes that the server has shut down the receiving side of the socket, so that its end is not the peer's.
    pub fn was_shut(&mut self) {
        if let Tls::Layer(layer) = &mut self.tls {
            layer.was_shut = true;
        }
    }

    /// Notes that the peer has shut down its sending side, or that the server has shut down the receiving side.
    pub fn receive_end<S: Responder<File = Handle>>(
        &mut self,
        cx: &mut http2::Context<'_, '_, S>,
        counts: &mut PeerCounts,
    ) {
        if let Tls::Layer(layer) = &self.tls
            && layer.handshake == Handshake::Complete
            && layer.alert == Alert::Due
            && !layer.was_shut
            && !layer.session.has_ended()
        {
            counts.tls_truncated += 1;
        }
        self.http.receive_end(cx);
    }

    /// Queues the closing alert if HTTP has ended and no other bytes wait. Returns whether it was queued.
    pub(super) fn say_goodbye(&mut self) -> bool {
        let ends = matches!(self.http.wants(), Wants::Close | Wants::ShutdownThenReceive);
        match &mut self.tls {
            Tls::Layer(layer) if ends && layer.may_say_goodbye() => {
                layer.alert = Alert::Settled;
                layer.session.close();
                true
            }
            _ => false,
        }
    }

    /// Notes that the response was cut short. The session must not end as if that were intended.
    pub(super) fn cut_short<S: Responder<File = Handle>>(&mut self, context: &mut Context<'_, S>) {
        if let Tls::Layer(layer) = &mut self.tls {
            layer.alert = Alert::Settled;
        }
        if let Http::One(one) = &mut self.http {
            one.truncated(context);
        }
    }

    /// Prepares the machine for the connection's close. Releases what HTTP holds, and counts an unfinished handshake.
    pub(super) fn end<S: Responder<File = Handle>>(&mut self, lent: &mut Lent<'_, S>) {
        if let Tls::Layer(layer) = &mut self.tls {
            if layer.handshake == Handshake::UnderWay {
                layer.handshake = Handshake::Failed;
                lent.counts.tls_handshakes_failed += 1;
            }
            // A response that is cut off ends without `close_notify`.
            if matches!(self.http.wants(), Wants::Transmit | Wants::Pause) {
                layer.alert = Alert::Settled;
            }
        }
        self.http.abort(&mut lent.http());
    }
}

impl Layer {
    fn receive<S: Responder<File = Handle>>(
        &mut self,
        bytes: &[u8],
        (http, order): (&mut Http, Order),
        cx: &mut http2::Context<'_, '_, S>,
        counts: &mut PeerCounts,
    ) {
        // After our own closing alert only the peer's end matters.
        if self.alert == Alert::Settled {
            return;
        }
        let handshake = &mut self.handshake;
        let outcome = self.session.receive(bytes, |event| match event {
            Event::Established { resumed, speaks_http2, asked } => {
                let sni = asked.map(|Asked { host, certificate }| Sni { host, certificate });
                let transport = Transport::Tls(sni);
                *handshake = Handshake::Complete;
                counts.tls_handshakes_resumed += u64::from(resumed);
                counts.tls_handshakes_full += u64::from(!resumed);
                match http {
                    Http::One(_) if speaks_http2 => http.begin_http2(order, transport, cx),
                    Http::One(one) => one.transport_ready(transport, cx.http.now, cx.http.settings),
                    Http::Two(_) => {}
                }
            }
            Event::Bytes(plain) => http.receive(plain, cx),
            Event::Ended => http.receive_end(cx),
        });
        if outcome.is_ok() {
            return;
        }
        // The session has an alert to send, which names the error.
        self.alert = Alert::Settled;
        match std::mem::replace(handshake, Handshake::Failed) {
            Handshake::Complete => counts.tls_broken += 1,
            Handshake::UnderWay | Handshake::Failed => counts.tls_handshakes_failed += 1,
        }
        self.owed = 0;
        http.transport_refused(cx);
    }

    fn may_say_goodbye(&self) -> bool {
        self.alert == Alert::Due && self.handshake == Handshake::Complete && !self.session.wants_write()
    }
}
