//! Responses to clients that the server refuses: it has no room, or the client is at a limit.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use http_semantics::{Response, Status};

/// An open file, of which a refusal has none.
type File = Arc<OwnedFd>;

/// Returns a 503 that asks the client to come back in a second.
pub fn unavailable() -> Response<File> {
    come_back(Status::SERVICE_UNAVAILABLE)
}

/// Returns a 429 that asks the client to come back in a second.
pub fn too_many_requests() -> Response<File> {
    come_back(Status::TOO_MANY_REQUESTS)
}

fn come_back(status: Status) -> Response<File> {
    let fields = b"Content-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n";
    Response { fields: Bytes::from_static(fields), ..Response::error(status) }
}
