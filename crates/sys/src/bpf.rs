//! The two requests of bpf(2) that a loader of programs does not make.
//!
//! Owns running a loaded program on a packet that no network has seen. Owns the size of a map whose memory
//! will be mapped ([`SharedArray`](crate::shared::SharedArray) maps it). The `bpf` crate owns loading, maps
//! and links.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use base::Nanos;

use crate::check;

// From <linux/bpf.h>.
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The part of `union bpf_attr` that BPF_PROG_TEST_RUN reads and writes.
#[repr(C)]
#[derive(Default)]
struct TestRunRequest {
    program: u32,
    returned: u32,
    input_length: u32,
    output_length: u32,
    input: u64,
    output: u64,
    repeat: u32,
    duration_ns: u32,
    context_input_length: u32,
    context_output_length: u32,
    context_input: u64,
    context_output: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    zero: u32,
}

/// The part of `union bpf_attr` that BPF_OBJ_GET_INFO_BY_FD reads.
#[repr(C)]
#[derive(Default)]
struct InfoRequest {
    object: u32,
    length: u32,
    info: u64,
}

/// `struct bpf_map_info` up to and including `map_flags`.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
    key_bytes: u32,
    value_bytes: u32,
    max_entries: u32,
    flags: u32,
}

/// Calls bpf(2) once with a request of type `R`.
fn bpf<R>(command: libc::c_int, request: &mut R) -> io::Result<()> {
    let size = size_of::<R>() as libc::c_uint;
    // SAFETY: the kernel reads and writes at most `size` bytes of the request, which lives through the call.
    // The callers vouch for the request's pointers; the two functions below are the only callers.
    let returned = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(request), size) };
    check(returned as libc::c_int).map(drop)
}

/// The result of running a program on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The program's return value: the verdict of an XDP or a tc program.
    pub verdict: u32,
    /// The packet after the program, cut to [`PACKET`] bytes.
    pub packet: Vec<u8>,
    /// Mean time of a run, in whole nanoseconds.
    pub duration: Nanos,
}

/// Longest packet that [`test_run`] returns, in bytes.
pub const PACKET: usize = 64 * 1024;

/// Runs an XDP or a tc program `repeat` times, at least once, on a packet that begins with its Ethernet
/// header. No network sees the packet. The program reads and writes its maps as in any other run. A
/// repetition gets the packet as the run before it left it. Blocks until all runs have ended.
///
/// # Errors
/// `PermissionDenied` without CAP_BPF or root; EINVAL for a packet that has no Ethernet header or is too long
/// for the program's type; ENOTSUPP for a program of another type.
pub fn test_run(program: BorrowedFd<'_>, packet: &[u8], repeat: u32) -> io::Result<TestRun> {
    let mut output = vec![0_u8; PACKET];
    let mut request = TestRunRequest {
        program: program.as_raw_fd() as u32,
        input_length: u32::try_from(packet.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        input: packet.as_ptr().expose_provenance() as u64,
        output_length: output.len() as u32,
        output: output.as_mut_ptr().expose_provenance() as u64,
        repeat,
        ..TestRunRequest::default()
    };
    bpf(BPF_PROG_TEST_RUN, &mut request)?;
    output.truncate(request.output_length as usize);
    let duration = Nanos(u64::from(request.duration_ns));
    Ok(TestRun { verdict: request.returned, packet: output, duration })
}

/// Mappable bytes of an array map's memory: its entries, each rounded up to a multiple of eight bytes.
///
/// # Errors
/// EINVAL if the descriptor is not that of an array map made with BPF_F_MMAPABLE.
pub(crate) fn mappable_bytes(map: BorrowedFd<'_>) -> io::Result<usize> {
    let mut info = MapInfo::default();
    let mut request = InfoRequest {
        object: map.as_raw_fd() as u32,
        length: size_of::<MapInfo>() as u32,
        info: std::ptr::from_mut(&mut info).expose_provenance() as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut request)?;
    if info.kind != BPF_MAP_TYPE_ARRAY || info.flags & BPF_F_MMAPABLE == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok((info.value_bytes as usize).next_multiple_of(8) * info.max_entries as usize)
}
