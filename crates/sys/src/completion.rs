//! An io_uring as a completion engine: operations on sockets are submitted, and the kernel carries them out.
//!
//! Owns the memory of operations. A send owns its bytes until it completes, and received bytes stay in buffers that the
//! kernel has given back ([`Received`]). An operation has an entry in a table until its last completion, so that a
//! completion names its operation and returns its memory.
//!
//! Invariants: an operation is collected without a system call; [`CompletionRing::submit`] hands all of them to the kernel.
//! Completions appear only during a call of `submit` or `wait` (DEFER_TASKRUN). The ring belongs to the thread that made
//! it (SINGLE_ISSUER). Dropping the ring ends all operations before it frees their memory.

mod buffers;
mod kernel;
#[cfg(feature = "simulation")]
mod refused;
#[cfg(feature = "simulation")]
mod simulated;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use base::{Key, Nanos, Slab};
use rustix::io::Errno;

use crate::readiness::uring_poll;
use buffers::Buffers;
pub use buffers::{BUFFER_BYTES, Received};
pub use kernel::{Kernel, Uring};
use kernel::{QUIET, Report, Sleep, Submission};
#[cfg(feature = "simulation")]
pub use refused::refuse_rings;
#[cfg(feature = "simulation")]
pub use simulated::{Faults, SimulatedKernel};

/// A ring for operations on sockets, used by the thread that made it.
pub struct CompletionRing<K: Kernel = Uring> {
    kernel: K,
    buffers: Buffers,
    /// Operations in flight: those collected, and those that the kernel has.
    operations: Slab<Operation>,
    /// The bytes of sends in flight, which belong to the kernel. They have a table of their own, because an idle
    /// connection has a receive in flight and no send.
    sends: Slab<Vec<u8>>,
    /// Operations that the submission queue had no room for, oldest first.
    backlog: VecDeque<(u64, Submission)>,
    overflows: u64,
}

/// An operation in flight. Every idle connection has one, and an aligned name would take 8 bytes more.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Operation {
    /// The caller's name for it.
    name: u64,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Accept,
    Receive,
    /// The place of its bytes.
    Send(Key),
    Poll,
}

/// The report of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The caller's name for the operation.
    pub name: u64,
    /// The operation itself.
    pub operation: Key,
    /// The operation stays in flight and will report again.
    pub more: bool,
    /// The result.
    pub done: Done,
}

/// The result of an operation. Each can be ECANCELED.
#[derive(Debug)]
pub enum Done {
    /// A connection, non-blocking.
    Accepted(Result<OwnedFd, Errno>),
    /// Bytes from the peer, or the end of its stream; ENOBUFS if no receive buffer was free.
    Received(Result<Option<Received>, Errno>),
    /// The number of bytes sent, which may be fewer than there were, and their memory.
    Sent(Result<usize, Errno>, Vec<u8>),
    /// The descriptor is ready.
    Ready(Result<(), Errno>),
}

impl CompletionRing {
    /// A ring of the kernel's with its receive buffers.
    ///
    /// # Errors
    /// ENOSYS, EPERM (`kernel.io_uring_disabled`), EINVAL (before Linux 6.1), EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<CompletionRing> {
        CompletionRing::over(Uring::new()?)
    }
}

impl<K: Kernel> CompletionRing<K> {
    /// A ring over a kernel, with its receive buffers.
    ///
    /// # Errors
    /// EINVAL (before Linux 5.19), ENOMEM.
    pub fn over(mut kernel: K) -> io::Result<CompletionRing<K>> {
        let buffers = Buffers::register(&mut kernel)?;
        Ok(CompletionRing {
            kernel,
            buffers,
            operations: Slab::new(),
            sends: Slab::new(),
            backlog: VecDeque::new(),
            overflows: 0,
        })
    }

    /// Accepts one connection, or with `each` every connection until the operation is cancelled.
    pub fn accept(&mut self, listener: BorrowedFd<'_>, each: bool, name: u64) -> Key {
        let listener = listener.as_raw_fd();
        self.begin(Submission::Accept { listener, each }, name, Kind::Accept)
    }

