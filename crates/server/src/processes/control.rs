//! The control socket: a Unix SEQPACKET pair whose messages carry descriptors.
//!
//! The first byte of a message is its kind. Both ends are non-blocking. If one end's process has ended, the other end
//! sees the end of the stream.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use connection::Custody;
use rustix::fs::{MemfdFlags, memfd_create};
use sys::readiness::poll::{self, PollFd};
use sys::socket::passing;
pub use sys::socket::passing::Sent;

/// Maximum size of a message: enough for any path.
pub const MOST_BYTES: usize = 16 * 1024;

/// The content of the request to drain in a server that has passed its listeners on.
pub(super) const PASSED_ON: &[u8] = b"passed on";

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Start = 1,
    Drain = 2,
    Changed = 3,
    Own = 4,
    Reclaim = 5,
}

/// Bytes and descriptors that an architecture's processes send each other.
#[derive(Debug, Default)]
pub struct Message {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors.
    pub descriptors: Vec<OwnedFd>,
    /// Some of its descriptors were lost because this process has no free one.
    pub truncated: bool,
}

/// The settings in force from now on.
#[derive(Debug)]
pub struct Changed {
    /// The configuration.
    pub text: String,
    /// Certificates, private keys and keys of tickets, under TLS.
    pub secrets: Option<Vec<u8>>,
}

/// A message from the parent to a worker.
#[derive(Debug)]
pub enum Heard {
    /// No message is waiting.
    Nothing,
    /// Take no more connections, finish the open ones, and end.
    Drain,
    /// The configuration or the certificates have changed.
    Changed(Changed),
    /// Close the longest-idle connection, because another needs its place.
    Reclaim,
    /// A message of the architecture.
    Message(Message),
    /// The parent has ended.
    Gone,
}

/// One end of a control socket.
#[derive(Debug)]
pub struct Control {
    socket: OwnedFd,
    /// The buffer that messages arrive in. Clearing a new buffer for each message would cost more than most messages.
    buffer: RefCell<Box<[u8]>>,
    custody: Custody,
}

impl Control {
    fn new(socket: OwnedFd) -> Control {
        Control { socket, buffer: RefCell::new(vec![0; MOST_BYTES].into()), custody: Custody::default() }
    }

    /// Returns the custody of the parent's listening sockets, as far as this end has received it.
    pub fn custody(&self) -> &Custody {
        &self.custody
    }

    /// Makes both ends of a control socket.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn pair() -> io::Result<(Control, Control)> {
        let (one, other) = passing::pair()?;
        Ok((Control::new(one), Control::new(other)))
    }

    /// Takes the end that a process inherited.
    pub fn from_inherited(socket: OwnedFd) -> Control {
        Control::new(socket)
    }

    /// Sends a message of the architecture, of at most `MOST_BYTES` and `passing::MOST_DESCRIPTORS`. Never blocks.
    ///
    /// # Errors
    /// EMSGSIZE, which is a bug of Inrush.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<Sent> {
        self.send_as(Kind::Own, bytes, descriptors)
    }

    pub(super) fn send_as(
        &self,
        kind: Kind,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<Sent> {
        let kind = [kind as u8];
        passing::send(self.socket.as_fd(), &[IoSlice::new(&kind), IoSlice::new(bytes)], descriptors)
    }

    /// Returns the next message to a worker, if there is one. Never blocks.
    ///
    /// # Errors
    /// A garbled message, which is a bug of Inrush.
    pub fn receive(&self) -> io::Result<Heard> {
        match self.receive_any()? {
            Received::Nothing => Ok(Heard::Nothing),
            Received::End => Ok(Heard::Gone),
            Received::Message(Kind::Own, message) => Ok(Heard::Message(message)),
            Received::Message(Kind::Drain, message) => {
                if message.bytes == PASSED_ON {
                    self.custody.pass_on();
                }
                Ok(Heard::Drain)
            }
            Received::Message(Kind::Reclaim, _) => Ok(Heard::Reclaim),
            Received::Message(Kind::Changed, message) if message.truncated => {
                sys::say!("inrush: no descriptor left: a worker process keeps its configuration");
                self.receive()
            }
            Received::Message(Kind::Changed, message) => {
                let mut descriptors = message.descriptors.into_iter();
                let text = read_text(descriptors.next().ok_or_else(garbled)?)?;
                let secrets = descriptors.next().map(read_memory).transpose()?;
                Ok(Heard::Changed(Changed { text, secrets }))
            }
            Received::Message(Kind::Start, _) => Err(garbled()),
        }
    }

    /// Sleeps until a message arrives or a signal interrupts. Blocks.
    pub fn wait(&self) {
        // The caller tries the socket again in any case.
        let _ = poll::wait(&mut [PollFd::new(self.socket.as_raw_fd(), poll::bits::IN)], None);
    }

    pub(super) fn receive_any(&self) -> io::Result<Received> {
        let (mut kind, mut bytes) = ([0], self.buffer.borrow_mut());
        let mut parts = [IoSliceMut::new(&mut kind), IoSliceMut::new(&mut bytes)];
        let Some(received) = passing::receive(self.socket.as_fd(), &mut parts)? else {
            return Ok(Received::Nothing);
        };
        let Some(length) = received.bytes.checked_sub(1) else { return Ok(Received::End) };
        let passing::Received { descriptors, truncated, .. } = received;
        let message = Message { bytes: bytes[..length].to_vec(), descriptors, truncated };
        let known = [Kind::Start, Kind::Drain, Kind::Changed, Kind::Own, Kind::Reclaim];
        let kind = known.into_iter().find(|known| *known as u8 == kind[0]).ok_or_else(garbled)?;
        Ok(Received::Message(kind, message))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The result of reading the socket.
pub(super) enum Received {
    Nothing,
    End,
    Message(Kind, Message),
}

pub(super) fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message that cannot be understood")
}

/// Stores bytes behind a descriptor that can be sent.
pub(super) fn in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = std::fs::File::from(memfd_create("inrush-config", MemfdFlags::CLOEXEC)?);
    file.write_all_at(bytes, 0)?;
    Ok(file.into())
}

