//! The TLS records of one connection: bytes from the peer become requests, and answers become bytes for the peer.
//!
//! Deviation from rustls' own loop: the driver reads the bytes and hands them over. Plain bytes are passed on record
//! by record, so that a session holds none of them.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use rustls::{HandshakeKind, ServerConfig, ServerConnection};

use crate::names::{Asked, Names};

/// An event in the bytes from the peer.
#[derive(Debug)]
pub enum Event<'a> {
    /// The handshake is complete. Comes once, and before everything else.
    Established {
        /// A ticket of an earlier session shortened the handshake.
        resumed: bool,
        /// The client and the server agreed on HTTP/2 (RFC 9113, 3.2).
        speaks_http2: bool,
        /// The meaning of the name that the client asked for; `None` without one, and on a server of one host.
        asked: Option<Asked>,
    },
    /// Plain bytes from the peer; never empty.
    Bytes(&'a [u8]),
    /// The peer sent `close_notify`. Comes once, and last.
    Ended,
}

/// The server's side of one TLS connection.
pub struct Session {
    tls: ServerConnection,
    names: Arc<Names>,
    ended: bool,
}

impl Session {
    /// # Errors
    /// The configuration cannot be used, which is a bug of Inrush.
    pub(crate) fn new(config: Arc<ServerConfig>, names: Arc<Names>) -> Result<Session, rustls::Error> {
        let mut tls = ServerConnection::new(config)?;
        // The caller of `send` limits the bytes.
        tls.set_buffer_limit(None);
        Ok(Session { tls, names, ended: false })
    }

    /// Tells whether the peer has sent `close_notify`.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Takes bytes from the peer, and reports the events in them. Ignores bytes after `close_notify`.
    ///
    /// # Errors
    /// The peer does not speak TLS, or offers nothing that the server accepts. Then write the waiting alert
    /// ([`Session::wants_write`]), and receive nothing more.
    pub fn receive(
        &mut self,
        mut bytes: &[u8],
        mut tell: impl FnMut(Event<'_>),
    ) -> Result<(), rustls::Error> {
        while !bytes.is_empty() && !self.ended {
            let was_handshaking = self.tls.is_handshaking();
            // A slice gives no error, and the loop below takes the plain bytes out, so there is always room.
            if self.tls.read_tls(&mut bytes).is_err() {
                return Err(rustls::Error::General("a message has no end".to_owned()));
            }
            self.tls.process_new_packets()?;
            if was_handshaking && !self.tls.is_handshaking() {
                let resumed = self.tls.handshake_kind() == Some(HandshakeKind::Resumed);
                let speaks_http2 = self.tls.alpn_protocol() == Some(b"h2");
                let asked = self.tls.server_name().and_then(|name| self.names.asked(name));
                tell(Event::Established { resumed, speaks_http2, asked });
            }
            self.pass_on(&mut tell);
        }
        Ok(())
    }

    fn pass_on(&mut self, tell: &mut impl FnMut(Event<'_>)) {
        let mut reader = self.tls.reader();
        loop {
            let count = match reader.fill_buf() {
                Ok([]) => {
                    self.ended = true;
                    return tell(Event::Ended);
                }
                Ok(plain) => {
                    tell(Event::Bytes(plain));
                    plain.len()
                }
                // No plain bytes are left for now.
                Err(_) => return,
            };
            reader.consume(count);
        }
    }

    /// Makes records of plain bytes. The records wait to be written, so call this only if nothing else is waiting.
    pub fn send(&mut self, plain: &[u8]) {
        // Only a lack of room makes this fail, and the buffer has no limit.
        let _ = self.tls.writer().write_all(plain);
    }

    /// Announces the end of the stream: `close_notify` waits to be written.
    pub fn close(&mut self) {
        self.tls.send_close_notify();
    }

    /// Tells whether records wait to be written.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Writes waiting records in one call, and returns the number of bytes that `out` took.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_to(&mut self, out: &mut dyn Write) -> io::Result<usize> {
        self.tls.write_tls(out)
    }
}

/// Tells whether the first byte of a connection can begin an HTTP request; then it begins no TLS record.
pub fn is_a_request(first: u8) -> bool {
    // A method is a token, and a client may begin with an empty line (RFC 9112, 2.2). TLS begins with 22, or with an
    // SSL 2 length whose high bit is set.
    first.is_ascii_alphabetic() || matches!(first, b'\r' | b'\n')
}
