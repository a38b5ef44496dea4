//! The answer to a request without room.

use bytes::Bytes;
use http1::{Response, Status};
use site::File;

/// Returns a 503 that asks the client to come back in a second.
pub fn unavailable() -> Response<File> {
    let fields = b"Content-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n";
    Response { fields: Bytes::from_static(fields), ..Response::error(Status::SERVICE_UNAVAILABLE) }
}
