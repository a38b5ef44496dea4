//! Signal-driven I/O: descriptors that announce their events by a queued real-time signal (`fcntl(2)`,
//! F_SETSIG), and two ways to fetch the queue.
//!
//! The signals go to one thread, which must have them blocked ([`block`]): they are only ever fetched. When
//! the queue is full (RLIMIT_SIGPENDING, counted per user) the kernel raises SIGIO instead, which is
//! fetched like the others.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use base::Nanos;

use crate::thread::Thread;
use crate::{check, timespec};

/// Of `asm-generic/fcntl.h`, which the C library's binding leaves out.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// One announcement, as fetched from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// Something happened to a descriptor: its number, and [`crate::poll::bits`].
    Event(RawFd, i16),
    /// The queue was full: events have been lost since.
    Overflow,
}

/// The signal that descriptors raise. The first real-time one is left to others.
fn number() -> libc::c_int {
    libc::SIGRTMIN() + 1
}

fn both() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, sigaddset changes it; both only fail for signals that do
    // not exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), number());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGIO);
        set.assume_init()
    }
}

/// Blocks the signals in the calling thread and in those it starts later (`pthread_sigmask`).
///
/// # Errors
/// None in practice.
pub fn block() -> io::Result<()> {
    let set = both();
    // SAFETY: `set` lives through the call; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// A descriptor that reads the queue of whichever thread reads it (`signalfd`); does not block.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub fn queue() -> io::Result<OwnedFd> {
    let set = both();
    // SAFETY: `set` lives through the call, which only reads it.
    let fd = check(unsafe { libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) })?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a descriptor's announcements to a thread (F_SETOWN_EX).
///
/// # Errors
/// EBADF; ESRCH where the thread has ended.
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

/// Begins or ends a descriptor's announcements (FIOASYNC: O_ASYNC without asking for the other flags).
/// False where it cannot announce anything: an eventfd, a regular file.
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

/// One place for the queue to be read into.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Place(libc::signalfd_siginfo);

impl Place {
    /// A place for the kernel to write to.
    pub fn empty() -> Place {
        // SAFETY: a structure of numbers, for which zeroes are valid.
        Place(unsafe { std::mem::zeroed() })
    }

    /// What was announced.
    pub fn announced(&self) -> Announced {
        if self.0.ssi_signo == libc::SIGIO as u32 {
            return Announced::Overflow;
        }
        Announced::Event(self.0.ssi_fd, self.0.ssi_band as i16)
    }
}

/// Fetches announcements, overflow first, then in their order, into the front of `places` (`read`);
/// returns how many. Fewer than there are places means that the queue was empty then.
///
/// # Errors
/// None in practice.
pub fn fetch(queue: BorrowedFd<'_>, places: &mut [Place]) -> io::Result<usize> {
    let (room, length) = (places.as_mut_ptr().cast(), size_of_val(places));
    // SAFETY: `Place` is transparent over signalfd_siginfo, and the kernel writes whole ones of them, no
    // more than fit into the slice.
    let read = unsafe { libc::read(queue.as_raw_fd(), room, length) };
    if read >= 0 {
        return Ok(read as usize / size_of::<Place>());
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        error => Err(error),
    }
}

/// The kernel's siginfo for SI_SIGIO on 64-bit machines.
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

/// Fetches one announcement (`sigtimedwait`); `None` when the time is over. `None` as time-out waits for
/// ever. Blocks.
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
        Ok(libc::SIGIO) => Ok(Some(Announced::Overflow)),
        Ok(_) => {
            // SAFETY: numbers only: the zeroes it began with are valid, and so is what the kernel wrote.
            let info = unsafe { info.assume_init() };
            Ok(Some(Announced::Event(info.fd, info.band as i16)))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
