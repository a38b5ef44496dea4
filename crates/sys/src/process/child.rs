//! A running child: waiting for it with a deadline, reading its output, ending it, and its costs.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdout, ExitStatus};

use base::{Clock, Nanos, RealClock};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, pidfd_send_signal};

use crate::check;
use crate::readiness::poll::timespec;

/// The end of a process and its costs.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// The exit code, or the signal that ended the process.
    pub status: ExitStatus,
    /// CPU time, user and system, of the process and of the children that it waited for.
    pub cpu_time: Nanos,
}

/// The output of a process, and its end.
#[derive(Debug)]
pub struct Output {
    /// The process's standard output.
    pub stdout: Vec<u8>,
    /// The process's standard error.
    pub stderr: Vec<u8>,
    /// The process's end.
    pub exit: Exit,
}

/// The largest pipe that the kernel grants without a privilege (pipe-max-size).
const LARGEST_PIPE: usize = 1024 * 1024;

/// A running child. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Child {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    /// The reading end of the child's standard output, until taken.
    pub stdout: Option<ChildStdout>,
    /// The reading end of the child's standard error, until taken.
    pub stderr: Option<ChildStderr>,
    pub(super) exit: Option<Exit>,
}

impl Child {
    /// The child's process number.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// A descriptor that is readable once the child has ended.
    pub fn end(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Waits for the child's end, for at most `timeout`. Blocks. After the end, every call returns the same
    /// result.
    ///
    /// # Errors
    /// The errors of poll(2) and wait4(2); an intact child causes none of them.
    pub fn wait(&mut self, timeout: Nanos) -> io::Result<Option<Exit>> {
        if self.exit.is_none() && wait_readable(&[self.pidfd.as_fd()], timeout)? {
            self.exit = Some(reap(self.pid)?);
        }
        Ok(self.exit)
    }

    /// Asks the child to end (SIGTERM), and does not wait for it.
    ///
    /// # Errors
    /// The errors of pidfd_send_signal(2). A child that has ended already is not an error.
    pub fn ask_to_end(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Asks the child to end (SIGTERM), and kills it (SIGKILL) if it has not ended within `patience`. Blocks.
    ///
    /// # Errors
    /// The errors of [`Child::wait`].
    pub fn terminate(&mut self, patience: Nanos) -> io::Result<Exit> {
        self.signal(Signal::TERM)?;
        if let Some(exit) = self.wait(patience)? {
            return Ok(exit);
        }
        self.signal(Signal::KILL)?;
        loop {
            if let Some(exit) = self.wait(Nanos::SECOND)? {
                return Ok(exit);
            }
        }
    }

    /// Kills the child at once (SIGKILL). The caller still has to wait for it.
    ///
    /// # Errors
    /// None in practice.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    /// Reads the child's output until the child ends. Other processes that hold its pipes are not waited for. Calls
    /// `meanwhile` about every `tick`, and ends the child when `meanwhile` returns false. Blocks.
    ///
    /// # Errors
    /// The errors of reading a pipe and of [`Child::wait`].
    pub fn output(mut self, tick: Nanos, mut meanwhile: impl FnMut() -> bool) -> io::Result<Output> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            let pipes = [self.stdout.as_ref().map(AsFd::as_fd), self.stderr.as_ref().map(AsFd::as_fd)];
            let ends: Vec<BorrowedFd<'_>> = pipes.into_iter().flatten().chain([self.end()]).collect();
            wait_readable(&ends, tick)?;
            read_some(&mut self.stdout, &mut stdout)?;
            read_some(&mut self.stderr, &mut stderr)?;
            if let Some(exit) = self.wait(Nanos::ZERO)? {
                read_rest(&mut self.stdout, &mut stdout)?;
                read_rest(&mut self.stderr, &mut stderr)?;
                return Ok(Output { stdout, stderr, exit });
            }
            if !meanwhile() {
                self.terminate(Nanos::SECOND)?;
            }
        }
    }

    /// Sends the child a signal. Does nothing if the child has ended.
    ///
    /// # Errors
    /// EPERM if the child has changed to another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            // The child has ended already, which is the purpose of our signals.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.exit.is_none() {
            // A child that has changed to another user gets no signal: its own end is waited for.
            let _ = self.signal(Signal::KILL);
            let _ = reap(self.pid);
        }
    }
}

/// Waits for at most `timeout` until one of the descriptors is readable or at its end. A signal does not end the wait:
/// libraries that start programs handle SIGCHLD, and every child's end would interrupt the waits for the others.
fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Nanos) -> io::Result<bool> {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let clock = RealClock::new();
    let until = clock.now().saturating_add(timeout);
    loop {
        let timeout = timespec(until.saturating_sub(clock.now()));
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reads bytes that are in a pipe. Returns false if there are none. At the pipe's end, `pipe` becomes `None`.
fn read_some(pipe: &mut Option<impl Read + AsFd>, into: &mut Vec<u8>) -> io::Result<bool> {
    let Some(open) = pipe else { return Ok(false) };
    if !wait_readable(&[open.as_fd()], Nanos::ZERO)? {
        return Ok(false);
    }
    let mut buffer = [0; 64 * 1024];
    let length = open.read(&mut buffer)?;
    into.extend_from_slice(&buffer[..length]);
    if length == 0 {
        *pipe = None;
    }
    Ok(length > 0)
}

/// Reads what an ended child left in a pipe. The pipe may have another writer, which never ends, so this reads no more
/// than the largest pipe holds.
fn read_rest(pipe: &mut Option<impl Read + AsFd>, into: &mut Vec<u8>) -> io::Result<()> {
    let end = into.len() + LARGEST_PIPE;
    while into.len() < end && read_some(pipe, into)? {}
    Ok(())
}

/// Kills the other processes of a child's group, waits for the child's end and takes its costs.
fn reap(pid: Pid) -> io::Result<Exit> {
    // Until the child is reaped, no other process or group can have its number. The call fails if the group
    // has only the child, which has ended.
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both are valid for writing through the call.
        let waited =
            check(unsafe { libc::wait4(pid.as_raw_nonzero().get(), &mut status, 0, usage.as_mut_ptr()) });
        match waited {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // SAFETY: rusage consists of integers, for which zero is a value, and wait4 has filled it in.
    let usage = unsafe { usage.assume_init() };
    let time =
        |value: libc::timeval| Nanos(value.tv_sec as u64 * 1_000_000_000 + value.tv_usec as u64 * 1_000);
    Ok(Exit { status: ExitStatus::from_raw(status), cpu_time: time(usage.ru_utime) + time(usage.ru_stime) })
}
