//! Child processes: where they run, how they end, and their costs.
//!
//! Owns starting a program on given CPUs and in a given network namespace, waiting with a deadline, ending
//! the program, and its CPU time. Only this module starts processes; its module `child` is a running one,
//! and `fork` makes copies of this process. `descriptors` is the limit on descriptors, of this process and its children,
//! and `memory` a rule of the allocator.
//!
//! Invariants:
//!
//! - No child outlives the thread that started it (PR_SET_PDEATHSIG). The kernel kills the child when that
//!   *thread* ends, so start children from a thread that stays.
//! - No child outlives its [`Child`]: dropping it kills and reaps the child. The remaining processes of the
//!   child's group are killed when its end is seen.
//! - A child has a process group of its own and reads no input from this process, unless it has our
//!   [`Streams`]. A Ctrl-C at the terminal thus reaches only this process, which ends the children in order.
//! - A child starts with the signals unblocked that [`crate::thread::signal`] blocks, and may open as many
//!   descriptors as the hard limit allows.
//! - Signals go through a pidfd, so they never reach a later process with the same number.

mod child;
pub mod descriptors;
mod fork;
pub mod memory;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::thread::signal;
use crate::{check, cpu, thread};
pub use child::{Child, Exit, Output};
pub use fork::{Children, Fork};

/// The standard input, output and error of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// No input, and two pipes that the starter reads.
    Pipes,
    /// No input, and our standard error for both outputs.
    Messages,
    /// No input, and our standard output and error.
    Output,
    /// Our streams and our process group: the child is in the terminal's foreground if this process is.
    Ours,
}

/// A program to start, with its environment.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    path: PathBuf,
    arguments: Vec<OsString>,
    namespace: Option<BorrowedFd<'a>>,
    cpus: Vec<usize>,
    inherited: Vec<BorrowedFd<'a>>,
    streams: Streams,
    name: Option<OsString>,
    input: Option<BorrowedFd<'a>>,
    environment: Vec<(OsString, OsString)>,
    cgroups: Vec<BorrowedFd<'a>>,
    real_time: bool,
    outlives: bool,
}

impl<'a> Program<'a> {
    /// A program, by default in our network namespace and on all our CPUs. A bare name is searched in PATH.
    pub fn new(path: impl Into<PathBuf>) -> Program<'a> {
        Program {
            path: path.into(),
            arguments: Vec::new(),
            namespace: None,
            cpus: Vec::new(),
            inherited: Vec::new(),
            streams: Streams::Pipes,
            name: None,
            input: None,
            environment: Vec::new(),
            cgroups: Vec::new(),
            real_time: false,
            outlives: false,
        }
    }

    /// Adds arguments.
    pub fn arguments<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Program<'a> {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Makes the program run in the network namespace of this descriptor.
    pub fn in_namespace(mut self, namespace: Option<BorrowedFd<'a>>) -> Program<'a> {
        self.namespace = namespace;
        self
    }

    /// Ties the program to these CPUs; an empty list does not tie it.
    pub fn on_cpus(mut self, cpus: &[usize]) -> Program<'a> {
        self.cpus = cpus.to_vec();
        self
    }

    /// Leaves the program these descriptors under their present numbers. The program takes them with
    /// [`inherited`].
    pub fn inheriting(mut self, fds: &[BorrowedFd<'a>]) -> Program<'a> {
        self.inherited = fds.to_vec();
        self
    }

    /// Gives the program other streams than pipes.
    pub fn with_streams(mut self, streams: Streams) -> Program<'a> {
        self.streams = streams;
        self
    }

    /// Sets the program's name in its own command line (`argv[0]`), which ps shows.
    pub fn called(mut self, name: impl Into<OsString>) -> Program<'a> {
        self.name = Some(name.into());
        self
    }

    /// Gives the program a descriptor as its standard input, whatever its other streams are.
    pub fn reading_from(mut self, input: BorrowedFd<'a>) -> Program<'a> {
        self.input = Some(input);
        self
    }

    /// Adds a variable to the program's environment, which otherwise equals ours.
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Program<'a> {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Puts the program and its children into control groups, at most one of each hierarchy. The descriptors are
    /// those of the groups' `cgroup.procs`, open for writing.
    pub fn in_cgroups(mut self, processes: Vec<BorrowedFd<'a>>) -> Program<'a> {
        self.cgroups = processes;
        self
    }

    /// Runs all threads of the program before those that are not real-time. Without CAP_SYS_NICE the program
    /// starts as usual.
    pub fn real_time(mut self) -> Program<'a> {
        self.real_time = true;
        self
    }

    /// Lets the program go on if this process is killed. Otherwise the kernel kills it too.
    pub fn outliving(mut self) -> Program<'a> {
        self.outlives = true;
        self
    }

    /// The words of the command line as a person would type it.
    pub fn command_line(&self) -> Vec<String> {
        let words = std::iter::once(self.path.as_os_str()).chain(self.arguments.iter().map(|word| &**word));
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Starts the program. Returns once it is executing. With [`Streams::Pipes`] the caller must read both
    /// pipes, or the program may block on one.
    ///
    /// # Errors
    /// `NotFound` if there is no such program; `PermissionDenied` if it may not be executed or the namespace
    /// may not be entered; EINVAL if none of the CPUs is allowed; the errors of fork(2) if
    /// resources run out.
    pub fn start(&self) -> io::Result<Child> {
        #[allow(clippy::disallowed_methods, reason = "this is the home of child processes")]
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        self.streams.apply(&mut command)?;
        if let Some(name) = &self.name {
            command.arg0(name);
        }
        if let Some(input) = self.input {
            command.stdin(input.try_clone_to_owned()?);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let (cpus, namespace) = (self.cpus.clone(), self.namespace.map(|fd| fd.as_raw_fd()));
        let parent = (!self.outlives).then(rustix::process::getpid);
        let inherited: Vec<RawFd> = self.inherited.iter().map(AsRawFd::as_raw_fd).collect();
        let cgroups: Vec<RawFd> = self.cgroups.iter().map(AsRawFd::as_raw_fd).collect();
        let real_time = self.real_time;
        // SAFETY: the closure runs in the child of a process that may have many threads, where only
        // async-signal-safe work is allowed. It makes system calls on values prepared before the fork, and
        // neither allocates nor takes a lock.
        unsafe {
            command.pre_exec(move || {
                if real_time {
                    thread::set_real_time_with_children();
                }
                prepare_child(&cpus, namespace, parent, &inherited, &cgroups)
            })
        };
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            // Without a descriptor nobody would end it. Both calls fail only if the child has ended.
            let _ = child.kill();
            let _ = child.wait();
        })?;
        Ok(Child { pid, pidfd, stdout: child.stdout.take(), stderr: child.stderr.take(), exit: None })
    }
}

