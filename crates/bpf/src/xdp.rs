//! Attachment of an XDP program to a device, by a link that dies with this process.

use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};
use rustix::io::Errno;
use sys::netlink::Link;

use crate::error::{BpfError, errno};
use crate::object::Loaded;

/// The place where a device runs its XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel has made a socket buffer.
    Driver,
    /// In the kernel's common receive path.
    Generic,
}

/// Attaches the program: in the driver if possible, or else in the kernel's common receive path.
///
/// # Errors
/// [`BpfError::NotEthernet`], [`BpfError::Occupied`], and [`BpfError::Kernel`] before Linux 5.9.
pub(crate) fn attach(loaded: &mut Loaded, device: &Link) -> Result<(FdLink, Mode), BpfError> {
    if !device.ethernet {
        return Err(BpfError::NotEthernet { device: device.name.clone() });
    }
    let native = attach_in(loaded, device, XdpMode::Driver);
    let (attached, mode) = match native {
        // The driver has no XDP, or not with the device's present settings.
        Err(error) if !is_taken(&error) => (attach_in(loaded, device, XdpMode::Skb), Mode::Generic),
        other => (other, Mode::Driver),
    };
    let link = attached.map_err(|error| {
        if is_taken(&error) {
            return BpfError::Occupied { device: device.name.clone() };
        }
        loaded.error(format!("attach to {}", device.name), &error)
    })?;
    Ok((link, mode))
}

fn attach_in(loaded: &mut Loaded, device: &Link, mode: XdpMode) -> Result<FdLink, ProgramError> {
    let program = <&mut Xdp>::try_from(loaded.program())?;
    let id = program.attach_to_if_index(device.index, mode)?;
    let link = program.take_link(id)?;
    // If the kernel takes no link, the loader attaches by netlink, and the program would outlive this process.
    FdLink::try_from(link).map_err(|_| ProgramError::NotAttached)
}

/// Tells whether the device has another program, in the same mode or in the other.
fn is_taken(error: &ProgramError) -> bool {
    let code = errno(error).and_then(|error| error.raw_os_error());
    [Errno::BUSY, Errno::EXIST].iter().any(|errno| code == Some(errno.raw_os_error()))
}

/// Loads an object's XDP program.
pub(crate) fn load(loaded: &mut Loaded) -> Result<(), BpfError> {
    <&mut Xdp>::try_from(loaded.program())
        .and_then(Xdp::load)
        .map_err(|error| loaded.error("load an XDP program", &error))
}
