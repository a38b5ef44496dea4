//! A kernel without io_uring, for tests: a seccomp filter refuses the system call that makes a ring.

use std::io;

use rustix::io::Errno;

use crate::check;

/// The offset of the system call's number in `struct seccomp_data`.
const NUMBER: u32 = 0;

/// Refuses `io_uring_setup` with this error to the calling thread, and to the threads and processes that it starts (`prctl`,
/// PR_SET_NO_NEW_PRIVS and PR_SET_SECCOMP). It cannot be undone.
///
/// # Errors
/// EINVAL if the kernel has no filters.
pub fn refuse_rings(errno: Errno) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let error = libc::SECCOMP_RET_ERRNO | errno.raw_os_error() as u32;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NUMBER),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, error),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: takes no pointer.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: the kernel copies the steps that `program` names, which live through the call.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    check(set).map(drop)
}
