//! A session and its current connection.

pub(crate) mod detour;
pub(crate) mod story;

use base::{Nanos, WallTime};
use http1::client::Reader;

use crate::engine::settings::Settings;
use crate::engine::state::multiplex::{Multiplex, Users};
use crate::engine::wire::Wire;
use crate::measurement::ledger::Account;
use crate::measurement::recorder::Pieces;
use crate::measurement::thread_metrics::failures::Example;
use crate::plan::requests::{RequestId, Workload};
use crate::plan::terms::digest::Hasher;
use crate::plan::terms::draws::Draws;
use crate::plan::terms::window::Window;
use detour::Detour;
use story::Story;

/// A client's sequence of requests. A session outlives a connection that the server closes between two
/// requests.
pub(in crate::engine) struct Session {
    /// Requests that have not ended, the one in progress or the next one among them.
    pub left: u32,
    /// The account of the request in progress, or of the next one if it has fallen due.
    pub account: Option<Account>,
    pub draws: Draws,
    /// The request in progress, or the next one.
    pub request: RequestId,
    /// The time at which that request should be sent.
    pub intended: Nanos,
    /// The number of times that request has been retried.
    pub retries: u32,
    /// True if the session has a place in the schedule, which becomes free when it ends.
    pub frees_place: bool,
    /// The state of a session whose requests have bytes of their own.
    pub story: Option<Box<Story>>,
    /// The redirects of the request in progress, of a run that follows them.
    pub detour: Option<Box<Detour>>,
    /// The users of a closed-loop client over HTTP/2.
    pub users: Option<Box<Users>>,
}

impl Session {
    /// Writes the next request, if its bytes are the session's own.
    pub fn write_request(&mut self, settings: &Settings<'_>, wall: WallTime) {
        let (Some(story), Some(script)) = (&mut self.story, settings.workload.script()) else { return };
        let last = self.left == 1 && settings.kept_connections.is_none() && !settings.follows_redirects;
        story.write(script, self.request, last, settings.tls.is_some(), wall);
    }

    /// The bytes of the request in progress; `last` if it is the last one on its connection.
    pub fn request_bytes<'a>(&'a self, workload: &'a Workload, last: bool) -> &'a [u8] {
        match (self.detour.as_ref().and_then(|detour| detour.request()), &self.story) {
            (Some(redirected), _) => redirected,
            (None, Some(story)) => story.request(),
            (None, None) => workload.bytes(self.request, last),
        }
    }

    /// Returns true if the request in progress, or else the next one, belongs to the ledger. Its connection counts with it.
    pub fn is_counted(&self, counted: Window) -> bool {
        self.account.as_ref().map_or_else(|| counted.contains(self.intended), Account::is_counted)
    }
}

/// The state of a connection.
///
/// ```text
///   Connecting --> Awaiting <--> Thinking or Idle          over HTTP/2: Connecting --> Sharing
/// ```
///
/// Every state can end with the connection closed, and the session over or moved to another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Phase {
    /// Connecting since the time of connect().
    Connecting { since: Nanos },
    /// The request was sent then, except for `unsent` bytes.
    Awaiting { sent: Nanos },
    /// Waiting until the next request is due. `over` is true when the server has closed the connection, so
    /// that the request needs another one.
    Thinking { over: bool },
    /// Established, over HTTP/2: streams share it.
    Sharing,
    /// Kept, and without a request.
    Idle,
}

/// One connection over a transport's socket.
pub(in crate::engine) struct Connection<S> {
    pub wire: Wire<S>,
    pub session: Session,
    pub phase: Phase,
    pub reader: Reader,
    pub hasher: Hasher,
    /// The reply under way, if it is the first failed one of its kind.
    pub example: Example,
    /// The pieces in which the reply under way has come; `None` before the first one.
    pub pieces: Option<Pieces>,
    /// True for a connection that requests share: it stays open after its session.
    pub is_kept: bool,
    /// True after a reply on this connection. If the server then closes it before another reply begins, the
    /// request may be repeated on a new connection (RFC 9112, 9.3.1).
    pub has_replied: bool,
    /// The bytes of the request that the socket has not taken yet.
    pub unsent: u32,
    /// The streams of an established connection over HTTP/2.
    pub http2: Option<Box<Multiplex>>,
}

impl<S> Connection<S> {
    /// Returns true if the request in progress is the last one on this connection. A redirect may bring another one.
    pub fn is_last(&self) -> bool {
        self.session.left == 1 && !self.is_kept && self.session.detour.is_none()
    }

    /// Makes the request that a redirect to the same server leads to. Returns false for any other reply.
    pub fn follow_redirect(&mut self, status: u16, settings: &Settings<'_>) -> bool {
        let (session, is_secure) = (&mut self.session, settings.tls.is_some());
        let Some(mut detour) = session.detour.take() else { return false };
        let cookies = session.story.as_mut().and_then(|story| story.cookies_of_redirect(status, is_secure));
        let original = session.request_bytes(settings.workload, false);
        let follows = detour.follow_redirect(status, original, is_secure, cookies.as_ref());
        session.detour = Some(detour);
        if follows {
            self.hasher = settings.expected.hasher();
            self.example = Example::default();
            self.pieces = None;
        }
        follows
    }

    /// Returns true while the connection waits for room in the socket.
    pub fn is_sending(&self) -> bool {
        let has_output = self.http2.as_ref().is_some_and(|http2| !http2.client.output().is_empty());
        self.unsent > 0 || self.wire.is_behind() || (has_output && !self.wire.is_handshaking())
    }
}
