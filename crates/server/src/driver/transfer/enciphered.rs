//! Sending under TLS: output of HTTP becomes records, and records leave by sendmsg(2).
//!
//! The kernel cannot encipher what it sends from a file: a part of a file is read into the driver's scratch memory first.
//! More is enciphered only when all records have left, so a connection holds at most [`RECORDS_BYTES`] of them.
//!
//! HTTP is told that bytes have left as their records do, so its time-out for a peer that takes nothing holds. The last
//! byte is told of when the last record has left.

use std::io::{self, IoSlice, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use http1::FileRange;
use http1::server::Transmit;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::{Moved, REQUESTS_PER_TURN, TURN_BYTES, ended_by};
use crate::driver::machine::{Layer, Lent, Machine, Tls};
use crate::driver::socket_service::SocketService;

/// Bytes enciphered at once: two records of the greatest length, which halves the system calls of one.
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

/// Writes records to the socket until none waits, and tells HTTP of what has left.
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
                let count = layer.told(count as u64);
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
    /// How many bytes of HTTP have left with so many bytes of records. Records are longer than what is in them, so the
    /// last byte waits for the end of the last record.
    fn told(&mut self, records: u64) -> u64 {
        let count = match self.session.wants_write() {
            true => records.min(self.owed.saturating_sub(1)),
            false => self.owed,
        };
        self.owed -= count;
        count
    }
}

/// What became of HTTP's output.
enum Enciphered {
    /// So many bytes of it are in records.
    Bytes(u64),
    /// There is none now.
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
        Transmit::File { range, more } => {
            let count = lent.context.service.sendable(range, range.length.min(most)) as usize;
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

/// Reads the first `count` bytes of a range, or as many as `scratch` holds.
fn read(range: &FileRange<Arc<OwnedFd>>, count: usize, scratch: &mut [u8]) -> Result<usize, Errno> {
    let count = count.min(scratch.len());
    rustix::io::pread(&*range.file, &mut scratch[..count], range.offset)
}
