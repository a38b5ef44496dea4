//! One thread, named to the kernel: who gets a descriptor's signals, who runs first, and whose system call a test
//! interrupts on purpose, to meet EINTR where it is rare.

use std::io;

use crate::check;

/// Names a thread of this process to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(libc::pid_t);

impl Thread {
    /// The calling thread (`gettid`).
    pub fn current() -> Thread {
        // SAFETY: takes no pointer and cannot fail.
        Thread(unsafe { libc::gettid() })
    }

    pub(crate) fn id(self) -> libc::pid_t {
        self.0
    }

    /// Ends the blocking call the thread is in, if it is in one, with EINTR (`tgkill`, SIGURG, which is
    /// ignored until [`interruptible`] was called).
    ///
    /// # Errors
    /// ESRCH: the thread has ended.
    pub fn interrupt(self) -> io::Result<()> {
        // SAFETY: takes no pointer.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGURG) };
        check(sent as libc::c_int).map(drop)
    }
}

/// Has the calling thread run whenever it can, before every thread that is not real-time and before those of a
/// program that is (`sched_setscheduler`, SCHED_FIFO). What it starts later is not. The kernel leaves the others a
/// twentieth of the time (`kernel.sched_rt_runtime_us`).
///
/// # Errors
/// EPERM without CAP_SYS_NICE and RLIMIT_RTPRIO.
pub fn set_real_time() -> io::Result<()> {
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 2)
}

/// Has what the calling thread will start and execute run before every thread that is not real-time; threads of
/// that kind take turns (SCHED_RR). Where it is not allowed, nothing changes. Safe between fork and exec.
pub(crate) fn set_real_time_with_children() {
    let _ = schedule(libc::SCHED_RR, 1);
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: an all-zero sched_param is valid: it is made of integers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: `parameters` lives through the call.
    check(unsafe { libc::sched_setscheduler(0, policy, &parameters) }).map(drop)
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// Makes [`Thread::interrupt`] work in the whole process: installs a handler of SIGURG that does nothing
/// and does not let system calls restart (`sigaction`).
///
/// # Errors
/// None in practice.
pub fn interruptible() -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: an all-zero sigaction is valid: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: `action` lives through the call, and the handler touches nothing.
    check(unsafe { libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()) }).map(drop)
}