    /// Receives once, or with `each` whenever bytes come, until the end of the stream, an error, or a lack of buffers.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, each: bool, name: u64) -> Key {
        let (socket, room) = (socket.as_raw_fd(), BUFFER_BYTES as u32);
        self.begin(Submission::Receive { socket, each, room }, name, Kind::Receive)
    }

    /// Sends `bytes`, or as many of them as there is room for once there is room for one.
    pub fn send(&mut self, socket: BorrowedFd<'_>, bytes: Vec<u8>, name: u64) -> Key {
        // The heap memory of a vector stays where it is when the vector moves into the table.
        let (socket, address, length) = (socket.as_raw_fd(), bytes.as_ptr(), bytes.len() as u32);
        let bytes = self.sends.insert(bytes);
        self.begin(Submission::Send { socket, address, length }, name, Kind::Send(bytes))
    }

    /// Reports once when one of the [`crate::readiness::poll::bits`] is true.
    pub fn poll(&mut self, fd: BorrowedFd<'_>, bits: i16, name: u64) -> Key {
        self.begin(Submission::Poll { fd: fd.as_raw_fd(), bits }, name, Kind::Poll)
    }

    /// Ends an operation, which then completes with ECANCELED unless it has completed before.
    pub fn cancel(&mut self, operation: Key) {
        self.push(QUIET, Submission::Cancel(kernels_name(operation)));
    }

    /// Closes a socket without operations in flight. With some, the caller shuts it down first: an operation holds its
    /// socket open, and the kernel leaves a shutdown in a ring to a thread of its own.
    pub fn close(&mut self, socket: OwnedFd) {
        self.push(QUIET, Submission::Close(socket.into_raw_fd()));
    }

    fn begin(&mut self, submission: Submission, name: u64, kind: Kind) -> Key {
        let operation = self.operations.insert(Operation { name, kind });
        self.push(kernels_name(operation), submission);
        operation
    }

    fn push(&mut self, name: u64, submission: Submission) {
        // SAFETY: the table of sends owns the memory that an operation names, until its last report is taken.
        if !self.backlog.is_empty() || !unsafe { self.kernel.push(name, &submission) } {
            self.backlog.push_back((name, submission));
        }
    }

    /// Hands all collected operations to the kernel and does the work that is pending (`io_uring_enter`). Never sleeps.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn submit(&mut self) -> io::Result<()> {
        self.overflows += u64::from(self.kernel.has_overflowed());
        loop {
            if self.kernel.has_work() {
                unless_over(self.kernel.enter(Sleep::Never))?;
            }
            let before = self.backlog.len();
            while let Some((name, submission)) = self.backlog.front() {
                // SAFETY: as in `push`.
                if !unsafe { self.kernel.push(*name, submission) } {
                    break;
                }
                self.backlog.pop_front();
            }
            // A full queue that the kernel takes nothing from waits until reports have been taken.
            if self.backlog.len() == before {
                return Ok(());
            }
        }
    }

    /// Waits for a completion (`io_uring_enter`); `None` waits forever. Returns at once if one is there.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn wait(&mut self, timeout: Option<Nanos>) -> io::Result<()> {
        if self.kernel.has_reports() || timeout == Some(Nanos::ZERO) {
            return Ok(());
        }
        unless_over(self.kernel.enter(timeout.map_or(Sleep::UntilReport, Sleep::For)))
    }

    /// Takes the next completion that has arrived.
    pub fn completed(&mut self) -> Option<Completion> {
        loop {
            let report = self.kernel.next()?;
            if report.name != QUIET
                && let Some(completion) = self.complete(report)
            {
                return Some(completion);
            }
        }
    }

    fn complete(&mut self, report: Report) -> Option<Completion> {
        let Report { name, result, more, buffer } = report;
        let operation = Key { index: name as u32, generation: (name >> 32) as u32 };
        let result = match result {
            failed if failed < 0 => Err(Errno::from_raw_os_error(-failed)),
            value => Ok(value),
        };
        let Operation { name, kind } = *self.operations.get(operation)?;
        if !more {
            self.operations.remove(operation);
        }
        let done = match kind {
            // SAFETY: the kernel has just made this descriptor for us.
            Kind::Accept => Done::Accepted(result.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })),
            Kind::Receive => {
                Done::Received(result.map(|length| self.buffers.received(buffer, length as usize)))
            }
            Kind::Poll => Done::Ready(result.map(drop)),
            Kind::Send(_) if more => return None,
            Kind::Send(bytes) => Done::Sent(result.map(|sent| sent as usize), self.sends.remove(bytes)?),
        };
        Some(Completion { name, operation, more, done })
    }

    /// The bytes of a receive.
    pub fn bytes(&self, received: &Received) -> &[u8] {
        self.buffers.bytes(received)
    }

    /// Gives a receive buffer back to the kernel.
    pub fn recycle(&mut self, received: Received) {
        self.buffers.recycle(received);
    }

    /// Number of calls that found completions which the ring had no room for.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Ends every operation and takes its completion.
    fn end_all(&mut self) -> io::Result<()> {
        self.submit()?;
        while !self.operations.is_empty() {
            self.push(QUIET, Submission::CancelAll);
            self.submit()?;
            unless_over(self.kernel.enter(Sleep::UntilReport))?;
            while let Some(completion) = self.completed() {
                if let Done::Received(Ok(Some(received))) = completion.done {
                    self.recycle(received);
                }
            }
        }
        Ok(())
    }
}