impl Streams {
    fn apply(self, command: &mut Command) -> io::Result<()> {
        match self {
            Streams::Pipes => {
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
            }
            Streams::Messages => {
                let messages = io::stderr().as_fd().try_clone_to_owned()?;
                command.stdin(Stdio::null()).stdout(messages).process_group(0);
            }
            Streams::Output => {
                command.stdin(Stdio::null()).process_group(0);
            }
            Streams::Ours => {}
        }
        Ok(())
    }
}

/// Prepares the child between fork and exec.
fn prepare_child(
    cpus: &[usize],
    namespace: Option<RawFd>,
    parent: Option<Pid>,
    inherited: &[RawFd],
    cgroups: &[RawFd],
) -> io::Result<()> {
    if parent.is_some() {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before the line above cannot send the signal any more.
        if rustix::process::getppid() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    if let Some(namespace) = namespace {
        // SAFETY: setns(2) takes numbers only. It reports an error for a number that is not a namespace.
        check(unsafe { libc::setns(namespace, libc::CLONE_NEWNET) })?;
    }
    for cgroup in cgroups {
        // "0" means the writing process.
        // SAFETY: the constant outlives the call. A descriptor that is not open is an error that the call
        // reports.
        let written = unsafe { libc::write(*cgroup, b"0".as_ptr().cast(), 1) };
        check(written as libc::c_int)?;
    }
    if !cpus.is_empty() {
        cpu::pin(cpus)?;
    }
    for fd in inherited {
        // SAFETY: takes numbers only, and changes a flag of a table that is this child's own.
        check(unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) })?;
    }
    descriptors::raise_limit(u64::MAX);
    signal::unblock()
}

/// The path of the running program, for starting it again with other arguments.
///
/// # Errors
/// `NotFound` if the file was deleted or replaced since the start.
pub fn this_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    std::fs::metadata(&path)?;
    Ok(path)
}

/// The file that runs in this process, for starting it again even after a replacement on the disk.
pub fn this_very_program() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// A duplicate of the descriptor that this process's starter left open under this number.
///
/// # Errors
/// EBADF if no descriptor is open under the number; EMFILE.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only. A descriptor that is not open is an error that the call reports.
    let own = check(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just returned this descriptor, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

/// The same as [`inherited`], for a descriptor that programs started later are not to have.
///
/// # Errors
/// The errors of [`inherited`].
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    let own = inherited(number)?;
    // SAFETY: takes numbers only, and changes a flag that matters to an exec alone.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    Ok(own)
}

