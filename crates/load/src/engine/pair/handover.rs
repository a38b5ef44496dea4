//! The socket between the two processes of an S-client pair. Each message is a connection whose request was
//! sent, with the data that the handler needs.
//!
//! ```text
//!   0        8     16        20       24         25
//!   | intended | sent | request | unsent | measured |   and beside it the descriptor (SCM_RIGHTS)
//! ```
//!
//! A Unix SEQPACKET pair keeps messages separate and in order, and tells each side when the other has ended.
//! Both processes run the same program on the same machine with the same plan. Numbers are therefore in its
//! byte order, times are since the run's start, and a request is its number in the workload's table.
//!
//! [`Role`] is the half of the pair that an engine is, with its end of the socket.
//!
//! Nothing here blocks. [`send`] reports a full socket, and the sender keeps the connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};

use base::{Key, Nanos};
use sys::socket::passing::{self, Sent};

use crate::plan::requests::RequestId;

const BYTES: usize = 25;

/// The data beside a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handover {
    /// The time at which the request should be sent.
    pub intended: Nanos,
    /// The time at which it was sent.
    pub sent: Nanos,
    pub request: RequestId,
    /// The bytes of the request that the socket has not taken yet.
    pub unsent: u32,
    /// True for a session scheduled in the measured window.
    pub measured: bool,
}

/// The result of [`receive`].
#[derive(Debug)]
pub(crate) enum Taken {
    /// No message at the moment.
    Nothing,
    /// The establisher has ended.
    End,
    /// A connection; without its descriptor when this process has reached its descriptor limit.
    One(Handover, Option<OwnedFd>),
}

/// The part of an S-client that an engine is.
pub(crate) enum Role {
    /// The whole S-client.
    Whole,
    /// The half that connects.
    Establisher(Outbox),
    /// The half that reads replies.
    Handler(Inbox),
}

/// The establisher's side of the socket.
pub(crate) struct Outbox {
    /// This half's end.
    pub socket: OwnedFd,
    /// Connections whose request went out, with the time it was sent; longest waiting first.
    pub waiting: VecDeque<(Key, Nanos)>,
    /// True while the transport watches the socket for room.
    pub is_watched: bool,
}

/// The handler's side of the socket.
pub(crate) struct Inbox {
    pub socket: OwnedFd,
    /// True once the establisher has ended and every connection it sent has arrived.
    pub is_over: bool,
}

/// Sends a connection. One system call.
///
/// # Errors
/// A bug of Inrush.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    handover: Handover,
    connection: BorrowedFd<'_>,
) -> io::Result<Sent> {
    passing::send(socket, &[IoSlice::new(&handover.encode())], &[connection])
}

/// Receives a connection. One system call.
///
/// # Errors
/// A message of another program.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Taken> {
    let mut bytes = [0; BYTES];
    let Some(received) = passing::receive(socket, &mut [IoSliceMut::new(&mut bytes)])? else {
        return Ok(Taken::Nothing);
    };
    match received.bytes {
        0 => Ok(Taken::End),
        BYTES => Ok(Taken::One(Handover::decode(&bytes), received.descriptors.into_iter().next())),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message of another program")),
    }
}

impl Handover {
    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.intended.0.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.sent.0.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.request.0.to_ne_bytes());
        bytes[20..24].copy_from_slice(&self.unsent.to_ne_bytes());
        bytes[24] = u8::from(self.measured);
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Handover {
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]));
        let short = |at: usize| u32::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]));
        Handover {
            intended: Nanos(long(0)),
            sent: Nanos(long(8)),
            request: RequestId(short(16)),
            unsent: short(20),
            measured: bytes[24] != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const SOME: Handover =
        Handover { intended: Nanos(1), sent: Nanos(2), request: RequestId(3), unsent: 4, measured: true };

    proptest! {
        #[test]
        fn what_is_sent_is_what_is_received(
            intended: u64, sent: u64, request: u32, unsent: u32, measured: bool,
        ) {
            let request = RequestId(request);
            let handover =
                Handover { intended: Nanos(intended), sent: Nanos(sent), request, unsent, measured };
            prop_assert_eq!(Handover::decode(&handover.encode()), handover);
        }
    }

    #[test]
    fn a_connection_goes_on_at_the_other_end() {
        let (ours, theirs) = passing::pair().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        assert!(matches!(receive(theirs.as_fd()).unwrap(), Taken::Nothing));
        assert_eq!(send(ours.as_fd(), SOME, far.as_fd()).unwrap(), Sent::Yes);
        drop((far, ours));
        let Taken::One(handover, Some(socket)) = receive(theirs.as_fd()).unwrap() else {
            panic!("it was sent")
        };
        assert_eq!(handover, SOME);
        UnixStream::from(socket).write_all(b"here").unwrap();
        let mut said = String::new();
        near.read_to_string(&mut said).unwrap();
        assert_eq!(said, "here", "and nobody else has it open");
        assert!(matches!(receive(theirs.as_fd()).unwrap(), Taken::End));
    }

    #[test]
    fn a_full_socket_and_a_closed_one_are_told_apart() {
        let (ours, theirs) = passing::pair().unwrap();
        let (_near, far) = UnixStream::pair().unwrap();
        while send(ours.as_fd(), SOME, far.as_fd()).unwrap() == Sent::Yes {}
        drop(theirs);
        assert_eq!(send(ours.as_fd(), SOME, far.as_fd()).unwrap(), Sent::Gone);
    }
}
