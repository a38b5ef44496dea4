//! Poll requests on an io_uring: readiness reported as completions. Submitting and waiting are one call.
//!
//! No memory is lent to the kernel but the rings, which the ring's owner keeps.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// Requests that are collected before they must be submitted.
const SUBMISSIONS: u32 = 256;
/// Completions the ring holds; the kernel keeps more for itself until there is room.
const COMPLETIONS: u32 = 4096;
/// The completion of a removal, which nobody waits for.
const REMOVAL: u64 = u64::MAX;

/// A ring used for poll requests only, by the thread that made it.
pub struct PollRing {
    ring: IoUring,
    /// Removals have been collected since the last call.
    removals: bool,
}

/// What a poll request reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The name the request was given.
    pub data: u64,
    /// [`crate::poll::bits`], or the error number: ECANCELED where the request was removed.
    pub outcome: Result<i16, i32>,
    /// The request goes on, and will report again.
    pub more: bool,
}

impl PollRing {
    /// A ring whose work is done only when its thread waits (`io_uring_setup`, SINGLE_ISSUER and
    /// DEFER_TASKRUN: Linux 6.1), and that says when there is some.
    ///
    /// # Errors
    /// ENOSYS, EPERM (`kernel.io_uring_disabled`), EINVAL (an older kernel), EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<PollRing> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        let ring = builder.build(SUBMISSIONS)?;
        Ok(PollRing { ring, removals: false })
    }

    /// Asks for a report each time one of the bits becomes true, and at once if one is, under a name that
    /// is in use for no other request and not the largest number.
    ///
    /// # Errors
    /// As [`submit_and_wait`](Self::submit_and_wait), where there was no room to collect the request.
    pub fn add(&mut self, fd: RawFd, bits: i16, data: u64) -> io::Result<()> {
        let bits = u32::from(bits as u16);
        self.push(&opcode::PollAdd::new(Fd(fd), bits).multi(true).build().user_data(data))
    }

    /// Ends a request, with the next call that submits.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn remove(&mut self, data: u64) -> io::Result<()> {
        let quiet = squeue::Flags::SKIP_SUCCESS;
        self.removals = true;
        // Not POLL_REMOVE: it gives up (EALREADY) where a report of the request is just being made.
        self.push(&opcode::AsyncCancel::new(data).build().user_data(REMOVAL).flags(quiet))
    }

    fn push(&mut self, request: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: poll requests name descriptors and requests by number and point to no memory.
            if unsafe { self.ring.submission().push(request) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    /// Submits what was collected and waits for a completion (`io_uring_enter`). `None` waits for ever.
    ///
    /// # Errors
    /// EINTR, ENOMEM.
    pub fn submit_and_wait(&mut self, timeout: Option<Nanos>) -> io::Result<()> {
        let immediate = timeout == Some(Nanos::ZERO);
        if std::mem::take(&mut self.removals) || immediate {
            // The file of a removed request is put down when this thread returns from the kernel: before
            // it sleeps there, or a closed connection would not end until something else happens.
            self.submit_only()?;
            if immediate || !self.ring.completion().is_empty() {
                return Ok(());
            }
        }
        let entered = match timeout.map(std::time::Duration::from).map(Timespec::from) {
            None => self.ring.submit_and_wait(1),
            Some(timeout) => self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout)),
        };
        unless_over(entered)
    }

    /// Submits what was collected and does the work that waits for it, without sleeping.
    fn submit_only(&mut self) -> io::Result<()> {
        unless_over(self.ring.submit())?;
        // The submission may leave work to be done by another call, and says so in the ring.
        if self.ring.submission().taskrun() { unless_over(self.ring.submit()) } else { Ok(()) }
    }

    /// Takes the completions that have come.
    pub fn completed(&mut self) -> impl Iterator<Item = Completed> {
        self.ring.completion().filter(|entry| entry.user_data() != REMOVAL).map(|entry| Completed {
            data: entry.user_data(),
            outcome: if entry.result() < 0 { Err(-entry.result()) } else { Ok(entry.result() as i16) },
            more: cqueue::more(entry.flags()),
        })
    }
}

/// The time is over, or completions must be taken before more can be submitted: ordinary ends of a call.
fn unless_over(entered: io::Result<usize>) -> io::Result<()> {
    match entered {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EBUSY)) => Ok(()),
        Err(error) => Err(error),
    }
}
