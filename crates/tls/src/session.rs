//! One connection's records: bytes from the peer in, requests out; answers in, bytes for the peer out.
//!
//! Deviation from rustls' own loop: bytes are handed over as they are read by a driver, and plain bytes are passed on
//! record by record, so that a session holds none of them.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use rustls::{HandshakeKind, ServerConfig, ServerConnection};

/// What a session tells of the bytes that it was given.
#[derive(Debug)]
pub enum Event<'a> {
    /// The handshake is complete; told once, and before everything else.
    Established {
        /// It was short, on the strength of a ticket.
        resumed: bool,
    },
    /// The peer sent these; never empty.
    Bytes(&'a [u8]),
    /// The peer has said that it sends no more; told once, and last.
    Ended,
}

/// The server's side of one TLS connection.
pub struct Session {
    tls: ServerConnection,
    ended: bool,
}

impl Session {
    /// # Errors
    /// The configuration cannot be used, which is our mistake.
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Session, rustls::Error> {
        let mut tls = ServerConnection::new(config)?;
        // Its caller says how much it gives at once.
        tls.set_buffer_limit(None);
        Ok(Session { tls, ended: false })
    }

    /// Whether the peer has said that it sends no more.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Takes bytes that the peer sent, and tells what they mean. What follows the peer's end is not looked at.
    ///
    /// # Errors
    /// The peer does not speak TLS, or offers nothing that is accepted. The alert that says so is to be written
    /// ([`Session::wants_write`]), and nothing is to be received any more.
    pub fn receive(
        &mut self,
        mut bytes: &[u8],
        mut tell: impl FnMut(Event<'_>),
    ) -> Result<(), rustls::Error> {
        while !bytes.is_empty() && !self.ended {
            let was_handshaking = self.tls.is_handshaking();
            // A slice gives no error, and there is always room: plain bytes are taken out below.
            if self.tls.read_tls(&mut bytes).is_err() {
                return Err(rustls::Error::General("a message has no end".to_owned()));
            }
            self.tls.process_new_packets()?;
            if was_handshaking && !self.tls.is_handshaking() {
                let resumed = self.tls.handshake_kind() == Some(HandshakeKind::Resumed);
                tell(Event::Established { resumed });
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
                // Nothing now.
                Err(_) => return,
            };
            reader.consume(count);
        }
    }

    /// Makes records of plain bytes. They wait to be written, so nothing should be waiting when this is called.
    pub fn send(&mut self, plain: &[u8]) {
        // It fails for want of room alone, and has no limit.
        let _ = self.tls.writer().write_all(plain);
    }

    /// Says that nothing more will be sent: `close_notify` waits to be written.
    pub fn close(&mut self) {
        self.tls.send_close_notify();
    }

    /// Whether something waits to be written.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Writes what waits in one call, and gives how many bytes were taken.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&mut self, out: &mut dyn Write) -> io::Result<usize> {
        self.tls.write_tls(out)
    }
}

/// Whether the first byte of a connection can begin a request of HTTP, and no TLS record.
pub fn is_a_request(first: u8) -> bool {
    // A method is a token, and a client may begin with an empty line (RFC 9112, 2.2). TLS begins with 22, or with a length
    // of SSL 2 that has its high bit set.
    first.is_ascii_alphabetic() || matches!(first, b'\r' | b'\n')
}
