//! Reading replies from a socket, a piece at a time.

use http1::client::{Reader, Reply};
use record::Outcome;

use crate::content::Hasher;
use crate::wire::Wire;

/// What a read brought.
pub(crate) enum Received {
    /// The socket is empty.
    Nothing,
    /// A part of a reply: so many bytes.
    Part(usize),
    /// A whole reply.
    Reply(Reply),
    /// The connection is of no more use.
    Over(Outcome),
}

/// Reads once, at most what `buffer` holds, and never waits. The content goes through `hasher`. A reply that is followed by more than was
/// asked for does not persist: nothing behind it can be trusted.
pub(crate) fn receive(
    wire: &mut Wire,
    reader: &mut Reader,
    hasher: &mut Hasher,
    buffer: &mut [u8],
) -> Received {
    let received = match wire.receive(buffer) {
        Ok(Some(received)) => received,
        Ok(None) => return Received::Nothing,
        Err(outcome) => return Received::Over(outcome),
    };
    if received == 0 {
        return match reader.end() {
            Ok(Some(reply)) => Received::Reply(reply),
            Ok(None) | Err(_) => Received::Over(Outcome::Reset),
        };
    }
    match reader.feed_content(&buffer[..received], |content| hasher.update(content)) {
        Err(_) => Received::Over(Outcome::Malformed),
        Ok((taken, Some(mut reply))) => {
            reply.persistent &= taken == received;
            Received::Reply(reply)
        }
        Ok((_, None)) => Received::Part(received),
    }
}
