//! The system calls that a process may make, by a seccomp filter. It refuses every other call with EPERM.
//!
//! The filter looks only at the number of a call, but for `map_sizes`. The kernel therefore remembers the verdict for each number, and
//! does not run the filter again (Linux 5.11). It also means that the filter refuses whole calls. The process cannot
//! mount or trace anything, execute a program, or load one into the kernel. It cannot make, bind or connect a socket,
//! or change its user. Exceptions are calls that a setting needs.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};

use crate::Facility;

/// The command of bpf(2) that tells the type and size of an open map.
const BPF_OBJ_GET_INFO_BY_FD: u64 = 15;

/// The calls that a process keeps besides those that every server makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Starting programs and waiting for them.
    pub processes: bool,
    /// Updating the memory of programs in the kernel.
    pub kernel_programs: bool,
    /// Asking for the size of such memory, which comes before mapping it, and no other use of bpf(2).
    pub map_sizes: bool,
    /// I/O through rings. The filter does not see the operations on a ring.
    pub rings: bool,
}

impl Calls {
    /// Refuses all other calls to all threads of this process, and to the programs that it starts. Sets
    /// `no_new_privs`. A second filter can only refuse more.
    ///
    /// # Errors
    /// `Unsupported` if the kernel has no seccomp filters, or none for this kind of processor.
    pub fn restrict(self) -> io::Result<()> {
        let program = self.program().map_err(unsupported)?;
        apply_filter_all_threads(&program).map_err(|error| match error {
            Error::Prctl(cause) | Error::Seccomp(cause) => match cause.raw_os_error() {
                Some(libc::ENOSYS | libc::EINVAL) => unsupported(cause),
                _ => cause,
            },
            other => io::Error::other(other),
        })
    }

    fn program(self) -> Result<BpfProgram, BackendError> {
        let optional = [
            (self.processes, PROCESSES),
            (self.kernel_programs, &[libc::SYS_bpf][..]),
            (self.rings, &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register]),
        ];
        let optional = optional.into_iter().filter(|(kept, _)| *kept).map(|(_, calls)| calls);
        let calls =
            [DATA, FILES, MEMORY, EVENTS, SOCKETS, THREADS, SIGNALS, OLDER].into_iter().chain(optional);
        let mut rules: BTreeMap<i64, _> = calls.flatten().map(|call| (*call, Vec::new())).collect();
        if self.map_sizes && !self.kernel_programs {
            let (length, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
            let asks = SeccompCondition::new(0, length, equal, BPF_OBJ_GET_INFO_BY_FD)?;
            rules.insert(libc::SYS_bpf, vec![SeccompRule::new(vec![asks])?]);
        }
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let target = TargetArch::try_from(std::env::consts::ARCH)?;
        SeccompFilter::new(rules, refused, SeccompAction::Allow, target)?.try_into()
    }
}

fn unsupported(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, error)
}

/// Tests the kernel's support of seccomp.
pub fn probe() -> Facility {
    let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    if actions.split_whitespace().any(|action| action == "errno") {
        Facility::Here
    } else {
        Facility::Missing
    }
}

/// Bytes through descriptors.
const DATA: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_pipe2,
];

/// Files below the folders that remain.
const FILES: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_lseek,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_unlinkat,
    libc::SYS_memfd_create,
];

const MEMORY: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    libc::SYS_getrandom,
];

/// Waiting, and the clocks.
const EVENTS: &[i64] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_eventfd2,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
];

/// Sockets that are open, and pairs between processes.
const SOCKETS: &[i64] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_listen,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
];

const THREADS: &[i64] = &[
    // The flags of clone3 are in memory, which a filter cannot read. So a process can be forked, but can start no
    // program.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_setattr,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_getcpu,
    libc::SYS_getpriority,
    libc::SYS_prctl,
    libc::SYS_capset,
    libc::SYS_seccomp,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

const SIGNALS: &[i64] = &[
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
];

/// Calls that start and end a program, and those that a program makes before its `main`.
const PROCESSES: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_setpgid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    // musl's fork.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
];

/// Calls that newer kinds of processors no longer have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_getrlimit,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[i64] = &[];

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::atomic::AtomicU64;

    use rustix::io::Errno;
    use seccompiler::apply_filter;
    use sys::bpf::{AttachPoint, attach};
    use sys::shared::SharedArray;

    use super::*;

    /// The errors of asking for the size of a map, and of attaching a program, for a file that is neither.
    fn errors_of_bpf() -> [Option<Errno>; 2] {
        let file = || OwnedFd::from(File::open("/dev/null").unwrap());
        let sized = SharedArray::<AtomicU64>::open(file()).map(drop);
        let attached = attach(file().as_fd(), 1, AttachPoint::XdpGeneric).map(drop);
        [sized, attached].map(|outcome| Errno::from_io_error(&outcome.unwrap_err()))
    }

    #[test]
    fn each_filter_allows_its_uses_of_bpf_alone() {
        if probe() == Facility::Missing {
            return println!("skipped: this kernel has no seccomp filters");
        }
        let unfiltered = errors_of_bpf();
        if unfiltered.contains(&Some(Errno::PERM)) {
            return println!("skipped: this user may not use bpf(2)");
        }
        let (none, refused) = (Calls::default(), Some(Errno::PERM));
        let sizes = Calls { map_sizes: true, ..none };
        let all = Calls { processes: true, kernel_programs: true, map_sizes: true, rings: true };
        let cases = [(none, [refused; 2]), (sizes, [unfiltered[0], refused]), (all, unfiltered)];
        for (calls, errors) in cases {
            // A filter stays with its thread until the end.
            let thread = std::thread::spawn(move || {
                apply_filter(&calls.program().unwrap()).unwrap();
                errors_of_bpf()
            });
            assert_eq!(thread.join().unwrap(), errors, "{calls:?}");
        }
    }
}
