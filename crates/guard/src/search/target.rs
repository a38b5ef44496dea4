//! The search for the listener that the user means.
//!
//! ```text
//!   :PORT, ADDR:PORT ────────────────────────────────────┐
//!   --pid ─────────────────────────────> process ──┐     │
//!   --unit, --container ──> cgroup ──> processes ──┴─> their network namespace, their listeners ──> a place
//!   --cgroup ─────────────────^
//! ```
//!
//! Owns the way from a name to a [`Place`]: a network namespace and an address in it. The place is fixed from then on; the
//! listeners there may come and go.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sys::network::netlink::{Listener, SocketDiagnostics};
use sys::network::netns::NetworkNamespace;

use crate::GuardError;
use crate::address::Address;
use crate::search::cgroup::{Hierarchy, processes};
use crate::search::owner;

/// The server, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// The one that listens at the address.
    AtAddress,
    /// A process.
    Process(i32),
    /// A systemd unit.
    Unit(String),
    /// A cgroup, by its path.
    Cgroup(PathBuf),
    /// A container, by the start of its identifier.
    Container(String),
}

/// An address in a network namespace.
#[derive(Debug)]
pub struct Place {
    /// The listeners' address.
    pub address: Address,
    /// Their network namespace, unless it is this process's own.
    pub namespace: Option<NetworkNamespace>,
}

impl Place {
    /// Finds the place of a server's listener. Without an address, the server must listen at one port alone.
    ///
    /// # Errors
    /// [`GuardError::NoServer`], [`GuardError::NoListener`], [`GuardError::ManyPorts`], [`GuardError::System`].
    pub fn find(server: &Server, address: Option<Address>) -> Result<Place, GuardError> {
        let pids = match server {
            Server::AtAddress => {
                let address = address.ok_or(GuardError::NoAddress)?;
                return Ok(Place { address, namespace: None });
            }
            Server::Process(pid) => vec![*pid],
            Server::Unit(unit) => of_folder(&format!("the unit {unit}"), |groups| groups.of_unit(unit))?,
            Server::Cgroup(path) => {
                of_folder(&format!("the cgroup {}", path.display()), |groups| Some(groups.at(path)))?
            }
            Server::Container(id) => {
                of_folder(&format!("the container {id}"), |groups| groups.of_container(id))?
            }
        };
        let pid = pids
            .first()
            .copied()
            .ok_or_else(|| GuardError::NoServer(format!("{server:?} has no process")))?;
        let namespace = namespace_of(pid)?;
        let sockets: Vec<u32> =
            pids.iter().flat_map(|pid| owner::sockets(*pid)).map(|(_, inode)| inode).collect();
        let place = Place { address: address.unwrap_or(Address { ip: None, port: 0 }), namespace };
        let found = place.within(move || -> io::Result<Vec<Listener>> {
            let mut diagnostics = SocketDiagnostics::open()?;
            let port = address.map_or(0, |address| address.port);
            Ok([diagnostics.listeners(port)?, diagnostics.mptcp_listeners(port)?].concat())
        })??;
        let theirs: Vec<&Listener> = found
            .iter()
            .filter(|listener| sockets.contains(&listener.inode))
            .filter(|listener| address.is_none_or(|address| address.is_taken_by(listener)))
            .collect();
        let mut ports: Vec<u16> = theirs.iter().map(|listener| listener.address.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        match (ports.as_slice(), address) {
            ([], _) => Err(GuardError::NoListener { place: format!("process {pid}"), address }),
            (_, Some(address)) => Ok(Place { address, ..place }),
            ([port], None) => Ok(Place { address: Address { ip: only_ip(&theirs), port: *port }, ..place }),
            (ports, None) => Err(GuardError::ManyPorts { pid, ports: ports.to_vec() }),
        }
    }

    /// Runs `work` in the place's network namespace.
    ///
    /// # Errors
    /// The errors of entering it.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.namespace {
            Some(namespace) => namespace.enter(work),
            None => Ok(work()),
        }
    }
}

/// The address of listeners that are all bound to the same one; `None` for every address. Another server may have the port
/// at another address.
fn only_ip(listeners: &[&Listener]) -> Option<IpAddr> {
    let ip = listeners.first()?.address.ip().to_canonical();
    let is_common = listeners.iter().all(|listener| listener.address.ip().to_canonical() == ip);
    (is_common && !ip.is_unspecified()).then_some(ip)
}

/// The processes of a cgroup's folder.
fn of_folder(what: &str, find: impl FnOnce(&Hierarchy) -> Option<PathBuf>) -> Result<Vec<i32>, GuardError> {
    let hierarchy = Hierarchy::find()?.ok_or(GuardError::NoHierarchy)?;
    let folder =
        find(&hierarchy).ok_or_else(|| GuardError::NoServer(format!("no cgroup here is that of {what}")))?;
    let found =
        processes(&folder).map_err(|error| GuardError::NoServer(format!("cannot read {what}: {error}")))?;
    match found.is_empty() {
        true => Err(GuardError::NoServer(format!("{what} has no process"))),
        false => Ok(found),
    }
}

/// The network namespace of a process, unless it is this process's own.
fn namespace_of(pid: i32) -> Result<Option<NetworkNamespace>, GuardError> {
    let place = format!("/proc/{pid}/ns/net");
    let number = |path: &str| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    match number(&place) {
        Ok(theirs) if number("/proc/self/ns/net") == Ok(theirs) => Ok(None),
        Ok(_) => Ok(Some(NetworkNamespace::of_another(Path::new(&place))?)),
        Err(rustix::io::Errno::NOENT) => Err(GuardError::NoServer(format!("there is no process {pid}"))),
        Err(errno) => Err(io::Error::from(errno).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_address_of_a_server_is_guarded_alone() {
        let ip = |addresses: &[&str]| {
            let listener = |address: &&str| crate::address::tests::listener(address, false);
            let listeners: Vec<Listener> = addresses.iter().map(listener).collect();
            only_ip(&listeners.iter().collect::<Vec<_>>())
        };
        assert_eq!(ip(&["10.0.0.1:80", "10.0.0.1:80"]), Some([10, 0, 0, 1].into()));
        assert_eq!(ip(&["[::ffff:10.0.0.1]:80"]), Some([10, 0, 0, 1].into()));
        assert_eq!(ip(&["10.0.0.1:80", "10.0.0.2:80"]), None);
        assert_eq!(ip(&["0.0.0.0:80", "[::]:80"]), None);
    }
}
