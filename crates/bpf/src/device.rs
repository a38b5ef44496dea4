//! The addresses of listeners, and the devices that have them. Packets to an address may also come in by other devices.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use rustix::net::sockopt;
use sys::network::netlink::{Link, LinkAddress, Route};
use sys::socket::local_address;

use crate::error::{BpfError, system};

/// The addresses that listeners are reached at, and the devices that have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Listening addresses. A listener that is bound to all addresses has one for each address of a device.
    pub addresses: BTreeSet<SocketAddr>,
    /// The devices in the order of their numbers. Loopback is always among them, for clients on this machine.
    pub devices: Vec<Link>,
}

/// Finds the addresses and devices of listeners, in the network namespace of the calling thread. Addresses that a
/// device gets later are missing.
///
/// # Errors
/// [`BpfError::NoDevice`] for a listener at an address that no device has, and the failures of netlink.
pub fn reach_of(listeners: &[BorrowedFd<'_>]) -> Result<Reach, BpfError> {
    Surroundings::of(listeners)?.whole_reach()
}

/// The addresses of listeners, and a look at the devices of a network namespace, which may change.
pub(crate) struct Surroundings {
    route: Route,
    bound: Vec<Bound>,
}

impl Surroundings {
    /// The surroundings of listeners, in the network namespace of the calling thread.
    pub fn of(listeners: &[BorrowedFd<'_>]) -> Result<Surroundings, BpfError> {
        let bound = listeners.iter().map(|listener| bound_to(*listener)).collect::<Result<_, _>>();
        Surroundings::of_bound(bound.map_err(system("read the address of a listener"))?)
    }

    /// The surroundings of sockets that are bound so, in the network namespace of the calling thread.
    pub fn of_bound(bound: Vec<Bound>) -> Result<Surroundings, BpfError> {
        let route = Route::open().map_err(system("ask the kernel for its devices"))?;
        Ok(Surroundings { route, bound })
    }

    /// Finds the present addresses and devices. An address that no device has now is missing.
    pub fn reach(&mut self) -> Result<Reach, BpfError> {
        let asking = || system("ask the kernel for its devices");
        let links = self.route.links().map_err(asking())?;
        let known = self.route.addresses().map_err(asking())?;
        Ok(reach(&self.bound, links, &known))
    }

    /// Finds the present addresses and devices.
    ///
    /// # Errors
    /// [`BpfError::NoDevice`] for a listener at an address that no device has.
    pub fn whole_reach(&mut self) -> Result<Reach, BpfError> {
        let reach = self.reach()?;
        let has = |bound: &&Bound| reach.addresses.iter().any(|address| bound.takes(address.ip()));
        match self.bound.iter().find(|bound| !has(bound)) {
            Some(bound) => Err(BpfError::NoDevice { address: bound.address }),
            None => Ok(reach),
        }
    }
}

fn reach(bounds: &[Bound], links: Vec<Link>, known: &[LinkAddress]) -> Reach {
    let mut reach = Reach::default();
    let mut devices: BTreeSet<u32> = loopback(&links).collect();
    for bound in bounds {
        let mut found: Vec<LinkAddress> =
            known.iter().filter(|known| bound.takes(known.address)).copied().collect();
        if found.is_empty() && bound.address.is_loopback() {
            // All of 127.0.0.0/8 is local, although the device has only one address of it.
            found.extend(loopback(&links).map(|link| LinkAddress { link, address: bound.address }));
        }
        for LinkAddress { link, address } in found {
            reach.addresses.insert(SocketAddr::new(address, bound.port));
            devices.insert(link);
        }
    }
    reach.devices = links.into_iter().filter(|link| devices.contains(&link.index)).collect();
    reach
}

fn loopback(links: &[Link]) -> impl Iterator<Item = u32> {
    links.iter().filter(|link| link.name == "lo").map(|link| link.index)
}

/// The addresses that a socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// One address, or all of a family.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// True for an IPv6 socket that also takes IPv4.
    pub dual: bool,
}

impl Bound {
    fn takes(&self, address: IpAddr) -> bool {
        if self.address.is_unspecified() {
            return self.dual || self.address.is_ipv4() == address.is_ipv4();
        }
        self.address == address
    }
}

fn bound_to(listener: BorrowedFd<'_>) -> std::io::Result<Bound> {
    let address = local_address(listener)?;
    let dual = address.is_ipv6() && !sockopt::ipv6_v6only(listener)?;
    Ok(Bound { address: address.ip().to_canonical(), port: address.port(), dual })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    fn reach(listener: &TcpListener) -> Result<Reach, BpfError> {
        reach_of(&[listener.as_fd()])
    }

    #[test]
    fn a_listener_on_loopback_is_reached_there_alone() {
        for text in ["127.0.0.1:0", "127.3.2.1:0"] {
            let listener = TcpListener::bind(text).unwrap();
            let reach = reach(&listener).unwrap();
            assert_eq!(reach.addresses, BTreeSet::from([listener.local_addr().unwrap()]));
            assert_eq!(reach.devices.iter().map(|link| &*link.name).collect::<Vec<_>>(), ["lo"]);
        }
    }

    #[test]
    fn a_listener_everywhere_is_reached_at_each_address() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let reach = reach(&listener).unwrap();
        assert!(reach.addresses.contains(&SocketAddr::from(([127, 0, 0, 1], port))));
        assert!(reach.addresses.iter().all(|address| address.is_ipv4() && address.port() == port));
    }

    #[test]
    fn a_listener_of_both_families_is_reached_by_both() {
        let listener = match TcpListener::bind("[::]:0") {
            Ok(listener) => listener,
            Err(error) => return println!("skipped: no IPv6 here: {error}"),
        };
        let port = listener.local_addr().unwrap().port();
        let reach = reach(&listener).unwrap();
        assert!(reach.addresses.contains(&SocketAddr::from(([127, 0, 0, 1], port))), "{reach:?}");
        assert!(reach.addresses.iter().all(|address| !address.ip().is_unspecified()));
    }
}
