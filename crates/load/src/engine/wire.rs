//! A connection to the target, with or without TLS: one byte stream for all engines, over either transport.
//!
//! `tls` is the TLS state of a connection, and `transport` the client's TCP: kernel sockets or TCP in user space.
//!
//! Leaves out HTTP: `receive` reads replies from a wire. Nothing in this file blocks. Sending tells whether a connection is
//! established, without a system call that asks.

mod tls;
pub(crate) mod transport;

use std::io;

use record::Outcome;
use sys::errno::{Failure, classify};

use crate::measurement::recorder::Handshake;
use crate::plan::choices::tls::Tls;
use tls::{TlsConnection, is_about_protocol};
use transport::Transport;

/// A connection to the target, or an attempt at one.
pub(crate) struct Wire<S> {
    pub socket: S,
    tls: Option<Box<TlsConnection>>,
}

impl<S> Wire<S> {
    /// A connection that is being established; with `tls` for a target that speaks TLS.
    pub fn new(socket: S, tls: Option<&Tls>) -> Wire<S> {
        Wire { socket, tls: tls.map(|tls| Box::new(TlsConnection::new(tls))) }
    }

    /// Sends a part of `bytes` and returns its length; 0 without room. With TLS all bytes are taken, and
    /// [`Wire::is_behind`] returns true while the transport has not taken them.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send<T: Transport<Socket = S>>(&mut self, transport: &mut T, bytes: &[u8]) -> io::Result<usize> {
        let sent = match &mut self.tls {
            None => transport.send(&self.socket, bytes),
            Some(tls) => tls.send(transport, &self.socket, bytes),
        };
        match sent {
            Err(error) if classify(&error) == Failure::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    /// Begins the TLS handshake of an established connection without sending data.
    ///
    /// # Errors
    /// The connection failed.
    pub fn greet<T: Transport<Socket = S>>(&mut self, transport: &mut T) -> io::Result<()> {
        if self.tls.is_some() { self.send(transport, &[]).map(drop) } else { Ok(()) }
    }

    /// Returns true for an established connection, whose small segments are sent without delay from here on.
    /// Begins its TLS handshake.
    ///
    /// # Errors
    /// The connection failed.
    pub fn open<T: Transport<Socket = S>>(&mut self, transport: &mut T) -> io::Result<bool> {
        let opened = match &mut self.tls {
            None => transport.established(&self.socket),
            Some(tls) => tls.send(transport, &self.socket, &[]).map(drop),
        };
        match opened {
            Err(error) if classify(&error) == Failure::WouldBlock => Ok(false),
            opened => opened.map(|()| true),
        }
    }

    /// Returns true while the TLS handshake is not complete.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Returns true if HTTP/2 may be spoken: without TLS, or if the server chose it.
    pub fn allows_http2(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.chose_http2())
    }

    /// Returns true while sent bytes wait for the transport.
    pub fn is_behind(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Passes the waiting bytes to the transport, and returns the number of bytes that it has taken.
    ///
    /// # Errors
    /// The connection failed.
    pub fn catch_up<T: Transport<Socket = S>>(&mut self, transport: &mut T) -> io::Result<usize> {
        self.tls.as_mut().map_or(Ok(0), |tls| tls.flush(transport, &self.socket))
    }

    /// Receives available bytes, none at the end; `None` without available bytes.
    ///
    /// # Errors
    /// The outcome of the connection's failure.
    pub fn receive<'b, T: Transport<Socket = S>>(
        &'b mut self,
        transport: &'b mut T,
        scratch: &'b mut [u8],
    ) -> Result<Option<&'b [u8]>, Outcome> {
        let received = match &mut self.tls {
            None => transport.receive(&self.socket, scratch),
            Some(tls) => tls.receive(transport, &self.socket, scratch),
        };
        match received {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if is_about_protocol(&error) => Err(Outcome::NotHttp2),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Outcome::TlsFailed),
            Err(_) => Err(Outcome::Reset),
        }
    }

    /// A TLS handshake that has just completed; returned once.
    pub fn handshake_ended(&mut self) -> Option<Handshake> {
        self.tls.as_mut()?.handshake_ended()
    }

    /// Returns true if an event on a connection that awaits nothing can be ignored: a TLS server sends
    /// tickets at any time.
    pub fn is_quiet<T: Transport<Socket = S>>(&mut self, transport: &mut T, scratch: &mut [u8]) -> bool {
        self.tls.is_some() && matches!(self.receive(transport, scratch), Ok(None))
    }
}
