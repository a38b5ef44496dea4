//! The common parts of the tests: packets, two networks, cgroups, and the reason to skip. The guard's tests use it too.
#![allow(dead_code, reason = "each test program uses its own part of this")]

pub mod packet;
pub mod wire;

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;

use bpf::BpfError;
use sys::network::netlink::{Link, Route};
use sys::network::netns::NetworkNamespace;

/// The server's address in [`Networks`].
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 1);
/// The client's.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 2);
/// The server's device, and the client's.
pub const DEVICE: &str = "veth0";

/// Returns the value, or prints a reason to skip the test if the machine does not allow it.
pub fn or_skip<T>(made: Result<T, BpfError>) -> Option<T> {
    match made {
        Ok(value) => Some(value),
        Err(error @ (BpfError::Capability { .. } | BpfError::Refused { .. } | BpfError::Kernel { .. })) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Two network namespaces with a veth pair between them, or the printed reason why there are none.
pub struct Networks {
    pub server: NetworkNamespace,
    pub client: NetworkNamespace,
}

impl Networks {
    pub fn create() -> Option<Networks> {
        let (server, client) = (namespace()?, namespace()?);
        let mut route = server.enter(Route::open).unwrap().unwrap();
        route.create_veth(DEVICE, client.as_fd(), DEVICE).unwrap();
        for (namespace, address) in [(&server, SERVER), (&client, CLIENT)] {
            let mut route = namespace.enter(Route::open).unwrap().unwrap();
            let link = route.link_index(DEVICE).unwrap();
            route.add_address(link, address, 24).unwrap();
            route.set_up(link).unwrap();
        }
        Some(Networks { server, client })
    }
}

/// A network namespace whose loopback device is up, or the printed reason why there is none.
pub fn namespace() -> Option<NetworkNamespace> {
    let namespace = NetworkNamespace::create()
        .inspect_err(|error| println!("skipped: no network namespaces here: {error}"))
        .ok()?;
    let mut route = namespace.enter(Route::open).unwrap().unwrap();
    route.set_up(1).unwrap();
    Some(namespace)
}

/// A device of a namespace, by its name.
pub fn device(namespace: &NetworkNamespace, name: &str) -> Link {
    let mut route = namespace.enter(Route::open).unwrap().unwrap();
    route.links().unwrap().into_iter().find(|link| link.name == name).expect("the device is there")
}

/// The folder of the cgroup2 hierarchy, or the printed reason to skip the test.
pub fn cgroup_root() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let mut fields = mounts.lines().map(|line| line.split(' '));
    let root = fields.find_map(|mut fields| match (fields.nth(1), fields.next()) {
        (Some(folder), Some("cgroup2")) => Some(PathBuf::from(folder)),
        _ => None,
    });
    if root.is_none() {
        println!("skipped: no cgroup2 hierarchy is mounted here");
    }
    root
}

/// The folder of this process's cgroup.
pub fn own_cgroup() -> Option<PathBuf> {
    let root = cgroup_root()?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    Some(root.join(path))
}
