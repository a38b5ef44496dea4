//! Loading of the objects under `programs/`, and the memory that they share with this process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use aya::maps::{Map, MapData};
use aya::programs::Program;
use aya::{Ebpf, EbpfLoader};
use rustix::thread::{CapabilitySet, capabilities};
use sys::bpf::{AttachPoint, CgroupPackets};
use sys::network::netlink::Link;
use sys::shared::SharedArray;

use crate::error::{BpfError, from_loader, system};

/// An object under `programs/`, with the purpose of its program.
pub(crate) struct Object {
    /// The name of the object and of its program.
    pub name: &'static str,
    /// The program's purpose, for errors.
    pub purpose: &'static str,
    /// The content of the file.
    pub bytes: &'static [u8],
}

/// The checked-in object of this name.
macro_rules! object {
    ($name:literal, $purpose:literal) => {
        $crate::object::Object {
            name: $name,
            purpose: $purpose,
            bytes: aya::include_bytes_aligned!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/programs/",
                $name,
                ".o"
            )),
        }
    };
}
pub(crate) use object;

impl Object {
    /// Makes the object's maps; its program is loaded by [`program`](Loaded::program). `configure` sets map sizes.
    pub fn load<'a>(&self, configure: impl FnOnce(&mut EbpfLoader<'a>)) -> Result<Loaded, BpfError> {
        self.load_with(configure, &[])
    }

    /// As [`load`](Self::load), with values for the constants that the object leaves open.
    pub fn load_with<'a>(
        &self,
        configure: impl FnOnce(&mut EbpfLoader<'a>),
        constants: &'a [(&'static str, u32)],
    ) -> Result<Loaded, BpfError> {
        check_capabilities(self.purpose)?;
        let mut loader = EbpfLoader::new();
        // No program depends on the layout of the kernel's own structures.
        loader.btf(None);
        configure(&mut loader);
        for (name, value) in constants {
            loader.override_global(name, value, true);
        }
        let ebpf =
            loader.load(self.bytes).map_err(|error| self.error(format!("load {}", self.name), &error))?;
        Ok(Loaded { ebpf, name: self.name, purpose: self.purpose })
    }

    fn error(&self, operation: String, error: &(dyn std::error::Error + 'static)) -> BpfError {
        from_loader(self.purpose, operation, error)
    }
}

/// An object whose maps are in the kernel.
pub(crate) struct Loaded {
    ebpf: Ebpf,
    /// The object's name, and that of its only program if it has one.
    pub name: &'static str,
    /// The program's purpose, for errors.
    pub purpose: &'static str,
}

impl Loaded {
    /// Returns the program with the object's name.
    pub fn program(&mut self) -> &mut Program {
        self.program_named(self.name)
    }

    /// Returns one of the object's programs.
    pub fn program_named(&mut self, name: &str) -> &mut Program {
        self.ebpf.program_mut(name).unwrap_or_else(|| panic!("{} has a program {name}", self.name))
    }

    /// Attaches one of the object's loaded programs to a device.
    pub fn attach(&self, program: &str, device: &Link, point: AttachPoint) -> io::Result<OwnedFd> {
        sys::bpf::attach(self.descriptor(program)?, device.index, point)
    }

    /// Attaches one of the object's loaded programs to a cgroup.
    pub fn attach_to_cgroup(
        &self,
        program: &str,
        cgroup: BorrowedFd<'_>,
        packets: CgroupPackets,
    ) -> io::Result<OwnedFd> {
        sys::bpf::attach_to_cgroup(self.descriptor(program)?, cgroup, packets)
    }

    fn descriptor(&self, program: &str) -> io::Result<BorrowedFd<'_>> {
        let program =
            self.ebpf.program(program).unwrap_or_else(|| panic!("{} has a program {program}", self.name));
        Ok(program.fd().map_err(io::Error::other)?.as_fd())
    }

    /// Takes a map out, whole.
    pub fn take_map(&mut self, name: &str) -> Map {
        self.ebpf.take_map(name).unwrap_or_else(|| panic!("{} declares a map {name}", self.name))
    }

    /// Maps an array, which the program reads and writes, into this process.
    pub fn share(&mut self, name: &str) -> Result<SharedArray<AtomicU64>, BpfError> {
        let Map::Array(data) = self.take_map(name) else { panic!("{} shares arrays alone", self.name) };
        share(&data).map_err(system(format!("map the memory of {name}")))
    }

    /// Converts an error of the loader, with the failed operation.
    pub fn error(&self, operation: impl Into<String>, error: &(dyn std::error::Error + 'static)) -> BpfError {
        from_loader(self.purpose, operation, error)
    }

    /// Runs the program on a packet that reaches no network.
    pub fn test_run(&self, packet: &[u8], repeat: u32) -> Result<sys::bpf::TestRun, BpfError> {
        let program = self.ebpf.program(self.name).expect("an object has a program of its own name");
        let program = program.fd().map_err(|error| self.error("run an unloaded program", &error))?;
        sys::bpf::test_run(program.as_fd(), packet, repeat).map_err(system("run a program on a packet"))
    }
}

fn share(map: &MapData) -> std::io::Result<SharedArray<AtomicU64>> {
    SharedArray::open(map.fd().as_fd().try_clone_to_owned()?)
}

/// True if this thread has the capabilities to load network programs. The kernel may still refuse.
pub fn has_capabilities() -> bool {
    check_capabilities("loading a program").is_ok()
}

/// Checks that this thread may load network programs.
fn check_capabilities(purpose: &'static str) -> Result<(), BpfError> {
    let held = capabilities(None).map_err(|errno| system("read our capabilities")(errno.into()))?.effective;
    // Until Linux 5.8, CAP_SYS_ADMIN stood for both. It still stands for CAP_BPF.
    let bpf = held.intersects(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN);
    let net_admin = held.contains(CapabilitySet::NET_ADMIN);
    let missing = match (bpf, net_admin) {
        (true, true) => return Ok(()),
        (true, false) => "CAP_NET_ADMIN",
        (false, true) => "CAP_BPF",
        (false, false) => "both",
    };
    Err(BpfError::Capability { purpose, missing })
}
