//! A thread, named to the kernel: as the receiver of a descriptor's signals, with a scheduling policy of its
//! own, and with its system call interrupted on purpose. Tests interrupt threads to provoke EINTR, which is
//! rare otherwise.
//!
//! `signal` has the signals that one thread waits for, `stop` the word that ends a thread's loop, and `usage` the kernel's
//! counters of a thread or of all of them.

pub mod signal;
pub mod stop;
pub mod usage;

use std::io;
use std::mem::size_of;

use base::Nanos;

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

    /// Ends the thread's blocking call, if there is one, with EINTR (`tgkill` with SIGURG). SIGURG is ignored
    /// until [`interruptible`] was called.
    ///
    /// # Errors
    /// ESRCH if the thread has ended.
    pub fn interrupt(self) -> io::Result<()> {
        // SAFETY: takes no pointer.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGURG) };
        check(sent as libc::c_int).map(drop)
    }
}

/// Sets the length of the calling thread's turns on the processor, and those of processes that it starts: 0.1
/// to 100 ms, or 0 for the kernel's choice (`sched_setattr`, the `sched_runtime` of SCHED_OTHER). A thread
/// that mostly sleeps and has short turns runs soon after it wakes, even beside hundreds of busy threads. It
/// gets no more time in all. Kernels before 6.12 ignore the length.
///
/// # Errors
/// ENOSYS or EPERM if a sandbox forbids the call.
pub fn set_slice(slice: Nanos) -> io::Result<()> {
    set_attributes(libc::SCHED_OTHER, slice)
}

/// Runs the calling thread only while nothing else wants its CPU, and ends its turn as soon as another thread wakes
/// (`sched_setattr`, SCHED_IDLE). A low priority alone does not end a turn.
///
/// # Errors
/// ENOSYS or EPERM if a sandbox forbids the call.
pub fn set_idle() -> io::Result<()> {
    set_attributes(libc::SCHED_IDLE, Nanos::ZERO)
}

fn set_attributes(policy: libc::c_int, runtime: Nanos) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy as u32,
        sched_flags: 0,
        // SAFETY: takes no pointer; the calling thread exists.
        sched_nice: unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) },
        sched_priority: 0,
        sched_runtime: runtime.0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads the attributes behind the pointer, of the size they state, which live through
    // the call.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(set as libc::c_int).map(drop)
}

/// Runs the calling thread whenever it is ready, before every thread that is not real-time
/// (`sched_setscheduler`, SCHED_FIFO). It also runs before the threads of a program started as real-time. The
/// threads and processes that it starts later are not real-time. The kernel leaves other threads a twentieth
/// of the time (`kernel.sched_rt_runtime_us`).
///
/// # Errors
/// EPERM without CAP_SYS_NICE and RLIMIT_RTPRIO.
pub fn set_real_time() -> io::Result<()> {
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 2)
}

/// Returns true if the calling thread is real-time (`sched_getscheduler`).
pub fn is_real_time() -> bool {
    // SAFETY: the call has no memory.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR)
}

/// Runs the calling thread and the program that it will execute before every thread that is not real-time.
/// Real-time threads of this kind take turns (SCHED_RR). Without the permission nothing changes. Safe between
/// fork and exec.
pub(crate) fn set_real_time_with_children() {
    let _ = schedule(libc::SCHED_RR, 1);
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: an all-zero sched_param is valid, because it consists of integers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: `parameters` lives through the call.
    check(unsafe { libc::sched_setscheduler(0, policy, &parameters) }).map(drop)
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// Makes [`Thread::interrupt`] work in the whole process: installs a handler of SIGURG that does nothing and
/// does not restart system calls (`sigaction`).
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

/// Runs `work` on a thread of its own that makes files and sockets as another user (setfsuid(2)), and waits for it.
///
/// # Errors
/// `PermissionDenied` without CAP_SETUID, unless the user is this process's own.
pub fn as_file_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let helper = scope.spawn(|| {
            // SAFETY: setfsuid(2) changes this thread alone, which ends after `work`.
            unsafe { libc::setfsuid(uid) };
            // The call reports no error. One with an invalid number changes nothing, and returns the present user.
            // SAFETY: as above.
            match unsafe { libc::setfsuid(u32::MAX) } as u32 == uid {
                true => Ok(work()),
                false => Err(io::ErrorKind::PermissionDenied.into()),
            }
        });
        helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_ask_for_short_turns_without_privilege() {
        set_slice(Nanos::from_micros(100)).unwrap();
        set_slice(Nanos::ZERO).unwrap();
    }
}
