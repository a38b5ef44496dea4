//! Signal-driven I/O: descriptors that announce their events by a queued real-time signal (`fcntl(2)`,
//! F_SETSIG), and two ways to fetch the queue.
//!
//! The signals go to one thread, which must have blocked them ([`block`]): they are only ever fetched. If the
//! queue is full (RLIMIT_SIGPENDING, counted per user), the kernel raises SIGIO instead, which is fetched
//! like the others.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use base::Nanos;

use crate::thread::{Thread, signal};
use crate::{check, timespec};

/// Constants of `asm-generic/fcntl.h` that the C library's binding lacks.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// Codes of `asm-generic/siginfo.h`: those of a signal that a descriptor has raised, from readable to
/// hang-up. Only the kernel sends signals with a positive code to other processes.
const POLL_IN: libc::c_int = 1;
const POLL_HUP: libc::c_int = 6;

/// One announcement, as fetched from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// An event of a descriptor: its number and [`crate::readiness::poll::bits`].
    Event(RawFd, i16),
    /// The queue was full: events have been lost.
    Overflow,
    /// No event: a process has sent the signal, with arbitrary contents.
    Foreign,
}

impl Announced {
    /// The announcement of a fetched signal. A SIGIO of any sender is believed, because a pending SIGIO swallows the
    /// kernel's.
    fn by(number: libc::c_int, code: libc::c_int, fd: RawFd, band: i64) -> Announced {
        if number == libc::SIGIO {
            return Announced::Overflow;
        }
        match code {
            POLL_IN..=POLL_HUP => Announced::Event(fd, band as i16),
            _ => Announced::Foreign,
        }
    }
}

/// The signal that descriptors raise. The first real-time signal is left to others.
fn number() -> libc::c_int {
    libc::SIGRTMIN() + 1
}

fn both() -> libc::sigset_t {
    signal::set_of([number(), libc::SIGIO])
}

/// Blocks the signals in the calling thread and in those it starts later (`pthread_sigmask`).
///
/// # Errors
/// None in practice.
pub fn block() -> io::Result<()> {
    signal::mask(libc::SIG_BLOCK, &both())
}

/// A descriptor that reads the queue of the reading thread (`signalfd`). It does not block.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub fn queue() -> io::Result<OwnedFd> {
    signal::descriptor(&both())
}

/// Sends a descriptor's announcements to a thread (F_SETOWN_EX).
///
/// # Errors
/// EBADF; ESRCH if the thread has ended.
pub fn set_owner(fd: RawFd, thread: Thread) -> io::Result<()> {
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        id: libc::pid_t,
    }
    let owner = Owner { kind: F_OWNER_TID, id: thread.id() };
    // SAFETY: `owner` has the layout of f_owner_ex and lives through the call, which only reads it.
    check(unsafe { libc::fcntl(fd, F_SETOWN_EX, &owner) }).map(drop)
}

/// Makes a descriptor announce events by the queued signal, with its number (F_SETSIG).
///
/// # Errors
/// EBADF.
pub fn set_signal(fd: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::fcntl(fd, F_SETSIG, number()) }).map(drop)
}

