//! poll(2), over an array that the caller keeps.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use base::Nanos;
use rustix::event::Timespec;

use crate::check;

/// Event bits, as `poll(2)` names them.
pub mod bits {
    /// Readable.
    pub const IN: i16 = libc::POLLIN;
    /// Writable.
    pub const OUT: i16 = libc::POLLOUT;
    /// Error; always reported.
    pub const ERR: i16 = libc::POLLERR;
    /// Hang-up; always reported.
    pub const HUP: i16 = libc::POLLHUP;
    /// The peer closed its sending side.
    pub const RDHUP: i16 = libc::POLLRDHUP;
    /// Not an open descriptor; always reported.
    pub const NVAL: i16 = libc::POLLNVAL;
}

/// One member of the interest set.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct PollFd(libc::pollfd);

impl PollFd {
    /// A descriptor and the bits to wait for.
    pub fn new(fd: RawFd, bits: i16) -> PollFd {
        PollFd(libc::pollfd { fd, events: bits, revents: 0 })
    }

    /// The descriptor's number.
    pub fn fd(&self) -> RawFd {
        self.0.fd
    }

    /// The bits that the last call reported.
    pub fn reported(&self) -> i16 {
        self.0.revents
    }

    /// Changes the bits to wait for.
    pub fn set_bits(&mut self, bits: i16) {
        self.0.events = bits;
    }
}

/// Returns a time for the calls of rustix.
pub fn timespec(time: Nanos) -> Timespec {
    Timespec {
        tv_sec: (time.0 / Nanos::SECOND.0).try_into().unwrap_or(i64::MAX),
        tv_nsec: (time.0 % Nanos::SECOND.0) as i64,
    }
}

/// Waits until a descriptor of the set is ready (`ppoll`). Returns the number of descriptors with a report.
/// `None` waits forever.
///
/// # Errors
/// EINTR, EINVAL (more descriptors than the limit), ENOMEM.
pub fn wait(set: &mut [PollFd], timeout: Option<Nanos>) -> io::Result<usize> {
    let timeout = timeout.map(crate::timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (first, count) = (set.as_mut_ptr().cast::<libc::pollfd>(), set.len() as libc::nfds_t);
    // SAFETY: `PollFd` is transparent over `pollfd`, the kernel writes within the slice, `timeout` is
    // null or lives through the call, and no signal mask is given.
    let ready = check(unsafe { libc::ppoll(first, count, timeout, std::ptr::null()) })?;
    Ok(ready as usize)
}

/// Tells whether a descriptor is readable: it has bytes, or a connection waits in its accept queue.
pub fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::new(descriptor.as_raw_fd(), bits::IN)];
    matches!(wait(&mut set, Some(Nanos::ZERO)), Ok(1))
}
