//! System calls that safe crates (`rustix`, `std`) do not offer: the only unsafe code but that at the C border of `fdm`.
//!
//! Each function makes one system call, or a sequence that belongs together, and returns errors as [`std::io::Error`], classified once in
//! [`errno`]. Callers use `rustix` directly for calls that it already wraps safely.
//!
//! Descriptors that are only *named* to the kernel are passed as [`RawFd`](std::os::fd::RawFd), because an
//! interest set outlives the borrow of its members. Naming a closed descriptor is an error that the kernel
//! reports, never a memory fault. Descriptors that are read, written or configured are borrowed.
//!
//! The modules, by subject: descriptors that are ready in `readiness`; operations on sockets, carried out by the kernel, in
//! `completion`; what a socket is set to in `socket`; namespaces, links and packets in `network`; child processes in
//! `process`, threads and their signals in `thread`, processors in `cpu`, and files of `/proc` in `proc_file`; memory that
//! processes share in `shared`; BPF programs in `bpf`; error numbers in `errno`; standard error in `message`.

pub mod bpf;
pub mod completion;
pub mod cpu;
pub mod errno;
pub mod message;
pub mod network;
pub mod proc_file;
pub mod process;
pub mod readiness;
pub mod shared;
pub mod socket;
pub mod thread;

use std::io;

/// Turns the C convention (-1 and errno) into a result.
fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// A relative time for the kernel.
fn timespec(nanos: base::Nanos) -> libc::timespec {
    let rustix::event::Timespec { tv_sec, tv_nsec } = readiness::poll::timespec(nanos);
    libc::timespec { tv_sec: tv_sec as _, tv_nsec: tv_nsec as _ }
}
