//! The answers to requests: at once, or after a wait.

use base::Nanos;

use crate::request::Request;
use crate::response::Response;

/// Answers requests: a site, an admin interface, a test.
pub trait Service {
    /// The handle of an open file, cheap to clone (an `Arc` of a descriptor).
    type File: Clone;

    /// Answers one complete request at the loop's current time `now`. A call must not block for longer than
    /// the server may stand still.
    fn respond(&mut self, request: &Request<'_>, now: Nanos) -> Response<Self::File>;

    /// Refuses a request with content, before the content is read, if no content could change the refusal.
    /// The content is then dropped. `None` lets the server read the content and call [`Service::respond`].
    /// Never blocks.
    fn refuse_early(&self, _request: &Request<'_>) -> Option<Response<Self::File>> {
        None
    }
}

/// Answers a connection's requests, at once as a [`Service`] does, or after a wait, such as for a file that
/// must be read from a disk.
pub trait Responder {
    /// The handle of an open file, cheap to clone.
    type File: Clone;

    /// Answers one complete request, or returns `None` if the answer must wait. The protocol machine then keeps the
    /// request, and asks again when its driver resumes it.
    fn respond_or_wait(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<Self::File>>;

    /// Refuses a request before its content arrives, as [`Service::refuse_early`] does.
    fn refuse_early(&self, _request: &Request<'_>) -> Option<Response<Self::File>> {
        None
    }
}

impl<S: Service> Responder for S {
    type File = S::File;

    fn respond_or_wait(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<S::File>> {
        Some(self.respond(request, now))
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<S::File>> {
        Service::refuse_early(self, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Method;
    use crate::status::Status;

    struct Ready;

    impl Service for Ready {
        type File = ();

        fn respond(&mut self, _: &Request<'_>, _: Nanos) -> Response<()> {
            Response::error(Status::OK)
        }

        fn refuse_early(&self, request: &Request<'_>) -> Option<Response<()>> {
            (request.method == Method::Put).then(|| Response::error(Status::METHOD_NOT_ALLOWED))
        }
    }

    #[test]
    fn service_is_a_responder_that_never_waits() {
        let mut request = Request { host: "a", ..Request::get("/") };
        let mut service = Ready;
        let answer = service.respond_or_wait(&request, Nanos::ZERO).map(|response| response.status);
        assert_eq!(answer, Some(Status::OK));
        let early =
            |request: &Request<'_>| Responder::refuse_early(&Ready, request).map(|early| early.status);
        assert_eq!(early(&request), None);
        request.method = Method::Put;
        assert_eq!(early(&request), Some(Status::METHOD_NOT_ALLOWED));
    }
}
