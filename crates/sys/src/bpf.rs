//! The requests of bpf(2) that a loader of programs does not make, or makes only with a new socket.
//!
//! Owns running a loaded program on a packet that no network has seen, attaching it to a device by the device's number,
//! which a process can do that may open no socket, and attaching it to a cgroup by a link. Owns the size of a map whose memory will be mapped
//! ([`SharedArray`](crate::shared::SharedArray) maps it). The `bpf` crate owns loading and maps.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use base::Nanos;

use crate::check;

// From <linux/bpf.h>.
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
const BPF_CGROUP_INET_INGRESS: u32 = 0;
const BPF_CGROUP_INET_EGRESS: u32 = 1;
/// From <linux/if_link.h>.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// Of a tcx link: before another program, here before all.
const BPF_F_BEFORE: u32 = 1 << 3;
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

/// The part of `union bpf_attr` that BPF_LINK_CREATE reads, with the members of tcx.
#[repr(C)]
#[derive(Default)]
struct LinkRequest {
    program: u32,
    /// A device's number, or a cgroup's descriptor.
    target: u32,
    kind: u32,
    flags: u32,
    relative: u32,
    zero: u32,
    expected_revision: u64,
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
fn bpf<R>(command: libc::c_int, request: &mut R) -> io::Result<libc::c_int> {
    let size = size_of::<R>() as libc::c_uint;
    // SAFETY: the kernel reads and writes at most `size` bytes of the request, which lives through the call.
    // The callers vouch for the request's pointers; the three functions below are the only callers.
    let returned = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(request), size) };
    check(returned as libc::c_int)
}

/// The place of a device at which packets meet a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachPoint {
    /// Traffic control of received packets, before other programs (tcx, Linux 6.6).
    TcIngress,
    /// Traffic control of sent packets, before other programs.
    TcEgress,
    /// The device's driver.
    XdpDriver,
    /// The kernel's common receive path.
    XdpGeneric,
}

/// Attaches a program to a device of the calling thread's network namespace. The kernel detaches it when the returned
/// descriptor is closed.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN; EINVAL if the kernel has no such links; EBUSY or EEXIST if the device has an XDP
/// program; ENODEV.
pub fn attach(program: BorrowedFd<'_>, device: u32, point: AttachPoint) -> io::Result<OwnedFd> {
    let (kind, flags) = match point {
        AttachPoint::TcIngress => (BPF_TCX_INGRESS, BPF_F_BEFORE),
        AttachPoint::TcEgress => (BPF_TCX_EGRESS, BPF_F_BEFORE),
        AttachPoint::XdpDriver => (BPF_XDP, XDP_FLAGS_DRV_MODE),
        AttachPoint::XdpGeneric => (BPF_XDP, XDP_FLAGS_SKB_MODE),
    };
    link(LinkRequest {
        program: program.as_raw_fd() as u32,
        target: device,
        kind,
        flags,
        ..Default::default()
    })
}

/// The direction of packets that a program at a cgroup sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupPackets {
    /// Received ones, before their socket gets them.
    Received,
    /// Sent ones.
    Sent,
}

/// Attaches a program to the sockets that processes of a cgroup make, and of those below it, beside other programs. The
/// kernel detaches it when the returned descriptor is closed, or the cgroup is removed.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN; EBADF if the descriptor is not that of a folder of the cgroup2 file system;
/// EINVAL before Linux 5.7.
pub fn attach_to_cgroup(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    packets: CgroupPackets,
) -> io::Result<OwnedFd> {
    let kind = match packets {
        CgroupPackets::Received => BPF_CGROUP_INET_INGRESS,
        CgroupPackets::Sent => BPF_CGROUP_INET_EGRESS,
    };
    let (program, target) = (program.as_raw_fd() as u32, cgroup.as_raw_fd() as u32);
    link(LinkRequest { program, target, kind, ..Default::default() })
}

fn link(mut request: LinkRequest) -> io::Result<OwnedFd> {
    let link = bpf(BPF_LINK_CREATE, &mut request)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
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