/// The path of a program with this name in PATH, or in the folders that an unprivileged PATH omits.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;

    use base::Nanos;

    use super::*;
    use crate::network::netns::NetworkNamespace;

    const LONG: Nanos = Nanos::from_secs(60);

    fn shell(script: &str) -> Program<'static> {
        Program::new("sh").arguments(["-c", script])
    }

    #[test]
    fn an_end_is_reported_as_often_as_it_is_asked_for() {
        let mut child = Program::new("true").start().unwrap();
        assert!(child.wait(LONG).unwrap().unwrap().status.success());
        assert!(child.wait(Nanos::ZERO).unwrap().unwrap().status.success());
        assert!(child.terminate(LONG).unwrap().status.success());
        let mut child = shell("exit 5").start().unwrap();
        assert_eq!(child.wait(LONG).unwrap().unwrap().status.code(), Some(5));
    }

    #[test]
    fn signal_to_the_waiting_thread_is_not_the_childs_end() {
        thread::interruptible().unwrap();
        let (reading, writing) = std::io::pipe().unwrap();
        let mut child = Program::new("cat").reading_from(reading.as_fd()).start().unwrap();
        let (name, named) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            name.send(thread::Thread::current()).unwrap();
            child.wait(LONG).unwrap()
        });
        let waiting = named.recv().unwrap();
        for _ in 0..20 {
            waiting.interrupt().unwrap();
            crate::readiness::poll::wait(&mut [], Some(Nanos::MILLISECOND)).unwrap();
        }
        drop(writing);
        assert!(waiter.join().unwrap().expect("it was waited for").status.success());
    }

    #[test]
    fn a_program_that_is_not_there_cannot_be_started() {
        assert_eq!(Program::new("/no/such/program").start().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(find_program("no-such-program"), None);
        assert!(find_program("sh").is_some());
    }

    #[test]
    fn child_inherits_only_the_descriptors_left_to_it() {
        let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let number = writing.as_raw_fd();
        // The shell itself checks: another program would open descriptors of its own.
        let script = format!(
            "echo left >/proc/self/fd/{number}; if [ -e /proc/self/fd/{} ]; then echo open; else echo closed; fi",
            reading.as_raw_fd()
        );
        let child = shell(&script).inheriting(&[writing.as_fd()]).start().unwrap();
        let output = child.output(Nanos::from_millis(10), || true).unwrap();
        assert_eq!(output.stdout, b"closed\n");
        drop(writing);
        let mut said = String::new();
        std::fs::File::from(reading).read_to_string(&mut said).unwrap();
        assert_eq!(said, "left\n");
        assert!(inherited(-1).is_err() && take_inherited(-1).is_err());
    }

    #[test]
    fn both_pipes_are_read_beyond_their_capacity() {
        let child = shell("head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2").start().unwrap();
        let output = child.output(Nanos::from_millis(10), || true).unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 200_000));
        assert!(output.exit.status.success());
    }

    #[test]
    fn a_child_is_asked_to_end_and_then_made_to() {
        let mut polite = Program::new("sleep").arguments(["1000"]).start().unwrap();
        assert_eq!(polite.wait(Nanos::MILLISECOND).unwrap().map(|exit| exit.status), None);
        assert_eq!(polite.terminate(LONG).unwrap().status.signal(), Some(libc::SIGTERM));

        let mut deaf = shell("trap '' TERM; echo ready; while :; do sleep 1000; done").start().unwrap();
        let mut ready = [0; 5];
        deaf.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(deaf.terminate(Nanos::from_millis(20)).unwrap().status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn output_ends_the_child_when_told_to() {
        let child = Program::new("sleep").arguments(["1000"]).start().unwrap();
        let output = child.output(Nanos::MILLISECOND, || false).unwrap();
        assert_eq!(output.exit.status.signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn output_ends_with_child_while_another_writes() {
        // It leaves the child's group, and ends with the pipe.
        let child = shell("setsid yes & exit 3").start().unwrap();
        assert_eq!(child.output(LONG, || true).unwrap().exit.status.code(), Some(3));
    }

    #[test]
    fn output_ends_with_child_whatever_it_leaves_behind() {
        let child = shell("sleep 1000 & echo x").start().unwrap();
        let output = child.output(LONG, || true).unwrap();
        assert_eq!((output.stdout, output.exit.status.code()), (b"x\n".to_vec(), Some(0)));
    }

    #[test]
    fn child_with_our_streams_stays_in_our_process_group() {
        let group_of = |streams| {
            let mut child = Program::new("sleep").arguments(["1000"]).with_streams(streams).start().unwrap();
            assert_eq!(child.stdout.is_some(), streams == Streams::Pipes);
            let group = rustix::process::getpgid(Some(child.pid)).unwrap();
            let own = group == child.pid;
            child.terminate(LONG).unwrap();
            (own, group == rustix::process::getpgrp())
        };
        assert_eq!(group_of(Streams::Ours), (false, true));
        assert_eq!(group_of(Streams::Messages), (true, false));
        assert_eq!(group_of(Streams::Pipes), (true, false));
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let child = Program::new("sleep").arguments(["1000"]).start().unwrap();
        let folder = format!("/proc/{}", child.id());
        assert!(Path::new(&folder).exists());
        drop(child);
        assert!(!Path::new(&folder).exists());
    }

    #[test]
    fn no_child_outlives_the_thread_that_started_it() {
        let started = std::thread::spawn(|| Program::new("sleep").arguments(["1000"]).start().unwrap());
        let mut child = started.join().unwrap();
        assert_eq!(child.wait(LONG).unwrap().unwrap().status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_child_is_real_time_where_that_is_allowed() {
        if std::thread::spawn(thread::set_real_time).join().unwrap().is_err() {
            return println!("skipped: real-time threads need CAP_SYS_NICE");
        }
        let output = Program::new("cat").arguments(["/proc/self/stat"]).real_time().start().unwrap();
        let output = output.output(Nanos::from_millis(1), || true).unwrap();
        // The policy is field 41. Field 2 is the name, cat's.
        let stat = String::from_utf8(output.stdout).unwrap();
        assert_eq!(stat.split_whitespace().nth(40).unwrap(), libc::SCHED_RR.to_string());
    }

    #[test]
    fn a_child_runs_where_it_was_told_to() {
        let cpu = *cpu::allowed().unwrap().last().unwrap();
        let script = "grep Cpus_allowed_list /proc/self/status | tr -dc 0-9";
        let child = shell(script).on_cpus(&[cpu]).start().unwrap();
        let output = child.output(Nanos::from_millis(10), || true).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), cpu.to_string());
        assert!(Program::new("true").on_cpus(&[100_000]).start().is_err());
    }

    #[test]
    fn a_child_enters_the_namespace_it_is_given() {
        let namespace = match NetworkNamespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return println!("skipped: no network namespaces here: {error}"),
        };
        let inside = namespace.enter(|| std::fs::read_link("/proc/thread-self/ns/net")).unwrap().unwrap();
        let program = Program::new("readlink").arguments(["/proc/self/ns/net"]);
        let child = program.in_namespace(Some(namespace.as_fd())).start().unwrap();
        let output = child.output(Nanos::from_millis(10), || true).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), inside.to_string_lossy());
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(Program::new("true").in_namespace(Some(null.as_fd())).start().is_err());
    }

    #[test]
    fn a_child_has_the_variables_it_was_given() {
        let child = shell("echo $GIVEN").environment("GIVEN", "word").start().unwrap();
        assert_eq!(child.output(Nanos::from_millis(10), || true).unwrap().stdout, b"word\n");
    }

    #[test]
    fn what_a_child_leaves_in_its_group_ends_with_it() {
        let mut child = shell("sleep 1000 & echo $!").start().unwrap();
        let mut number = String::new();
        let mut stdout = child.stdout.take().unwrap();
        // The grandchild holds the pipe open, so the pipe ends only when both are gone.
        assert!(child.wait(LONG).unwrap().unwrap().status.success());
        stdout.read_to_string(&mut number).unwrap();
        assert!(number.trim().parse::<u32>().is_ok(), "{number}");
    }

    #[test]
    fn a_child_may_open_as_much_as_the_hard_limit_allows() {
        let child = shell("[ $(ulimit -Sn) = $(ulimit -Hn) ]").start().unwrap();
        assert!(child.output(Nanos::from_millis(10), || true).unwrap().exit.status.success());
    }

    #[test]
    fn the_cpu_time_of_a_child_is_taken() {
        let child = shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").start().unwrap();
        let output = child.output(Nanos::from_millis(10), || true).unwrap();
        assert!(output.exit.cpu_time > Nanos::ZERO);
    }
}
