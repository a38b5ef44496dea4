//! The reasons why a listener cannot be guarded, in one line each that ends with the next step.

use std::io;

use bpf::BpfError;
use thiserror::Error;

use crate::address::Address;

/// A failure to find or guard a listener.
#[derive(Debug, Error)]
pub enum GuardError {
    /// Neither an address nor a server.
    #[error("name a listener: an address such as :8080, --pid, --unit, --cgroup or --container")]
    NoAddress,
    /// The named server is not there.
    #[error("{0}")]
    NoServer(String),
    /// The server is there, and does not listen.
    #[error(
        "{place} has no TCP listener{}: start the server first, or `inrush guard --observe` lists all listeners",
        at(address)
    )]
    NoListener {
        /// Where it was looked for.
        place: String,
        /// The wanted address.
        address: Option<Address>,
    },
    /// The server listens at several ports.
    #[error("process {pid} listens at the ports {ports:?}: name one of them, such as `inrush guard :{} --pid {pid}`", ports[0])]
    ManyPorts {
        /// The process.
        pid: i32,
        /// Its ports.
        ports: Vec<u16>,
    },
    /// No cgroup2 file system.
    #[error(
        "no cgroup2 hierarchy is mounted: `mount -t cgroup2 none /sys/fs/cgroup/unified`, or use --signal queue"
    )]
    NoHierarchy,
    /// The listener's cgroup is not below the mount.
    #[error(
        "the listener's cgroup is not below the mounted cgroup2 hierarchy: run the guard outside of its container, or use --signal queue"
    )]
    NoCgroup,
    /// A program of BPF failed.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// A sink failed.
    #[error("a sink beside the listener cannot {what}: {cause}")]
    Sink {
        /// The failed step, with the right that it needs.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
    /// A sink beside several listeners.
    #[error(
        "a sink works beside one listener, and there are {listeners} at the address: use --hook cgroup, tc or xdp"
    )]
    SinkBesideGroup {
        /// Their number.
        listeners: usize,
    },
    /// Only one hook can answer.
    #[error(
        "--refuse rst needs the hook tc: at a cgroup, in XDP and beside a sink a refused SYN can only be dropped"
    )]
    CannotReset,
    /// No visible process holds the listener.
    #[error("a sink needs a copy of the listener, and no visible process holds it: run the guard as root")]
    SinkNoOwner,
    /// Neither automatic hook works.
    #[error("nothing here can refuse connections: {cgroup}; {sink}")]
    NoHook {
        /// The obstacle at the cgroup.
        cgroup: String,
        /// The obstacle to a sink.
        sink: String,
    },
    /// The starter has a reason, or has ended.
    #[error("{0}")]
    Starter(String),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

fn at(address: &Option<Address>) -> String {
    address.map_or(String::new(), |address| format!(" at {address}"))
}
