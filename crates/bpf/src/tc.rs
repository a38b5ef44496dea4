//! Attachment of a program to a device's traffic control, by a link that dies with this process.

use std::os::fd::OwnedFd;

use aya::programs::SchedClassifier;
use rustix::io::Errno;
use sys::bpf::AttachPoint;
use sys::network::netlink::Link;

use crate::error::BpfError;
use crate::object::Loaded;

/// Attaches one of an object's programs to a device of the calling thread's network namespace, before the present
/// programs.
///
/// # Errors
/// [`BpfError::Kernel`] without tcx.
pub(crate) fn attach(
    loaded: &Loaded,
    program: &str,
    device: &Link,
    point: AttachPoint,
) -> Result<OwnedFd, BpfError> {
    let purpose = loaded.purpose;
    loaded.attach(program, device, point).map_err(|source| match source.raw_os_error() {
        Some(code) if code == Errno::INVAL.raw_os_error() => {
            BpfError::Kernel { purpose, facility: "tcx links (Linux 6.6)", source }
        }
        _ => loaded.error(format!("attach to {}", device.name), &source),
    })
}

/// Loads one of an object's programs.
pub(crate) fn load(loaded: &mut Loaded, program: &str) -> Result<(), BpfError> {
    <&mut SchedClassifier>::try_from(loaded.program_named(program))
        .and_then(SchedClassifier::load)
        .map_err(|error| loaded.error(format!("load {program}"), &error))
}
