//! Reading replies from a connection, a piece at a time.

use http1::client::{Part, Reader, Reply};
use record::Outcome;

use crate::engine::story::Story;
use crate::engine::transport::Transport;
use crate::engine::wire::Wire;
use crate::plan::digest::Hasher;

/// The result of one read.
pub(crate) enum Received {
    /// No bytes at the moment.
    Nothing,
    /// A part of a reply, of this many bytes.
    Part(usize),
    /// A whole reply.
    Reply(Reply),
    /// The connection cannot be used any more.
    Over(Outcome),
}

/// Reads once without blocking; `hasher` gets the content, and the story all of a reply. If more bytes follow a reply than were requested,
/// the connection does not persist: the bytes after the reply cannot be trusted.
pub(crate) fn receive<T: Transport>(
    transport: &mut T,
    wire: &mut Wire<T::Socket>,
    reader: &mut Reader,
    (hasher, mut story): (&mut Hasher, Option<&mut Story>),
    scratch: &mut [u8],
) -> Received {
    let received = match wire.receive(transport, scratch) {
        Ok(Some(received)) => received,
        Ok(None) => return Received::Nothing,
        Err(outcome) => return Received::Over(outcome),
    };
    if received.is_empty() {
        return match reader.end() {
            Ok(Some(reply)) => Received::Reply(reply),
            Ok(None) | Err(_) => Received::Over(Outcome::Reset),
        };
    }
    let keep = |part: Part<'_>| {
        if let Part::Content(content) = part {
            hasher.update(content);
        }
        if let Some(story) = &mut story {
            story.hear(part);
        }
    };
    match reader.feed_parts(received, keep) {
        Err(_) => Received::Over(Outcome::Malformed),
        Ok((taken, Some(mut reply))) => {
            reply.persistent &= taken == received.len();
            Received::Reply(reply)
        }
        Ok((_, None)) => Received::Part(received.len()),
    }
}
