//! What a small server answers with.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::Nanos;
use http_semantics::{Body, Request, Response, Service, Status};

/// A service that answers requests and may send events.
pub trait SmallService: Service<File = Arc<OwnedFd>> {
    /// Returns the answer to a client that has not shown the token; `None` refuses it.
    fn without_token(&self, _request: &Request<'_>) -> Option<Response<Arc<OwnedFd>>> {
        None
    }

    /// Tells whether a request is for the stream of events.
    fn asks_for_events(&self, _request: &Request<'_>) -> bool {
        false
    }

    /// Returns the first event of a stream.
    fn first_event(&self) -> String {
        String::new()
    }

    /// Returns the time of the next event.
    fn event_due(&self) -> Nanos {
        Nanos::MAX
    }

    /// Returns the event that is due now, for all streams.
    fn event(&mut self, _now: Nanos) -> String {
        String::new()
    }
}

/// Makes an answer that clients must not store.
pub fn answer(status: Status, media_type: &str, text: String) -> Response<Arc<OwnedFd>> {
    let fields = format!("Content-Type: {media_type}\r\nCache-Control: no-store\r\n");
    Response { status, fields: fields.into(), body: Body::Bytes(text.into()), close: false, pace: None }
}

/// Refuses a method, and names the allowed ones.
pub fn not_allowed(allowed: &'static str) -> Response<Arc<OwnedFd>> {
    with_fields(Response::error(Status::METHOD_NOT_ALLOWED), &format!("Allow: {allowed}\r\n"))
}

/// Adds header lines to a response.
pub fn with_fields(response: Response<Arc<OwnedFd>>, lines: &str) -> Response<Arc<OwnedFd>> {
    Response { fields: [&response.fields[..], lines.as_bytes()].concat().into(), ..response }
}
