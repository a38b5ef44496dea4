//! The receive buffers of clients that read slowly.
//!
//! A connection advertises the free room of its buffer as its window. The server thus notices slow reading,
//! as it does with a small buffer of a kernel socket.

use std::collections::{HashMap, VecDeque};
use std::io;

use dispatch::Token;
use rustix::io::Errno;
use usertcp::{Failure, Kind, Window};

use super::error;

/// The buffers of all connections.
pub(super) struct SlowReads {
    bytes: u32,
    buffers: HashMap<Token, Buffer>,
}

/// Bytes that one connection has received and its client has not read.
pub(super) struct Buffer {
    unread: VecDeque<u8>,
    has_ended: bool,
    failure: Option<Failure>,
    /// True if the client wants events.
    pub is_watched: bool,
}

impl SlowReads {
    /// Buffers of this size.
    pub fn new(bytes: u32) -> SlowReads {
        SlowReads { bytes, buffers: HashMap::new() }
    }

    /// The window of a new connection.
    pub fn window(&self) -> Window {
        Window::Granted(self.bytes)
    }

    /// The buffer of a connection, created on first use.
    pub fn buffer(&mut self, token: Token) -> &mut Buffer {
        self.buffers.entry(token).or_insert_with(|| Buffer {
            unread: VecDeque::new(),
            has_ended: false,
            failure: None,
            is_watched: true,
        })
    }

    /// Drops the buffer of a closed connection.
    pub fn forget(&mut self, token: Token) {
        self.buffers.remove(&token);
    }
}

impl Buffer {
    /// Stores an event and its bytes; returns true if the client wants the event.
    pub fn take(&mut self, kind: Kind, bytes: &[u8]) -> bool {
        match kind {
            Kind::Received => self.unread.extend(bytes),
            Kind::Ended => self.has_ended = true,
            Kind::Failed(failure) => self.failure = Some(failure),
            Kind::Established | Kind::HasRoom => {}
        }
        self.is_watched
    }

    /// Reads available bytes, at most `scratch.len()`; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` without bytes; the error of the connection.
    pub fn read(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        let length = self.unread.len().min(scratch.len());
        for (place, byte) in scratch.iter_mut().zip(self.unread.drain(..length)) {
            *place = byte;
        }
        match (length, self.failure, self.has_ended) {
            (0, Some(failure), _) => Err(error(failure)),
            (0, None, false) => Err(Errno::AGAIN.into()),
            (length, ..) => Ok(length),
        }
    }
}
