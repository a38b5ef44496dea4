//! A socket to the target, with or without TLS: one way to send and to receive for all engines.
//!
//! Never waits. A socket that is not connected yet is found out by sending, which saves asking.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use record::Outcome;
use rustix::net::{RecvFlags, SendFlags};
use sys::errno::{Failure, classify};

use crate::tls::{Handshake, Tls, TlsConnection};

/// A connection to the target, or an attempt at one.
pub(crate) struct Wire {
    pub socket: OwnedFd,
    tls: Option<Box<TlsConnection>>,
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Wire {
    /// A socket that is connecting, to a target that speaks TLS or not.
    pub fn new(socket: OwnedFd, tls: Option<&Tls>) -> Wire {
        Wire { socket, tls: tls.map(|tls| Box::new(TlsConnection::new(tls))) }
    }

    /// Sends a part of it, and says how much; none where the socket takes none. With TLS all of it is taken,
    /// and [`Wire::is_behind`] says whether the socket took it too.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let sent = match &mut self.tls {
                None => rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL).map_err(io::Error::from),
                Some(tls) => tls.send(&self.socket, bytes),
            };
            match sent {
                Ok(sent) => return Ok(sent),
                Err(error) => match classify(&error) {
                    Failure::Retry => {}
                    Failure::WouldBlock => return Ok(0),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Begins the TLS handshake of a connection that says nothing yet.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn greet(&mut self) -> io::Result<()> {
        if self.tls.is_some() { self.send(&[]).map(drop) } else { Ok(()) }
    }

    /// Whether something that was sent waits for the socket to take it.
    pub fn is_behind(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Has the socket take what waits.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn catch_up(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&self.socket))
    }

    /// Receives what there is, 0 at the end; `None` where there is nothing.
    ///
    /// # Errors
    /// How the connection has failed.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Outcome> {
        loop {
            let received = match &mut self.tls {
                None => rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::empty())
                    .map(|(received, _)| received)
                    .map_err(io::Error::from),
                Some(tls) => tls.receive(&self.socket, buffer),
            };
            match received {
                Ok(received) => return Ok(Some(received)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(Outcome::TlsFailed),
                Err(error) => match classify(&error) {
                    Failure::Retry => {}
                    _ => return Err(Outcome::Reset),
                },
            }
        }
    }

    /// The end of the TLS handshake, told once.
    pub fn handshake_ended(&mut self) -> Option<Handshake> {
        self.tls.as_mut()?.handshake_ended()
    }

    /// Whether an event on a connection that awaits nothing says nothing to us: the target's tickets come
    /// when they like.
    pub fn is_quiet(&mut self, buffer: &mut [u8]) -> bool {
        self.tls.is_some() && matches!(self.receive(buffer), Ok(None))
    }
}
