//! Programs inside the kernel: their loading, their attachment, and the memory that they share with the server.
//!
//! Each program is a C file under `programs/` with a drawing of a packet's way, an object that is checked in, and a module
//! here. Only this module knows the program's maps:
//!
//! | module | program | hook |
//! |---|---|---|
//! | [`admission`] | `admission_tc.c`, `admission_xdp.c` | tc ingress, XDP |
//! | [`steering`] | `steer.c` | SO_REUSEPORT group |
//! | [`xsk_redirect`] | `xsk_redirect.c` | XDP |
//! | [`kernel_cache`] | `kernel_cache.c` | tc ingress and egress |
//! | [`counts`] | `final_ack.c` | the trace point of dropped packets |
//! | [`counts`] | `syns.c` | tc ingress |
//! | [`guard`] | `guard.c` | the sockets of a cgroup |
//!
//! `object` loads the objects, and `tc` and `xdp` attach programs to devices. `device` finds the devices of listeners,
//! `error` explains failures, and `probe` tries each program on this machine.
//!
//! Leaves out the decision to use a program, and its settings.
//!
//! Invariants: nothing stays in the kernel when this process ends, however it ends. Programs hang on descriptors of
//! links and sockets, and nothing is pinned. Both sides read and write shared memory by single atomic words, without a
//! system call. Building this crate needs no C compiler; a test compiles the objects again and compares.

#![forbid(unsafe_code)]

pub mod admission;
pub mod counts;
pub mod device;
mod error;
pub mod guard;
#[cfg(feature = "kernel-cache")]
pub mod kernel_cache;
mod object;
mod probe;
pub mod steering;
mod tc;
pub mod xdp;
pub mod xsk_redirect;

use std::net::{IpAddr, SocketAddr};

pub use admission::Exempt;
pub use error::BpfError;
pub use object::has_capabilities;
pub use probe::{Facility, probe, probe_guard};

/// 64-bit words in a cache line: the size of a record that a program and its readers share.
const WORDS_PER_LINE: usize = 8;

/// An address as `struct address` of `programs/kernel.h` has it: IPv4 mapped into IPv6, in network order.
fn address_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The same in words.
fn address_words(address: IpAddr) -> [u32; 4] {
    let octets = address_octets(address);
    std::array::from_fn(|word| u32::from_ne_bytes(std::array::from_fn(|octet| octets[word * 4 + octet])))
}

/// `struct listener` of `programs/kernel.h`.
fn listener_key(address: SocketAddr) -> [u32; 5] {
    let [a, b, c, d] = address_words(address.ip());
    [a, b, c, d, u32::from(address.port().to_be())]
}
