//! Children that are copies of this process. They go on in the same program, without another start.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, set_parent_process_death_signal, wait};

use crate::check;
use crate::thread::signal;

/// The side of a fork on which the caller goes on.
#[derive(Debug)]
pub enum Fork {
    /// The copy. The kernel kills it when the thread that forked ends.
    Child,
    /// The original, with the number of its new child.
    Parent(Pid),
}

/// The forked children of a process that has no other children.
#[derive(Debug)]
pub struct Children {
    ended: OwnedFd,
}

/// Readable after a child has ended, until [`Children::reap`] has removed all that have.
impl AsFd for Children {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }
}

impl Children {
    /// Blocks SIGCHLD in this thread for good and watches it.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Children> {
        let set = signal::set_of([libc::SIGCHLD]);
        signal::mask(libc::SIG_BLOCK, &set)?;
        Ok(Children { ended: signal::descriptor(&set)? })
    }

    /// Forks. The process must have one thread: a child would have the locks of others without their holders. It has
    /// copies of all descriptors and of the memory.
    ///
    /// # Errors
    /// `Unsupported` if the process has several threads, as far as it may look. EAGAIN, ENOMEM: no process left, or no
    /// memory.
    pub fn fork(&self) -> io::Result<Fork> {
        // A confined process may not look.
        if std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() > 1) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a process with several threads cannot fork",
            ));
        }
        let parent = getpid();
        // SAFETY: with one thread, no lock or structure of the C library is in use in the child.
        let forked = check(unsafe { libc::fork() })?;
        if let Some(child) = Pid::from_raw(forked) {
            return Ok(Fork::Parent(child));
        }
        let watched = set_parent_process_death_signal(Some(Signal::KILL));
        // A parent that died before the line above cannot send the signal any more.
        if watched.is_err() || getppid() != Some(parent) {
            // exit(3) would write the parent's buffered output a second time.
            // SAFETY: takes a number only, and does not return.
            unsafe { libc::_exit(1) };
        }
        Ok(Fork::Child)
    }

    /// Removes one child that has ended from the process table. Returns its number, and true if it exited with
    /// status 0. `None` if no child has ended.
    ///
    /// # Errors
    /// None in practice.
    pub fn reap(&self) -> io::Result<Option<(Pid, bool)>> {
        // Several ends may be one signal, so it is taken before the process table is asked.
        while rustix::io::read(&self.ended, &mut [0_u8; size_of::<libc::signalfd_siginfo>()]).is_ok() {}
        match wait(WaitOptions::NOHANG) {
            Ok(ended) => Ok(ended.map(|(child, status)| (child, status.exit_status() == Some(0)))),
            Err(Errno::CHILD) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}
