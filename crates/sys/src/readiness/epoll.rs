//! epoll(7), with timeouts in nanoseconds.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use base::Nanos;

use crate::{check, timespec};

/// Event bits, as `epoll_ctl(2)` names them.
pub mod bits {
    /// Readable.
    pub const IN: u32 = libc::EPOLLIN as u32;
    /// Writable.
    pub const OUT: u32 = libc::EPOLLOUT as u32;
    /// Error; always reported.
    pub const ERR: u32 = libc::EPOLLERR as u32;
    /// Both directions closed; always reported.
    pub const HUP: u32 = libc::EPOLLHUP as u32;
    /// The peer closed its sending side.
    pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
    /// Report changes of state instead of states.
    pub const ET: u32 = libc::EPOLLET as u32;
    /// Wake at least one of the interest sets that share the descriptor, not all of them.
    pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
}

/// A change of the interest set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// EPOLL_CTL_ADD
    Add,
    /// EPOLL_CTL_MOD
    Modify,
    /// EPOLL_CTL_DEL
    Delete,
}

/// One reported event: the bits and the 64 bits given at registration.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Event(libc::epoll_event);

impl Event {
    /// A buffer for the kernel to write an event to.
    pub const EMPTY: Event = Event(libc::epoll_event { events: 0, u64: 0 });

    /// The event bits.
    pub fn bits(&self) -> u32 {
        self.0.events
    }

    /// The 64 bits given at registration.
    pub fn data(&self) -> u64 {
        self.0.u64
    }
}

/// A new, empty interest set (`epoll_create1`, close-on-exec).
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub fn create() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the kernel has just returned this descriptor, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Changes one descriptor's interest (`epoll_ctl`).
///
/// # Errors
/// EEXIST, ENOENT, EBADF, EPERM (a regular file), ENOSPC (max_user_watches), ENOMEM.
pub fn control(epoll: &OwnedFd, operation: Operation, fd: RawFd, bits: u32, data: u64) -> io::Result<()> {
    let operation = match operation {
        Operation::Add => libc::EPOLL_CTL_ADD,
        Operation::Modify => libc::EPOLL_CTL_MOD,
        Operation::Delete => libc::EPOLL_CTL_DEL,
    };
    let mut event = libc::epoll_event { events: bits, u64: data };
    // SAFETY: `event` lives through the call, which only reads it.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &mut event) })?;
    Ok(())
}

/// Waits for events and writes them to the front of `events`. Returns their number. `None` waits forever.
/// `epoll_wait` serves a timeout of zero and `None`; `epoll_pwait2`, which keeps nanoseconds, serves the
/// others.
///
/// # Errors
/// EINTR.
pub fn wait(epoll: &OwnedFd, events: &mut [Event], timeout: Option<Nanos>) -> io::Result<usize> {
    let (room, most) = (events.as_mut_ptr().cast::<libc::epoll_event>(), events.len() as libc::c_int);
    let count = match timeout {
        Some(Nanos(nanos)) if nanos != 0 => {
            let timeout = timespec(Nanos(nanos));
            // SAFETY: `Event` is transparent over `epoll_event`, the kernel writes at most `most` of
            // them into the slice, `timeout` lives through the call, and no signal mask is given. The C library
            // musl has no function for the call.
            let count = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    epoll.as_raw_fd(),
                    room,
                    most,
                    &raw const timeout,
                    std::ptr::null::<libc::sigset_t>(),
                    0_usize,
                )
            };
            count as libc::c_int
        }
        none_or_zero => {
            let millis = if none_or_zero.is_some() { 0 } else { -1 };
            // SAFETY: as above.
            unsafe { libc::epoll_wait(epoll.as_raw_fd(), room, most, millis) }
        }
    };
    Ok(check(count)? as usize)
}
