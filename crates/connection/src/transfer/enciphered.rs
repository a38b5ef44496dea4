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
