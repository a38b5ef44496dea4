//! Poll requests on an io_uring: readiness reported as completions. One call submits requests and waits.
//!
//! The kernel gets no memory but the rings, which the ring's owner keeps.

use std::io;
use std::os::fd::RawFd;

use base::Nanos;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// Maximum requests collected before a submission.
const SUBMISSIONS: u32 = 256;
/// Capacity of the ring in completions. The kernel keeps further ones until there is room.
const COMPLETIONS: u32 = 4096;
/// The completion of a removal, which the ring ignores.
const REMOVAL: u64 = u64::MAX;

/// A ring for poll requests only, used by the thread that made it.
pub struct PollRing {
    ring: IoUring,
    /// Removals have been collected since the last call.
    removals: bool,
}

/// The report of a poll request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The name given to the request.
    pub data: u64,
    /// [`crate::readiness::poll::bits`], or the error number: ECANCELED if the request was removed.
    pub outcome: Result<i16, i32>,
    /// The request stays active and will report again.
    pub more: bool,
}

impl PollRing {
    /// A ring whose work is done only when its thread waits, and that reports pending work (`io_uring_setup`,
    /// SINGLE_ISSUER and DEFER_TASKRUN: Linux 6.1).
    ///
    /// # Errors
    /// ENOSYS, EPERM (`kernel.io_uring_disabled`), EINVAL (an older kernel), EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<PollRing> {
        Ok(PollRing { ring: ring(SUBMISSIONS, COMPLETIONS)?, removals: false })
    }

    /// Requests a report each time one of the bits becomes true, and at once if one is true. No other active
    /// request may have the name `data`, and it must not be the largest number.
    ///
    /// # Errors
    /// The errors of [`submit_and_wait`](Self::submit_and_wait), if there was no room to collect the request.
    pub fn add(&mut self, fd: RawFd, bits: i16, data: u64) -> io::Result<()> {
        let bits = u32::from(bits as u16);
        self.push(&opcode::PollAdd::new(Fd(fd), bits).multi(true).build().user_data(data))
    }

    /// Ends a request with the next call that submits.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add).
    pub fn remove(&mut self, data: u64) -> io::Result<()> {
        let quiet = squeue::Flags::SKIP_SUCCESS;
        self.removals = true;
        // POLL_REMOVE would give up (EALREADY) if a report of the request is just being made.
        self.push(&opcode::AsyncCancel::new(data).build().user_data(REMOVAL).flags(quiet))
    }

    fn push(&mut self, request: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: poll requests name descriptors and requests by number and point to no memory.
            if unsafe { self.ring.submission().push(request) }.is_ok() {
                return Ok(());
            }
            if let Err(error) = self.ring.submit()
                && error.raw_os_error() != Some(libc::EAGAIN)
            {
                return Err(error);
            }
        }
    }

    /// Submits the collected requests and waits for a completion (`io_uring_enter`). `None` waits forever.
    ///
    /// # Errors
    /// EINTR, ENOMEM.
    pub fn submit_and_wait(&mut self, timeout: Option<Nanos>) -> io::Result<()> {
        let immediate = timeout == Some(Nanos::ZERO);
        if std::mem::take(&mut self.removals) || immediate {
            // The file of a removed request is released when this thread returns from the kernel. That must
            // happen before the thread sleeps, or a closed connection would not end until another event.
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

    /// Submits the collected requests and does the pending work, without sleeping.
    fn submit_only(&mut self) -> io::Result<()> {
        unless_over(self.ring.submit())?;
        // The submission may leave work for another call, and the ring reports that.
        if self.ring.submission().taskrun() { unless_over(self.ring.submit()) } else { Ok(()) }
    }

    /// Takes the completions that have arrived.
    pub fn completed(&mut self) -> impl Iterator<Item = Completed> {
        self.ring.completion().filter(|entry| entry.user_data() != REMOVAL).map(|entry| Completed {
            data: entry.user_data(),
            outcome: if entry.result() < 0 { Err(-entry.result()) } else { Ok(entry.result() as i16) },
            more: cqueue::more(entry.flags()),
        })
    }
}

/// Makes a ring whose work is done only in calls of its thread, and that reports pending work (`io_uring_setup`).
pub(crate) fn ring(submissions: u32, completions: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(completions).setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    builder.build(submissions)
}

/// Treats three errors as ordinary ends of a call: the timeout has passed, completions must be taken before more requests can
/// be submitted, or the kernel is short of memory for a moment.
pub(crate) fn unless_over<T>(entered: io::Result<T>) -> io::Result<()> {
    match entered {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EBUSY | libc::EAGAIN)) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}
