//! A reply's head, from its field list, and the whole reply (RFC 9113, 8.1 to 8.3).

use http_semantics::{Reply, number};

use super::Stream;
use crate::head::{field_name, set_once};
use crate::hpack::Fields;

/// The properties of a head that matter to the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub status: u16,
    /// The value of `content-length`.
    pub length: Option<u64>,
}

/// Reads a field list; `None` if it is not a head of a response.
pub(super) fn head(fields: &Fields) -> Option<Head> {
    let mut fields_left = fields.iter();
    let (name, status) = fields_left.next()?;
    if fields.too_long || name != b":status" || status.len() != 3 {
        return None;
    }
    let status = status.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(status).ok())??;
    let mut length = None;
    for (name, value) in fields_left {
        // A further pseudo-field has no valid name either.
        if field_name(name, value).ok()? == "content-length" {
            set_once(&mut length, value).ok()?;
        }
    }
    let length = match length {
        Some(digits) => Some(number(digits)?),
        None => None,
    };
    Some(Head { status: status.parse().ok().filter(|status| *status >= 100)?, length })
}

/// The reply of a stream that has ended; `None` if its head is missing, or its content does not have the promised
/// length.
pub(super) fn of<T>(stream: &Stream<T>) -> Option<Reply> {
    let Head { status, length } = stream.head?;
    let has_no_content = stream.answers_head || matches!(status, 204 | 304);
    let is_whole = has_no_content || length.is_none_or(|length| length == stream.received);
    is_whole.then_some(Reply { status, body_bytes: stream.received, persistent: true })
}
