//! Sending under TLS: HTTP's output becomes records, and records leave by sendmsg(2).
//!
//! The kernel cannot encipher what it sends from a file, so the driver first reads a part of the file into its scratch
//! memory. It enciphers more only when all records have left. A connection therefore holds at most [`RECORDS_BYTES`] of
//! records.
//!
//! HTTP learns that bytes have left as their records do, so its timeout for a peer that takes nothing still works. It
//! learns of the last byte when the last record has left.

use std::io::{self, IoSlice, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use http_semantics::FileRange;
use http1::server::Transmit;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::{Moved, REQUESTS_PER_TURN, TURN_BYTES, ended_by};
use crate::machine::{Layer, Lent, Machine, Tls};
use crate::socket_service::SocketService;

/// The most bytes enciphered at once: two records of the greatest length, which halves the system calls of one record
/// at a time.
const RECORDS_BYTES: u64 = 32 * 1024;

/// The records of a session on their way to a socket.
struct Outlet<'a> {
    socket: BorrowedFd<'a>,
    flags: SendFlags,
}

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.socket, bytes, self.flags)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(self.socket, parts, &mut SendAncillaryBuffer::default(), self.flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends until the machine has nothing more, the socket takes no more, or the turn is over.
pub fn send<S: SocketService>(
    socket: BorrowedFd<'_>,
    machine: &mut Machine,
    lent: &mut Lent<'_, S>,
) -> Moved {
    let mut left = TURN_BYTES;
    let requests = lent.context.counts.requests;
    loop {
        if let Err(ended) = flush(socket, machine, lent) {
            return ended;
        }
        super::fill(machine, lent);
        if !matches!(machine.http.transmit(), Transmit::Nothing)
            && (left == 0 || lent.context.counts.requests - requests >= REQUESTS_PER_TURN)
        {
            return Moved::TurnOver;
        }
        match encipher(machine, lent, left.min(RECORDS_BYTES)) {
            Enciphered::Bytes(count) => left -= count,
            Enciphered::Nothing if machine.say_goodbye() => {}
            Enciphered::Nothing => return Moved::AsFarAsPossible,
            Enciphered::CutShort => machine.cut_short(&mut lent.context),
            Enciphered::Unreadable(errno) => {
                if let Some(ended) = ended_by(errno) {
                    return ended;
                }
            }
        }
    }
}

/// Writes records to the socket until none waits, and tells HTTP which bytes have left.
fn flush<S: SocketService>(
    socket: BorrowedFd<'_>,
    machine: &mut Machine,
    lent: &mut Lent<'_, S>,
) -> Result<(), Moved> {
    let Tls::Layer(layer) = &mut machine.tls else { return Ok(()) };
    while layer.session.wants_write() {
        let more = if layer.more { SendFlags::MORE } else { SendFlags::empty() };
        let mut outlet = Outlet { socket, flags: SendFlags::NOSIGNAL | more };
        match layer.session.write_to(&mut outlet) {
            Ok(count) => {
                let count = layer.contents_of(count as u64);
                machine.http.transmitted(count, &mut lent.http());
            }
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                ended_by(errno).map_or(Ok(()), Err)?;
            }
        }
    }
    Ok(())
}

impl Layer {
    /// Returns the bytes of HTTP that have left with `records` bytes of records. Records are longer than their
    /// contents, so the last byte waits for the end of the last record.
    fn contents_of(&mut self, records: u64) -> u64 {
        let count = match self.session.wants_write() {
            true => records.min(self.owed.saturating_sub(1)),
            false => self.owed,
        };
        self.owed -= count;
        count
    }
}

/// The result of enciphering HTTP's output.
enum Enciphered {
    /// This number of its bytes is in records.
    Bytes(u64),
    /// HTTP has no output now.
    Nothing,
    /// The file ended before its range.
    CutShort,
    /// The file cannot be read.
    Unreadable(Errno),
}

/// Makes records of the next `most` bytes. No record is waiting.
fn encipher<S: SocketService>(machine: &mut Machine, lent: &mut Lent<'_, S>, most: u64) -> Enciphered {
    let Tls::Layer(layer) = &mut machine.tls else { return Enciphered::Nothing };
    let (plain, more): (&[u8], bool) = match machine.http.transmit() {
        Transmit::Nothing => return Enciphered::Nothing,
        Transmit::Bytes { bytes, more } => (&bytes[..bytes.len().min(most as usize)], more),
        Transmit::File { range, length, more } => {
            let count = lent.context.service.sendable(range, length.min(most)) as usize;
            if count == 0 {
                return Enciphered::Nothing;
            }
            match read(range, count, lent.scratch) {
                Ok(0) => return Enciphered::CutShort,
                Ok(count) => (&lent.scratch[..count], more),
                Err(errno) => return Enciphered::Unreadable(errno),
            }
        }
    };
    layer.session.send(plain);
    layer.owed = plain.len() as u64;
    layer.more = more;
    Enciphered::Bytes(layer.owed)
}

