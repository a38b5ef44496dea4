//! Signals that one thread waits for and that never interrupt another.

use std::io;

use base::Nanos;

use crate::{check, timespec};

/// The signals that a server handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: stop after finishing the work under way.
    Terminate,
    /// SIGINT: the same, from a terminal.
    Interrupt,
    /// SIGHUP: reopen log files.
    HangUp,
    /// SIGUSR2: hand over to a newer program.
    Upgrade,
}

/// The sender of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The kernel, for the terminal: every process of the foreground group got the signal.
    Terminal,
    /// A process that sent the signal to this process alone.
    Process,
}

const WAITED_FOR: [(libc::c_int, Signal); 4] = [
    (libc::SIGTERM, Signal::Terminate),
    (libc::SIGINT, Signal::Interrupt),
    (libc::SIGHUP, Signal::HangUp),
    (libc::SIGUSR2, Signal::Upgrade),
];

fn waited_for() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, sigaddset changes it; both fail only for signals that do not
    // exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for (number, _) in WAITED_FOR {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        set.assume_init()
    }
}

/// Blocks the waited-for signals in this thread and in all threads that it starts later. Call it before
/// starting the first of them. From then on only [`wait`] sees the signals.
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

/// Unblocks the waited-for signals in a child process that is about to execute another program.
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

/// Waits for one of the signals that [`block`] has blocked. Returns `None` when the timeout passes. A timeout
/// of `None` waits forever. Blocks.
///
/// # Errors
/// None in practice: the function waits again after EINTR.
pub fn wait(timeout: Option<Nanos>) -> io::Result<Option<Signal>> {
    Ok(wait_with_origin(timeout)?.map(|(signal, _)| signal))
}

/// Waits as [`wait`] does, and returns the signal's sender too (`si_code`).
///
/// # Errors
/// The errors of [`wait`].
pub fn wait_with_origin(timeout: Option<Nanos>) -> io::Result<Option<(Signal, Origin)>> {
    let set = waited_for();
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        let number = match timeout.map(timespec) {
            // SAFETY: the three structures live through the call, which writes `info` only.
            Some(timeout) => unsafe { libc::sigtimedwait(&set, info.as_mut_ptr(), &timeout) },
            // SAFETY: as above.
            None => unsafe { libc::sigwaitinfo(&set, info.as_mut_ptr()) },
        };
        match check(number) {
            Ok(number) => {
                // SAFETY: zeroed before, and the kernel has filled it in; it consists of integers.
                let code = unsafe { info.assume_init() }.si_code;
                let origin = if code == libc::SI_KERNEL { Origin::Terminal } else { Origin::Process };
                let known = WAITED_FOR.iter().find(|(known, _)| *known == number);
                return Ok(known.map(|(_, signal)| (*signal, origin)));
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}