/// Begins or ends a descriptor's announcements (FIOASYNC: O_ASYNC without changing the other flags). Returns
/// false if the descriptor cannot announce events, such as an eventfd or a regular file. A file whose announcements
/// are on keeps the number of the descriptor by which they began, in every process that has the file open.
///
/// # Errors
/// EBADF.
pub fn announce(fd: RawFd, on: bool) -> io::Result<bool> {
    let on = libc::c_int::from(on);
    // SAFETY: `on` lives through the call, which only reads it.
    match check(unsafe { libc::ioctl(fd, libc::FIOASYNC, &on) }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A buffer for one announcement from the queue.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Place(libc::signalfd_siginfo);

impl Place {
    /// An empty buffer for the kernel to write to.
    pub fn empty() -> Place {
        // SAFETY: a structure of numbers, for which zeroes are valid.
        Place(unsafe { std::mem::zeroed() })
    }

    /// The announcement in the buffer.
    pub fn announced(&self) -> Announced {
        let info = &self.0;
        Announced::by(info.ssi_signo as libc::c_int, info.ssi_code, info.ssi_fd, info.ssi_band.into())
    }
}

/// Fetches announcements into the front of `places` (`read`), the overflow first, the others in their order.
/// Returns their number. A number below the length of `places` means that the queue was then empty.
///
/// # Errors
/// None in practice.
pub fn fetch(queue: BorrowedFd<'_>, places: &mut [Place]) -> io::Result<usize> {
    let (room, length) = (places.as_mut_ptr().cast(), size_of_val(places));
    // SAFETY: `Place` is transparent over signalfd_siginfo. The kernel writes whole structures of that type,
    // no more than fit into the slice.
    let read = unsafe { libc::read(queue.as_raw_fd(), room, length) };
    if read >= 0 {
        return Ok(read as usize / size_of::<Place>());
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        error => Err(error),
    }
}

/// The kernel's siginfo for a signal that a descriptor has raised, on 64-bit machines.
#[repr(C)]
struct PollInfo {
    number: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    _align: libc::c_int,
    band: libc::c_long,
    fd: libc::c_int,
    _rest: [u8; 100],
}

const _: () = assert!(size_of::<PollInfo>() == size_of::<libc::siginfo_t>());

/// Fetches one announcement (`sigtimedwait`). Returns `None` when the timeout passes. A timeout of `None`
/// waits forever. Blocks.
///
/// # Errors
/// EINTR.
pub fn fetch_one(timeout: Option<Nanos>) -> io::Result<Option<Announced>> {
    let set = both();
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut info = MaybeUninit::<PollInfo>::zeroed();
    // SAFETY: `info` has the size of siginfo_t, `set` and `timeout` (or null) live through the call.
    let number = unsafe { libc::sigtimedwait(&set, info.as_mut_ptr().cast(), timeout) };
    match check(number) {
        Ok(number) => {
            // SAFETY: the structure consists of numbers: its initial zeroes are valid, and so are the
            // kernel's values.
            let info = unsafe { info.assume_init() };
            Ok(Some(Announced::by(number, info.code, info.fd, info.band)))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

    use super::*;

    /// Sends this thread the signal with a value that looks like a descriptor.
    fn send() {
        let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(1 << 30) };
        // SAFETY: the thread is this one; the value is only ever a number.
        assert_eq!(unsafe { libc::pthread_sigqueue(libc::pthread_self(), number(), value) }, 0);
    }

    #[test]
    fn a_code_that_any_process_may_send_is_foreign() {
        // SI_SIGIO of `asm-generic/siginfo.h`.
        assert_eq!(Announced::by(number(), -5, -1, 1), Announced::Foreign);
    }

    #[test]
    fn sent_signal_differs_from_a_descriptors_signal() {
        block().unwrap();
        let queue = queue().unwrap();
        let (ours, peer) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        set_owner(ours.as_raw_fd(), Thread::current()).unwrap();
        set_signal(ours.as_raw_fd()).unwrap();
        assert!(announce(ours.as_raw_fd(), true).unwrap());
        for _ in 0..2 {
            send();
            rustix::net::send(&peer, b"x", SendFlags::NOSIGNAL).unwrap();
        }
        let mut places = [Place::empty(); 2];
        assert_eq!(fetch(queue.as_fd(), &mut places).unwrap(), 2);
        let fetched = [Some(places[0].announced()), Some(places[1].announced())];
        for [sent, raised] in [fetched, [(); 2].map(|()| fetch_one(Some(Nanos::ZERO)).unwrap())] {
            assert_eq!(sent, Some(Announced::Foreign));
            assert!(
                matches!(raised, Some(Announced::Event(fd, bits)) if fd == ours.as_raw_fd() && bits & crate::readiness::poll::bits::IN != 0),
                "{raised:?}"
            );
        }
    }
}
