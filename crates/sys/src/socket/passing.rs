//! Descriptors beside bytes (SCM_RIGHTS), over Unix sockets that keep messages separate and in order (SEQPACKET).
//!
//! Nothing here blocks. When the process of one end has ended, the other end is told.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Maximum number of descriptors in a message: the kernel's SCM_MAX_FD.
pub const MOST_DESCRIPTORS: usize = 253;

/// The result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The message is on its way.
    Yes,
    /// The socket is full for now, or too many descriptors of this user are under way.
    Full,
    /// The other end has closed.
    Gone,
}

/// A message that has arrived.
#[derive(Debug, Default)]
pub struct Received {
    /// The number of its bytes; 0 when the other end has closed.
    pub bytes: usize,
    /// Its descriptors.
    pub descriptors: Vec<OwnedFd>,
    /// Some of its descriptors were lost because this process has no free one.
    pub truncated: bool,
}

/// Makes both ends of a socket.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends a message of at least one byte.
///
/// # Errors
/// EMSGSIZE for a message that is too large, which is a bug of the caller.
pub fn send(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<Sent> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    let fits = descriptors.is_empty() || beside.push(SendAncillaryMessage::ScmRights(descriptors));
    if !fits || descriptors.len() > MOST_DESCRIPTORS {
        return Err(Errno::MSGSIZE.into());
    }
    loop {
        return match sendmsg(socket, parts, &mut beside, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(Sent::Yes),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => Ok(Sent::Full),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(Sent::Gone),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Returns the next message, whose bytes are then in `parts`; `None` if none waits.
///
/// # Errors
/// ENOMEM.
pub fn receive(socket: BorrowedFd<'_>, parts: &mut [IoSliceMut<'_>]) -> io::Result<Option<Received>> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut room);
    let message = loop {
        match recvmsg(socket, parts, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => break message,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::CONNRESET) => return Ok(Some(Received::default())),
            Err(errno) => return Err(errno.into()),
        }
    };
    let truncated = message.flags.contains(ReturnFlags::CTRUNC);
    let mut received = Received { bytes: message.bytes, truncated, ..Received::default() };
    for part in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            received.descriptors.extend(descriptors);
        }
    }
    Ok(Some(received))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn a_descriptor_arrives_with_its_bytes_and_works() {
        let (ours, theirs) = pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let sent = send(ours.as_fd(), &[IoSlice::new(b"to "), IoSlice::new(b"you")], &[writer.as_fd()]);
        assert_eq!(sent.unwrap(), Sent::Yes);
        drop(writer);
        let mut bytes = [0; 16];
        let received = receive(theirs.as_fd(), &mut [IoSliceMut::new(&mut bytes)]).unwrap().unwrap();
        assert_eq!((&bytes[..received.bytes], received.truncated), (&b"to you"[..], false));
        let [descriptor] = received.descriptors.try_into().unwrap();
        std::fs::File::from(descriptor).write_all(b"through it").unwrap();
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "through it");
    }

    #[test]
    fn an_end_that_is_closed_full_or_empty_is_told() {
        let (ours, theirs) = pair().unwrap();
        let mut bytes = [0; 16];
        assert!(receive(theirs.as_fd(), &mut [IoSliceMut::new(&mut bytes)]).unwrap().is_none());
        let mut results = std::iter::repeat_with(|| send(ours.as_fd(), &[IoSlice::new(b"x")], &[]).unwrap());
        assert_eq!(results.find(|sent| *sent != Sent::Yes), Some(Sent::Full));
        drop(theirs);
        // A process that another test has just forked keeps its copy of `theirs` until it ends.
        poll(&mut [PollFd::new(&ours, PollFlags::empty())], None).unwrap();
        assert_eq!(send(ours.as_fd(), &[IoSlice::new(b"x")], &[]).unwrap(), Sent::Gone);
        assert_eq!(receive(ours.as_fd(), &mut [IoSliceMut::new(&mut bytes)]).unwrap().unwrap().bytes, 0);
        let many = vec![ours.as_fd(); MOST_DESCRIPTORS + 1];
        let error = send(ours.as_fd(), &[IoSlice::new(b"x")], &many).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }
}