impl<K: Kernel> Drop for CompletionRing<K> {
    fn drop(&mut self) {
        if self.end_all().is_err() {
            // The kernel may still use the memory.
            std::mem::forget(std::mem::take(&mut self.sends));
            self.buffers.leak();
        }
    }
}

/// The kernel's name for an operation.
fn kernels_name(operation: Key) -> u64 {
    u64::from(operation.generation) << 32 | u64::from(operation.index)
}

/// Treats four errors as ordinary ends of a call: a signal came, the timeout has passed, completions must be taken before
/// more operations can be submitted, or the kernel is short of memory for a moment.
fn unless_over(entered: io::Result<()>) -> io::Result<()> {
    match entered {
        Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(()),
        entered => uring_poll::unless_over(entered),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A ring; `None`, said on stdout, where the kernel has none.
    fn ring() -> Option<CompletionRing> {
        CompletionRing::new().inspect_err(|error| println!("skipped: io_uring: {error}")).ok()
    }

    fn next(ring: &mut CompletionRing) -> Completion {
        loop {
            ring.submit().unwrap();
            ring.wait(None).unwrap();
            if let Some(completion) = ring.completed() {
                return completion;
            }
        }
    }

    #[test]
    fn bytes_come_and_go_and_memory_returns() {
        let Some(mut ring) = ring() else { return };
        let (mut client, server) = UnixStream::pair().unwrap();
        let receive = ring.receive(server.as_fd(), true, 7);
        for _ in 0..3 * buffers::BUFFERS {
            client.write_all(b"question").unwrap();
            let Completion { name: 7, more: true, done: Done::Received(Ok(Some(received))), .. } =
                next(&mut ring)
            else {
                panic!("received")
            };
            assert_eq!(ring.bytes(&received), b"question");
            ring.recycle(received);
        }
        ring.send(server.as_fd(), b"answer".to_vec(), 8);
        assert!(matches!(next(&mut ring).done, Done::Sent(Ok(6), bytes) if bytes == b"answer"));
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
        ring.cancel(receive);
        let last = next(&mut ring);
        assert!(!last.more && matches!(last.done, Done::Received(Err(Errno::CANCELED))));
    }

    #[test]
    fn receive_without_buffer_ends_and_can_restart() {
        let Some(mut ring) = ring() else { return };
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut held = Vec::new();
        ring.receive(server.as_fd(), true, 1);
        loop {
            client.write_all(b"x").unwrap();
            match next(&mut ring).done {
                Done::Received(Ok(Some(received))) => held.push(received),
                Done::Received(Err(Errno::NOBUFS)) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(held.len(), usize::from(buffers::BUFFERS));
        held.into_iter().for_each(|received| ring.recycle(received));
        ring.receive(server.as_fd(), false, 1);
        assert!(matches!(next(&mut ring).done, Done::Received(Ok(Some(_)))));
    }

    #[test]
    fn operations_beyond_the_queue_are_all_submitted() {
        let Some(mut ring) = ring() else { return };
        let (_client, server) = UnixStream::pair().unwrap();
        let polls = u64::from(2 * kernel::SUBMISSIONS + 3);
        for name in 0..polls {
            ring.poll(server.as_fd(), crate::readiness::poll::bits::OUT, name);
        }
        let mut done: Vec<u64> = (0..polls).map(|_| next(&mut ring).name).collect();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..polls));
    }

    #[test]
    fn close_ends_connection_with_a_receive_in_flight() {
        let Some(mut ring) = ring() else { return };
        let (mut client, server) = UnixStream::pair().unwrap();
        ring.receive(server.as_fd(), true, 1);
        ring.submit().unwrap();
        rustix::net::shutdown(&server, rustix::net::Shutdown::Both).unwrap();
        ring.close(server.into());
        assert!(matches!(next(&mut ring).done, Done::Received(_)));
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
}
