//! Attachment of an XDP program to a device, by a link that dies with this process.

use std::io;
use std::os::fd::OwnedFd;

use aya::programs::Xdp;
use rustix::io::Errno;
use sys::bpf::AttachPoint;
use sys::network::netlink::Link;

use crate::error::BpfError;
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
/// [`BpfError::NotEthernet`], [`BpfError::Occupied`], [`BpfError::System`].
pub(crate) fn attach(loaded: &Loaded, device: &Link) -> Result<(OwnedFd, Mode), BpfError> {
    if !device.ethernet {
        return Err(BpfError::NotEthernet { device: device.name.clone() });
    }
    let (attached, mode) = match loaded.attach(loaded.name, device, AttachPoint::XdpDriver) {
        // The driver has no XDP, or not with the device's present settings.
        Err(error) if !is_taken(&error) => {
            (loaded.attach(loaded.name, device, AttachPoint::XdpGeneric), Mode::Generic)
        }
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

/// Tells whether the device has another program, in the same mode or in the other.
fn is_taken(error: &io::Error) -> bool {
    [Errno::BUSY, Errno::EXIST].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Loads an object's XDP program.
pub(crate) fn load(loaded: &mut Loaded) -> Result<(), BpfError> {
    <&mut Xdp>::try_from(loaded.program())
        .and_then(Xdp::load)
        .map_err(|error| loaded.error("load an XDP program", &error))
}
