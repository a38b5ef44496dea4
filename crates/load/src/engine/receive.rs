//! Reading replies from a connection, a piece at a time.

use http_semantics::Reply;
use http1::client::{Part, Reader};
use record::Outcome;

use crate::engine::state::session::detour::Detour;
use crate::engine::state::session::story::Story;
use crate::engine::wire::Wire;
use crate::engine::wire::transport::Transport;
use crate::measurement::thread_metrics::failures::{Example, Failures};
use crate::plan::choices::expected::Statuses;
use crate::plan::terms::digest::Hasher;

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

/// Those that hear a reply while it is read.
pub(crate) struct Ears<'a> {
    /// Hears the content.
    pub hasher: &'a mut Hasher,
    /// The session's state.
    pub story: Option<&'a mut Story>,
    /// The redirects of the request.
    pub detour: Option<&'a mut Detour>,
    /// The reply as an example of a failed one, with the accepted statuses and the examples that are known.
    pub example: Option<(&'a mut Example, &'a Statuses, &'a Failures)>,
}

impl Ears<'_> {
    fn distribute_part(&mut self, part: Part<'_>) {
        if let Part::Content(content) = part {
            self.hasher.update(content);
        }
        if let Some((example, accepted, known)) = &mut self.example {
            example.read_part(part, accepted, known);
        }
        if let Some(detour) = &mut self.detour {
            detour.read_part(part);
        }
        if let Some(story) = &mut self.story {
            story.read_part(part);
        }
    }
}

/// Reads once without blocking. If more bytes follow a reply than were requested,
/// the connection does not persist: the bytes after the reply cannot be trusted.
pub(crate) fn receive<T: Transport>(
    transport: &mut T,
    wire: &mut Wire<T::Socket>,
    reader: &mut Reader,
    mut ears: Ears<'_>,
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
    match reader.feed_parts(received, |part| ears.distribute_part(part)) {
        Err(_) => Received::Over(Outcome::Malformed),
        Ok((taken, Some(mut reply))) => {
            reply.persistent &= taken == received.len();
            Received::Reply(reply)
        }
        Ok((_, None)) => Received::Part(received.len()),
    }
}