/// Reads at most `count` bytes from the start of a range, bounded by the length of `scratch`.
fn read(range: &FileRange<Arc<OwnedFd>>, count: usize, scratch: &mut [u8]) -> Result<usize, Errno> {
    let count = count.min(scratch.len());
    rustix::io::pread(&*range.file, &mut scratch[..count], range.offset)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;

    use http_semantics::server::Wants;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use tls::{Files, Material, Sessions};

    use super::super::end;
    use super::super::tests::{Bench, REQUEST};
    use super::*;
    use crate::simulation::http2_requests;

    /// Bytes that a client takes at once: some records of several.
    const SOME_BYTES: usize = 64 * 1024;

    /// A connection over TLS, and its client.
    struct Secured {
        bench: Bench,
        client: ClientConnection,
        /// `close_notify` has come.
        ended_well: bool,
    }

    impl Secured {
        /// The handshake is complete.
        fn new(protocol: &str) -> Secured {
            let folder = tempfile::tempdir().unwrap();
            let files = Files {
                certificate: folder.path().join("own.crt"),
                key: folder.path().join("own.key"),
                ocsp: None,
                host: None,
            };
            let key = KeyPair::generate().unwrap();
            let made = CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
            fs::write(&files.certificate, made.pem()).unwrap();
            fs::write(&files.key, key.serialize_pem()).unwrap();
            let sessions = Sessions::new(Material::read(&[files]).unwrap()).unwrap();
            let mut roots = RootCertStore::empty();
            roots.add(made.der().clone()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let mut config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![protocol.into()];
            let name = ServerName::try_from("a.test").unwrap();
            let client = ClientConnection::new(Arc::new(config), name).unwrap();
            let bench = Bench::with_tls(Some(sessions));
            let mut this = Secured { bench, client, ended_well: false };
            while this.client.is_handshaking() {
                this.say(&[]);
                this.take();
            }
            this
        }

        /// The client sends bytes, and the connection has a turn.
        fn say(&mut self, bytes: &[u8]) {
            self.client.writer().write_all(bytes).unwrap();
            while self.client.wants_write() {
                self.client.write_tls(&mut self.bench.client).unwrap();
            }
            self.bench.turn(true);
        }

        /// The client takes some bytes. Returns true if there were any.
        fn take(&mut self) -> bool {
            let mut bytes = vec![0; SOME_BYTES];
            let count = self.bench.client.read(&mut bytes).unwrap_or(0);
            let mut rest = &bytes[..count];
            while !rest.is_empty() {
                self.client.read_tls(&mut rest).unwrap();
                self.client.process_new_packets().unwrap();
                self.ended_well |= self.client.reader().read_to_end(&mut Vec::new()).is_ok();
            }
            count > 0
        }
    }

    #[test]
    fn stalled_response_is_cut_off_without_close_notify() {
        let cold = b"GET /cold HTTP/1.1\r\nHost: test\r\n\r\n";
        for (protocol, request, has_records) in [
            ("http/1.1", REQUEST.to_vec(), true),
            ("h2", http2_requests(&["/"]), true),
            ("http/1.1", cold.to_vec(), false),
            ("h2", http2_requests(&["/cold"]), false),
        ] {
            let mut peer = Secured::new(protocol);
            peer.say(&request);
            assert_eq!(
                (peer.bench.machine.wants(), peer.bench.machine.has_bytes()),
                (Wants::Transmit, has_records)
            );
            assert!(peer.take(), "the socket has room again, and no turn has come");
            peer.bench.now = peer.bench.machine.deadline();
            peer.bench.lending(|_, machine, lent| machine.expire(lent));
            assert_eq!(peer.bench.turn(true), Moved::AsFarAsPossible);
            assert_eq!(peer.bench.machine.wants(), Wants::Close);
            peer.bench.lending(end);
            while peer.take() {}
            assert!(!peer.ended_well, "{protocol}, records: {has_records}");
        }
    }

    #[test]
    fn complete_response_ends_with_close_notify() {
        let mut peer = Secured::new("http/1.1");
        peer.say(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        while peer.take() {
            peer.bench.turn(false);
        }
        assert!(peer.ended_well);
        assert_eq!(peer.bench.machine.wants(), Wants::ShutdownThenReceive);
    }
}
