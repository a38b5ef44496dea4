//! The TLS state of a connection.
//!
//! rustls implements the protocol; the transport keeps the connections. A session is set up only after its
//! connection is established, so that an abandoned connect costs no key exchange. Full and resumed handshakes
//! are counted separately, because a full one costs the server ten times as much.
//!
//! A server that chooses another protocol than the offered one is told from a failed handshake.

use std::io::{self, Read, Write};

use rustls::{ClientConnection, HandshakeKind};

use crate::engine::wire::transport::Transport;
use crate::measurement::recorder::Handshake;
use crate::plan::choices::tls::{HTTP2, Tls};

/// The TLS state of one connection.
pub(crate) struct TlsConnection {
    shared: Tls,
    /// `None` until the connection is established.
    session: Option<Box<ClientConnection>>,
    handshaking: bool,
    /// The plaintext of the last read.
    plain: Vec<u8>,
}

impl TlsConnection {
    /// The TLS state of a connection that is being established.
    pub(crate) fn new(shared: &Tls) -> TlsConnection {
        TlsConnection { shared: shared.clone(), session: None, handshaking: true, plain: Vec::new() }
    }

    /// Returns true while encrypted bytes wait for the transport.
    pub(crate) fn wants_write(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.wants_write())
    }

    /// Returns true while the handshake is not complete.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.is_handshaking())
    }

    /// Returns true if the server chose HTTP/2.
    pub(crate) fn chose_http2(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.alpn_protocol() == Some(HTTP2))
    }

    /// A handshake that has just completed; returned once.
    pub(crate) fn handshake_ended(&mut self) -> Option<Handshake> {
        let session =
            self.session.as_ref().filter(|session| self.handshaking && !session.is_handshaking())?;
        self.handshaking = false;
        let group = session.negotiated_key_exchange_group().map(|group| group.name());
        Some(Handshake { resumed: session.handshake_kind() == Some(HandshakeKind::Resumed), group })
    }

    /// Sends all bytes, or none before the connection is established. Bytes that the transport does not take
    /// now wait ([`TlsConnection::wants_write`]).
    ///
    /// # Errors
    /// The transport's errors; [`io::ErrorKind::WouldBlock`] before the connection is established.
    pub(crate) fn send<T: Transport>(
        &mut self,
        transport: &mut T,
        socket: &T::Socket,
        bytes: &[u8],
    ) -> io::Result<usize> {
        if self.session.is_none() {
            // The end of the handshake and the request are two small segments. The second must not wait for
            // the acknowledgment of the first.
            transport.established(socket)?;
            self.session = Some(self.shared.session()?);
        }
        let session = self.session.as_mut().expect("it was set up just now");
        session.writer().write_all(bytes)?;
        flush(session, transport, socket)?;
        Ok(bytes.len())
    }

    /// Sends the waiting bytes, and returns the number of bytes that the transport has taken.
    ///
    /// # Errors
    /// The transport's errors, except a lack of room.
    pub(crate) fn flush<T: Transport>(&mut self, transport: &mut T, socket: &T::Socket) -> io::Result<usize> {
        self.session.as_mut().map_or(Ok(0), |session| flush(session, transport, socket))
    }

    /// Receives the plaintext of one read of the transport; empty at the end.
    ///
    /// # Errors
    /// The transport's errors, among them [`io::ErrorKind::WouldBlock`]; [`io::ErrorKind::InvalidData`] for
    /// bytes that are not TLS or a certificate that is not trusted; [`io::ErrorKind::UnexpectedEof`] for an
    /// end that an attacker may have caused.
    pub(crate) fn receive<T: Transport>(
        &mut self,
        transport: &mut T,
        socket: &T::Socket,
        scratch: &mut [u8],
    ) -> io::Result<&[u8]> {
        let Some(session) = &mut self.session else { return Err(io::ErrorKind::WouldBlock.into()) };
        self.plain.clear();
        let deciphered = decipher(session, transport.receive(socket, scratch)?, &mut self.plain);
        // Sends the handshake's next message, or the alert that names the error.
        let flushed = flush(session, transport, socket);
        if let Err(error) = &deciphered
            && error.kind() == io::ErrorKind::InvalidData
            && !is_about_protocol(error)
        {
            self.shared.note_failure(error);
        }
        let is_end = deciphered?;
        match self.plain.is_empty() && !is_end {
            true => flushed.and(Err(io::ErrorKind::WouldBlock.into())),
            // The next read tells of a connection that failed behind these bytes.
            false => Ok(&self.plain),
        }
    }
}

/// Deciphers received bytes into `plain` and returns true if the server has ended the stream. An empty slice
/// stands for the end of the connection.
fn decipher(session: &mut ClientConnection, mut bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        session.read_tls(&mut bytes)?;
        let processed = session.process_new_packets();
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        match session.reader().read_to_end(plain) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if bytes.is_empty() => return Ok(false),
            Err(_) => {}
        }
    }
}

fn flush<T: Transport>(
    session: &mut ClientConnection,
    transport: &mut T,
    socket: &T::Socket,
) -> io::Result<usize> {
    let mut sent = 0;
    while session.wants_write() {
        match session.write_tls(&mut Outlet(transport, socket)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            written => sent += written?,
        }
    }
    Ok(sent)
}

/// Returns true if the server has none of the protocols that the client offers.
pub(crate) fn is_about_protocol(error: &io::Error) -> bool {
    use rustls::AlertDescription::NoApplicationProtocol;
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(
        cause,
        Some(rustls::Error::NoApplicationProtocol | rustls::Error::AlertReceived(NoApplicationProtocol))
    )
}

/// The connection as rustls writes to it.
struct Outlet<'a, T: Transport>(&'a mut T, &'a T::Socket);

impl<T: Transport> Write for Outlet<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(self.1, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