/// Reads the bytes that [`in_memory`] stored. Leaves the file position alone, which all holders of the descriptor
/// share.
pub(super) fn read_memory(memory: OwnedFd) -> io::Result<Vec<u8>> {
    let file = std::fs::File::from(memory);
    let length = usize::try_from(file.metadata()?.len()).map_err(|_| garbled())?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Reads the text behind such a descriptor.
pub(super) fn read_text(memory: OwnedFd) -> io::Result<String> {
    String::from_utf8(read_memory(memory)?).map_err(|_| garbled())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn messages_keep_their_bounds_and_their_descriptors() {
        let (one, other) = Control::pair().unwrap();
        assert!(matches!(other.receive().unwrap(), Heard::Nothing));
        let (mut reading, writing) = std::io::pipe().unwrap();
        assert_eq!(one.send(b"take this", &[writing.as_fd()]).unwrap(), Sent::Yes);
        assert_eq!(one.send(b"", &[]).unwrap(), Sent::Yes);
        assert_eq!(one.send_as(Kind::Drain, b"", &[]).unwrap(), Sent::Yes);
        drop(writing);
        let Heard::Message(message) = other.receive().unwrap() else { panic!() };
        assert_eq!((&message.bytes[..], message.descriptors.len()), (&b"take this"[..], 1));
        std::fs::File::from(message.descriptors.into_iter().next().unwrap()).write_all(b"x").unwrap();
        let mut read = String::new();
        reading.read_to_string(&mut read).unwrap();
        assert_eq!(read, "x");
        let Heard::Message(message) = other.receive().unwrap() else { panic!() };
        assert!(message.bytes.is_empty() && message.descriptors.is_empty() && !message.truncated);
        assert!(matches!(other.receive().unwrap(), Heard::Drain));
        drop(one);
        // A process that another test has just forked keeps its copy of `one` until it ends.
        poll(&mut [PollFd::new(&other.socket, PollFlags::empty())], None).unwrap();
        assert!(matches!(other.receive().unwrap(), Heard::Gone));
        assert_eq!(other.send(b"anybody?", &[]).unwrap(), Sent::Gone);
    }

    #[test]
    fn a_full_socket_says_so() {
        let (one, _other) = Control::pair().unwrap();
        let message = [0; MOST_BYTES];
        assert!((0..100_000).any(|_| one.send(&message, &[]).unwrap() == Sent::Full));
    }

    #[test]
    fn a_text_of_any_length_passes_as_a_descriptor() {
        let (one, other) = Control::pair().unwrap();
        let text = "ä".repeat(MOST_BYTES);
        let memory = in_memory(text.as_bytes()).unwrap();
        for _ in 0..2 {
            one.send_as(Kind::Changed, b"", &[memory.as_fd()]).unwrap();
            let Heard::Changed(heard) = other.receive().unwrap() else { panic!() };
            assert!(heard.text == text && heard.secrets.is_none());
        }
        assert!(one.send_as(Kind::Changed, b"", &[]).is_ok() && other.receive().is_err());
    }
}
