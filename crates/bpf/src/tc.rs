//! Attachment of a program to a device's traffic control, by a link that dies with this process.

use aya::programs::links::FdLink;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use rustix::io::Errno;
use sys::netlink::Link;

use crate::error::{BpfError, errno};
use crate::object::Loaded;

/// Attaches one of an object's programs to a device of the calling thread's network namespace, before the present
/// programs.
///
/// # Errors
/// [`BpfError::Kernel`] without tcx.
pub(crate) fn attach(
    loaded: &mut Loaded,
    program: &str,
    device: &Link,
    direction: TcAttachType,
) -> Result<FdLink, BpfError> {
    let purpose = loaded.purpose;
    let attached = <&mut SchedClassifier>::try_from(loaded.program_named(program)).and_then(|program| {
        let first = TcAttachOptions::TcxOrder(LinkOrder::first());
        let id = program.attach_with_options(&device.name, direction, first)?;
        program.take_link(id)
    });
    let link = attached.map_err(|error: ProgramError| match errno(&error) {
        Some(source) if source.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            BpfError::Kernel { purpose, facility: "tcx links (Linux 6.6)", source }
        }
        _ => loaded.error(format!("attach to {}", device.name), &error),
    })?;
    FdLink::try_from(link).map_err(|error| loaded.error("keep a tcx link", &error))
}

/// Loads one of an object's programs.
pub(crate) fn load(loaded: &mut Loaded, program: &str) -> Result<(), BpfError> {
    <&mut SchedClassifier>::try_from(loaded.program_named(program))
        .and_then(SchedClassifier::load)
        .map_err(|error| loaded.error(format!("load {program}"), &error))
}
