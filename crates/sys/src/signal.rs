//! Signals as something one thread waits for, never as something that interrupts.

use std::io;

use base::Nanos;

use crate::{check, timespec};

/// The signals a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: stop, finishing what is under way.
    Terminate,
    /// SIGINT: the same, from a terminal.
    Interrupt,
    /// SIGHUP: open log files anew.
    HangUp,
}

const WAITED_FOR: [(libc::c_int, Signal); 3] =
    [(libc::SIGTERM, Signal::Terminate), (libc::SIGINT, Signal::Interrupt), (libc::SIGHUP, Signal::HangUp)];

fn waited_for() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, sigaddset changes it; both only fail for signals that do
    // not exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for (number, _) in WAITED_FOR {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        set.assume_init()
    }
}

/// Blocks the waited-for signals in this thread and in all that it starts later: to be called before
/// the first of them. From then on they are seen by [`wait`] only.
///
/// # Errors
/// None in practice.
pub fn block() -> io::Result<()> {
    let set = waited_for();
    // SAFETY: `set` lives through the call; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Lets the waited-for signals through again, for a child process about to become another program.
///
/// # Errors
/// None in practice.
pub fn unblock() -> io::Result<()> {
    let set = waited_for();
    // SAFETY: `set` lives through the call; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Waits for one of the signals, blocked before by [`block`]; `None` when the time is over. `None` as
/// time-out waits for ever. Blocks.
///
/// # Errors
/// None in practice: EINTR is waited through.
pub fn wait(timeout: Option<Nanos>) -> io::Result<Option<Signal>> {
    let set = waited_for();
    loop {
        let number = match timeout.map(timespec) {
            // SAFETY: both structures live through the call; no siginfo is asked for.
            Some(timeout) => unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &timeout) },
            // SAFETY: as above.
            None => unsafe { libc::sigwaitinfo(&set, std::ptr::null_mut()) },
        };
        match check(number) {
            Ok(number) => {
                return Ok(WAITED_FOR.iter().find(|(known, _)| *known == number).map(|(_, signal)| *signal));
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}
