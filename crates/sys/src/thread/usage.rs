//! The kernel's counters of a thread or a process (`getrusage`).

use std::mem::MaybeUninit;

use crate::check;

/// The owner of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The calling thread.
    Thread,
    /// This process: all its threads, living and dead.
    Process,
}

/// Number of voluntary sleeps (`ru_nvcsw`). For a thread that sleeps again after each wake-up, even inside
/// the kernel, this counts its wake-ups.
pub fn voluntary_switches(whose: Whose) -> u64 {
    let whose = match whose {
        Whose::Thread => libc::RUSAGE_THREAD,
        Whose::Process => libc::RUSAGE_SELF,
    };
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid for writing through the call.
    check(unsafe { libc::getrusage(whose, usage.as_mut_ptr()) }).expect("one's own usage can be read");
    // SAFETY: rusage is made of integers, for which zero is a value, and the kernel has filled it in.
    unsafe { usage.assume_init() }.ru_nvcsw as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{Timespec, nanosleep};

    #[test]
    fn sleep_is_counted_for_the_thread_and_the_process() {
        let before = (voluntary_switches(Whose::Thread), voluntary_switches(Whose::Process));
        // A thread that loses its processor on the way to sleep does not sleep voluntarily.
        let is_counted = (0..1000).any(|_| {
            let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 1_000 });
            voluntary_switches(Whose::Thread) >= before.0 + 3
        });
        assert!(is_counted);
        assert!(voluntary_switches(Whose::Process) >= before.1 + 3);
    }
}
