//! Processors: the set that this thread may use, CPU time, and burning CPU time on purpose.

use std::io;

use base::Nanos;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::check;

/// The processors that this thread may run on, in ascending order.
///
/// # Errors
/// None in practice.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Ties this thread, and the threads and processes that it starts later, to some processors.
///
/// # Errors
/// EINVAL if none of them is online and allowed.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    sched_setaffinity(None, &set)?;
    Ok(())
}

fn read(which: libc::clockid_t) -> io::Result<Nanos> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call, which writes it.
    check(unsafe { libc::clock_gettime(which, &mut time) })?;
    Ok(Nanos(time.tv_sec as u64 * Nanos::SECOND.0 + time.tv_nsec as u64))
}

fn clock(which: libc::clockid_t) -> Nanos {
    read(which).expect("one's own CPU-time clock can be read")
}

/// The CPU time that this thread has used, user and system.
pub fn thread_time() -> Nanos {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The CPU time that all threads of this process have used, user and system.
pub fn process_time() -> Nanos {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The CPU time that a thread of this process has used, by its thread number.
///
/// # Errors
/// EINVAL if this process has no such thread.
pub fn thread_time_of(thread: Pid) -> io::Result<Nanos> {
    // The kernel's layout of the clock's number: ~number in the upper bits, 4 for a thread, and 2 for the
    // time as the scheduler counts it.
    read((!thread.as_raw_nonzero().get() << 3) | 6)
}

/// The CPU time that all threads of a process have used.
///
/// # Errors
/// EINVAL if there is no such process.
pub fn process_time_of(process: Pid) -> io::Result<Nanos> {
    read((!process.as_raw_nonzero().get() << 3) | 2)
}

/// Burns `time` of this thread's CPU time. Time in which another thread has the processor does not count, so
/// an artificial cost is the same on a busy machine.
pub fn burn(time: Nanos) {
    let end = thread_time() + time;
    while thread_time() < end {
        // Reading the clock is a system call of some 200 ns. The processor works between two calls.
        for _ in 0..64 {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burning_uses_the_cpu_time_it_says() {
        let before = thread_time();
        burn(Nanos::from_micros(200));
        assert!(thread_time() - before >= Nanos::from_micros(200));
    }

    #[test]
    fn the_time_of_a_thread_and_of_a_process_is_read_by_number() {
        let (thread, process) = (rustix::thread::gettid(), rustix::process::getpid());
        let before = (thread_time_of(thread).unwrap(), process_time_of(process).unwrap());
        burn(Nanos::from_micros(200));
        assert!(thread_time_of(thread).unwrap() - before.0 >= Nanos::from_micros(200));
        assert!(process_time_of(process).unwrap() - before.1 >= Nanos::from_micros(200));
        assert!(thread_time_of(rustix::process::Pid::INIT).is_err());
    }

    #[test]
    fn a_thread_can_be_tied_to_the_first_processor_it_has() {
        let first = allowed().unwrap()[0];
        std::thread::spawn(move || {
            pin(&[first]).unwrap();
            assert_eq!(allowed().unwrap(), [first]);
        })
        .join()
        .unwrap();
        assert!(pin(&[]).is_err());
    }
}
