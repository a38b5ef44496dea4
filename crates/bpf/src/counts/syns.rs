//! The SYNs that arrive at devices, those that the kernel drops among them.
//!
//! Owns `programs/syns.c` and its links to traffic control at the ingress. A packet that passes two of the devices counts twice.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use sys::bpf::AttachPoint;
use sys::network::netlink::Link;
use sys::shared::SharedArray;

use crate::error::BpfError;
use crate::object::{Loaded, Object, object};
use crate::tc;

const SYNS: Object = object!("syns", "counting SYNs");

/// The program. It counts until it is dropped.
pub struct Syns {
    arrived: SharedArray<AtomicU64>,
    loaded: Loaded,
    links: Vec<OwnedFd>,
}

impl Syns {
    /// Loads the program and begins to count at devices of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`BpfError::Capability`], [`BpfError::Refused`], [`BpfError::System`], and [`BpfError::Kernel`] without tcx.
    pub fn watch(devices: &[Link]) -> Result<Syns, BpfError> {
        let mut syns = Syns::load()?;
        devices.iter().try_for_each(|device| syns.attach(device))?;
        Ok(syns)
    }

    /// Loads the program, which is attached to no device yet.
    pub(crate) fn load() -> Result<Syns, BpfError> {
        let mut loaded = SYNS.load(|_| ())?;
        tc::load(&mut loaded, SYNS.name)?;
        let arrived = loaded.share("state")?;
        Ok(Syns { arrived, loaded, links: Vec::new() })
    }

    /// Begins to count at a device of the calling thread's network namespace.
    pub(crate) fn attach(&mut self, device: &Link) -> Result<(), BpfError> {
        self.links.push(tc::attach(&self.loaded, SYNS.name, device, AttachPoint::TcIngress)?);
        Ok(())
    }

    /// SYNs that arrived since the beginning.
    pub fn arrived(&self) -> u64 {
        self.arrived[0].load(Ordering::Relaxed)
    }
}
