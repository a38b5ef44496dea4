//! A test of each program on this machine, in an empty network namespace.

use std::io;
use std::os::fd::AsFd;

use base::Nanos;
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;
use sys::network::netlink::{Link, Route};
use sys::network::netns::NetworkNamespace;

use crate::admission::{Admission, Exempt, Hook, Queues};
use crate::counts::{FinalAcks, Syns};
use crate::error::{BpfError, NEEDS_PERFMON, system};
use crate::guard::Guard;
#[cfg(feature = "kernel-cache")]
use crate::kernel_cache::{KernelCache, Limits};
use crate::steering::{Schedule, Steering};
use crate::xsk_redirect::XskRedirect;

/// The availability of one program on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facility {
    /// The program's purpose.
    pub name: &'static str,
    /// The obstacle; `None` if the program runs.
    pub missing: Option<String>,
}

/// Loads each program, and attaches it to a socket or to the loopback device of a network namespace of its own.
/// Touches no network. Takes some ten milliseconds. Without CAP_SYS_ADMIN, which the namespace needs and the programs do
/// not, a program that loads counts as usable.
pub fn probe() -> Vec<Facility> {
    let facility = |name, tried: Result<(), BpfError>| Facility {
        name,
        missing: tried.err().map(|error| error.to_string()),
    };
    Vec::from([
        facility("admission in tc", admission(Hook::Tc)),
        facility("admission in XDP", admission(Hook::Xdp)),
        facility("the guard at a cgroup", probe_guard()),
        facility("steering at connect time", steering()),
        facility("redirection to AF_XDP", redirection()),
        #[cfg(feature = "kernel-cache")]
        facility("the kernel cache", kernel_cache()),
        facility("counting drops at the final ACK", final_acks()),
        facility("counting SYNs", syns()),
    ])
}

/// Runs `work` on the loopback device of an empty network namespace.
fn on_loopback(work: impl FnOnce(&Link) -> Result<(), BpfError> + Send) -> Result<(), BpfError> {
    let making = "make a network namespace to try it in";
    let namespace = match NetworkNamespace::create() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        created => created.map_err(system(making))?,
    };
    let tried = namespace.enter(|| {
        let mut route = Route::open().map_err(system(making))?;
        let links = route.links().map_err(system(making))?;
        work(links.first().expect("every network namespace has a loopback device"))
    });
    tried.map_err(system(making))?
}

/// Loads the program that watches drops. Tracing needs a capability that the other programs do without.
fn final_acks() -> Result<(), BpfError> {
    let watched = FinalAcks::watch().map(drop);
    let tracing = CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
    let may_trace = capabilities(None).is_ok_and(|held| held.effective.intersects(tracing));
    match watched {
        Err(BpfError::Refused { purpose }) if !may_trace => {
            Err(BpfError::System { operation: format!("try {purpose}"), detail: NEEDS_PERFMON.to_owned() })
        }
        watched => watched,
    }
}

fn syns() -> Result<(), BpfError> {
    let mut syns = Syns::load()?;
    on_loopback(|loopback| syns.attach(loopback))
}

fn admission(hook: Hook) -> Result<(), BpfError> {
    let mut admission = Admission::load(hook, &Queues::one())?;
    on_loopback(|loopback| admission.attach(loopback).map(drop))
}

/// Loads the guard's programs. They are attached to no cgroup, since every packet there would meet them.
///
/// # Errors
/// The kernel's, or those of the rights.
pub fn probe_guard() -> Result<(), BpfError> {
    Guard::load(([127, 0, 0, 1], 1).into(), Nanos::SECOND, 0, &Exempt::NONE).map(drop)
}

fn steering() -> Result<(), BpfError> {
    let mut steering = Steering::load(Schedule::Random, 1)?;
    let listener = lone_listener().map_err(system("listen on loopback"))?;
    steering.add_address(listener.as_fd()).map(drop)
}

/// Opens a listener on loopback that others could join.
fn lone_listener() -> std::io::Result<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &std::net::SocketAddr::from(([127, 0, 0, 1], 0)))?;
    listen(&socket, 1)?;
    Ok(socket)
}

fn redirection() -> Result<(), BpfError> {
    let mut redirect = XskRedirect::load([10, 0, 0, 0].into(), 8)?;
    on_loopback(|loopback| redirect.attach(loopback).map(drop))
}

#[cfg(feature = "kernel-cache")]
fn kernel_cache() -> Result<(), BpfError> {
    let limits = Limits { objects: 1, requests: 1, connections: 1 };
    let mut cache = KernelCache::load(limits, 0)?;
    on_loopback(|loopback| cache.attach(loopback))
}
