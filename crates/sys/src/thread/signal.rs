//! Signals that one thread waits for and that never interrupt another.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use base::{Clock, Nanos, RealClock};

use crate::{check, timespec};

/// The signals that a server handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: stop after finishing the work under way.
    Terminate,
    /// SIGINT: the same, from a terminal.
    Interrupt,
    /// SIGHUP: read the configuration and the certificates again, and reopen log files.
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
    set_of(WAITED_FOR.map(|(number, _)| number))
}

/// A set of signals.
pub(crate) fn set_of<const COUNT: usize>(numbers: [libc::c_int; COUNT]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, sigaddset changes it; both fail only for signals that do not
    // exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in numbers {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        set.assume_init()
    }
}

/// Blocks (SIG_BLOCK) or unblocks (SIG_UNBLOCK) signals in the calling thread (`pthread_sigmask`).
pub(crate) fn mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `set` lives through the call; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// A descriptor that reads the blocked signals of the reading thread (`signalfd`). It does not block.
pub(crate) fn descriptor(set: &libc::sigset_t) -> io::Result<OwnedFd> {
    // SAFETY: `set` lives through the call, which only reads it.
    let fd = check(unsafe { libc::signalfd(-1, set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) })?;
    // SAFETY: the kernel has just returned this descriptor, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Blocks the waited-for signals in this thread and in all threads that it starts later. Call it before
/// starting the first of them. From then on only [`wait`] sees the signals.
///
/// # Errors
/// None in practice.
pub fn block() -> io::Result<()> {
    mask(libc::SIG_BLOCK, &waited_for())
}

/// Tells whether this process was started with SIGHUP ignored, as by nohup(1). A blocked signal arrives all the same.
fn ignores_hang_up() -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the present one, which lives through it.
    let answer = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeros are an action as well.
    answer == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Unblocks the waited-for signals in a child process that is about to execute another program.
///
/// # Errors
/// None in practice.
pub fn unblock() -> io::Result<()> {
    mask(libc::SIG_UNBLOCK, &waited_for())
}

/// Waits for one of the signals that [`block`] has blocked. Returns `None` when the timeout passes. A timeout
/// of `None` waits forever. Blocks.
///
/// # Errors
/// None in practice: the function waits for the rest of the timeout after EINTR.
pub fn wait(timeout: Option<Nanos>) -> io::Result<Option<Signal>> {
    Ok(wait_with_origin(timeout)?.map(|(signal, _)| signal))
}

/// Waits as [`wait`] does, and returns the signal's sender too (`si_code`).
///
/// # Errors
/// The errors of [`wait`].
pub fn wait_with_origin(timeout: Option<Nanos>) -> io::Result<Option<(Signal, Origin)>> {
    let (set, clock) = (waited_for(), RealClock::new());
    let until = timeout.map(|timeout| clock.now().saturating_add(timeout));
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        let number = match until.map(|until| timespec(until.saturating_sub(clock.now()))) {
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

/// Waits as [`wait_with_origin`] does, and returns `None` for a SIGHUP that nohup(1) has this process ignore.
///
/// # Errors
/// The errors of [`wait`].
pub fn wait_heeding_nohup(timeout: Option<Nanos>) -> io::Result<Option<(Signal, Origin)>> {
    let received = wait_with_origin(timeout)?;
    Ok(received.filter(|(signal, _)| *signal != Signal::HangUp || !ignores_hang_up()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{Thread, interruptible};

    #[test]
    fn interruptions_do_not_prolong_a_wait() {
        interruptible().unwrap();
        let (name, named) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            name.send(Thread::current()).unwrap();
            wait(Some(Nanos::from_millis(50))).unwrap()
        });
        let waiting = named.recv().unwrap();
        while !waiter.is_finished() {
            // Fails once the thread has ended.
            let _ = waiting.interrupt();
            crate::readiness::poll::wait(&mut [], Some(Nanos::MILLISECOND)).unwrap();
        }
        assert_eq!(waiter.join().unwrap(), None);
    }
}
