//! System calls that safe crates (`rustix`, `std`) do not offer: the only unsafe code.
//!
//! Each function makes one system call, or a sequence that belongs together, and returns errors as [`std::io::Error`], classified once in
//! [`errno`]. Callers use `rustix` directly for calls that it already wraps safely.
//!
//! Descriptors that are only *named* to the kernel are passed as [`RawFd`](std::os::fd::RawFd), because an
//! interest set outlives the borrow of its members. Naming a closed descriptor is an error that the kernel
//! reports, never a memory fault. Descriptors that are read, written or configured are borrowed.
//!
//! The modules, by subject: readiness in `epoll`, `poll`, `select`, `rt_signal` and `uring_poll`; operations
//! on sockets, carried out by the kernel, in `completion`; sockets in `socket`, `reuseport`, `xdp` and `tun`; networks
//! in `netns` and `netlink`, and who may make them in `userns`; processes and threads in `process`, `thread`, `cpu`,
//! `usage`, `signal` and `proc_file`; memory and descriptors in `shared` and `descriptors`; BPF programs in `bpf`;
//! descriptors passed between processes in `passing`; standard error in `message`.

pub mod bpf;
pub mod completion;
pub mod cpu;
pub mod descriptors;
pub mod epoll;
pub mod errno;
pub mod message;
pub mod netlink;
pub mod netns;
pub mod passing;
pub mod poll;
pub mod proc_file;
pub mod process;
pub mod reuseport;
pub mod rt_signal;
pub mod select;
pub mod shared;
pub mod signal;
pub mod socket;
pub mod thread;
pub mod tun;
pub mod uring_poll;
pub mod usage;
pub mod userns;
pub mod xdp;

use std::io;

/// Turns the C convention (-1 and errno) into a result.
fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// A relative time for the kernel.
fn timespec(nanos: base::Nanos) -> libc::timespec {
    let rustix::event::Timespec { tv_sec, tv_nsec } = poll::timespec(nanos);
    libc::timespec { tv_sec: tv_sec as _, tv_nsec: tv_nsec as _ }
}
