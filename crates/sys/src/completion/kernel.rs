//! The border to the kernel: an operation goes in, and reports come out.
//!
//! Owns the two queues. Leaves the memory of operations to its user: an operation names an address, which must stay valid
//! until its last report. [`Uring`] is the kernel's own; a test may put another one in its place.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

use crate::readiness::uring_poll::ring;

/// Maximum operations that one system call submits.
pub(super) const SUBMISSIONS: u32 = 1024;
/// Capacity of the ring in reports. The kernel keeps further ones until there is room.
const REPORTS: u32 = 8192;
/// The group of all receive buffers of a ring.
const GROUP: u16 = 0;

/// The name of an operation that reports only its failure, which changes nothing.
pub const QUIET: u64 = u64::MAX;

/// An operation, as the kernel sees it.
#[derive(Clone, Copy, Debug)]
pub enum Submission {
    /// Accepts one connection, or each until it is cancelled.
    Accept {
        /// The listening socket.
        listener: RawFd,
        /// It goes on after a report.
        each: bool,
    },
    /// Receives into a buffer that the kernel chooses.
    Receive {
        /// The socket.
        socket: RawFd,
        /// It goes on after a report.
        each: bool,
        /// The size of a buffer.
        room: u32,
    },
    /// Sends bytes.
    Send {
        /// The socket.
        socket: RawFd,
        /// The first byte.
        address: *const u8,
        /// The number of bytes.
        length: u32,
    },
    /// Reports once when one of the [`crate::readiness::poll::bits`] is true.
    Poll {
        /// The descriptor.
        fd: RawFd,
        /// The bits.
        bits: i16,
    },
    /// Ends the operation of this name.
    Cancel(u64),
    /// Ends every operation.
    CancelAll,
    /// Closes a descriptor.
    Close(RawFd),
}

/// The result of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The operation's name.
    pub name: u64,
    /// The result, or an error number below 0.
    pub result: i32,
    /// Further reports follow.
    pub more: bool,
    /// The receive buffer that holds the bytes.
    pub buffer: Option<u16>,
}

/// The time that a call may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// It returns at once.
    Never,
    /// It returns after a report, or after this time.
    For(Nanos),
    /// It returns after a report.
    UntilReport,
}

/// Carries out operations.
pub trait Kernel {
    /// Takes the ring of entries that name free receive buffers.
    ///
    /// # Errors
    /// EINVAL before Linux 5.19, ENOMEM.
    ///
    /// # Safety
    /// `entries` has room for `count` entries, is aligned to a page, and stays valid while operations are in flight.
    unsafe fn register(&mut self, entries: *mut BufRingEntry, count: u16) -> io::Result<()>;

    /// Puts an operation into the submission queue. Returns false if that is full.
    ///
    /// # Safety
    /// The memory of a send stays valid and unchanged until its report.
    unsafe fn push(&mut self, name: u64, submission: &Submission) -> bool;

    /// True while operations are in the submission queue, or the kernel has something to report that it does only in a
    /// call of [`Kernel::enter`].
    fn has_work(&mut self) -> bool;

    /// Hands over the submission queue, does pending work, and sleeps for a report (`io_uring_enter`).
    ///
    /// # Errors
    /// The errors of `io_uring_enter`, such as EINTR, ETIME and EBUSY.
    fn enter(&mut self, sleep: Sleep) -> io::Result<()>;

    /// True if a report can be taken.
    fn has_reports(&mut self) -> bool;

    /// Takes a report.
    fn next(&mut self) -> Option<Report>;

    /// True while there are reports that the queue has no room for.
    fn has_overflowed(&mut self) -> bool;
}

/// The kernel's io_uring. Its work is done only in calls of its thread (SINGLE_ISSUER, DEFER_TASKRUN).
pub struct Uring(IoUring);

impl Uring {
    /// Makes the queues (`io_uring_setup`).
    ///
    /// # Errors
    /// ENOSYS, EPERM (`kernel.io_uring_disabled`), EINVAL (before Linux 6.1), EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Uring> {
        Ok(Uring(ring(SUBMISSIONS, REPORTS)?))
    }
}

impl Kernel for Uring {
    unsafe fn register(&mut self, entries: *mut BufRingEntry, count: u16) -> io::Result<()> {
        // SAFETY: the caller keeps the entries.
        unsafe { self.0.submitter().register_buf_ring_with_flags(entries as u64, count, GROUP, 0) }
    }

    unsafe fn push(&mut self, name: u64, submission: &Submission) -> bool {
        // SAFETY: the caller keeps the memory that the entry points to.
        unsafe { self.0.submission().push(&entry(submission).user_data(name)) }.is_ok()
    }

    fn has_work(&mut self) -> bool {
        let queue = self.0.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn enter(&mut self, sleep: Sleep) -> io::Result<()> {
        let entered = match sleep {
            Sleep::Never => self.0.submit(),
            Sleep::UntilReport => self.0.submit_and_wait(1),
            Sleep::For(time) => {
                let time = Timespec::from(std::time::Duration::from(time));
                self.0.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        entered.map(drop)
    }

    fn has_reports(&mut self) -> bool {
        !self.0.completion().is_empty()
    }

    fn next(&mut self) -> Option<Report> {
        let entry = self.0.completion().next()?;
        let (flags, result) = (entry.flags(), entry.result());
        let (more, buffer) = (cqueue::more(flags), cqueue::buffer_select(flags));
        Some(Report { name: entry.user_data(), result, more, buffer })
    }

    fn has_overflowed(&mut self) -> bool {
        self.0.submission().cq_overflow()
    }
}

/// The kernel's form of an operation.
fn entry(submission: &Submission) -> Entry {
    let nothing = std::ptr::null_mut();
    match *submission {
        Submission::Accept { listener, each } => {
            let (listener, flags) = (Fd(listener), libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
            if each {
                opcode::AcceptMulti::new(listener).flags(flags).build()
            } else {
                opcode::Accept::new(listener, nothing, std::ptr::null_mut()).flags(flags).build()
            }
        }
        Submission::Receive { socket, each: true, .. } => opcode::RecvMulti::new(Fd(socket), GROUP).build(),
        Submission::Receive { socket, each: false, room } => {
            let receive = opcode::Recv::new(Fd(socket), nothing.cast(), room).buf_group(GROUP);
            receive.build().flags(Flags::BUFFER_SELECT)
        }
        Submission::Send { socket, address, length } => {
            opcode::Send::new(Fd(socket), address, length).flags(libc::MSG_NOSIGNAL).build()
        }
        Submission::Poll { fd, bits } => opcode::PollAdd::new(Fd(fd), u32::from(bits as u16)).build(),
        Submission::Cancel(name) => opcode::AsyncCancel::new(name).build().flags(Flags::SKIP_SUCCESS),
        Submission::CancelAll => opcode::AsyncCancel2::new(CancelBuilder::any().all()).build(),
        Submission::Close(fd) => opcode::Close::new(Fd(fd)).build().flags(Flags::SKIP_SUCCESS),
    }
}
