//! The addresses of listeners, and the devices that bring packets to them.
//!
//! Linux takes a packet to any of its addresses from any device (the weak host model of RFC 1122, section 3.3.4.2). So
//! every device of the network namespace reaches a listener, with three exceptions:
//!
//! - Only `lo` reaches a listener on loopback: the kernel drops packets to 127.0.0.0/8 and ::1 from other devices.
//! - A device that is down is left out until it is up, unless it has an address of the listeners.
//! - A device with a master is left out. Its bridge, bond or team gets its packets instead of IP, so a program on both
//!   would charge a packet twice. Packets that ebtables takes off a bridge's port (`broute`) are missed. The members of a
//!   VRF keep their packets, and are not left out.
//!
//! Devices on top of others bring a packet that the lower device has brought. The programs pass a packet with a VLAN tag,
//! so they charge it once. They charge a packet twice that comes by an ipvlan device, or in XDP by a macvlan device or a
//! VLAN device whose tags the hardware removes. Neither device can be left out: each has packets of its own.

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
    /// Loopback, for clients on this machine, and the devices that have one of the addresses. In the order of their numbers.
    pub owners: Vec<Link>,
    /// The other devices that may bring packets to the addresses, in the order of their numbers.
    pub others: Vec<Link>,
}

impl Reach {
    /// All devices that may bring packets to the addresses.
    pub fn devices(&self) -> impl Iterator<Item = &Link> {
        self.owners.iter().chain(&self.others)
    }
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
    let mut owners: BTreeSet<u32> = loopback(&links).collect();
    for bound in bounds {
        let mut found: Vec<LinkAddress> =
            known.iter().filter(|known| bound.takes(known.address)).copied().collect();
        if found.is_empty() && bound.address.is_loopback() {
            // All of 127.0.0.0/8 is local, although the device has only one address of it.
            found.extend(loopback(&links).map(|link| LinkAddress { link, address: bound.address }));
        }
        for LinkAddress { link, address } in found {
            reach.addresses.insert(SocketAddr::new(address, bound.port));
            owners.insert(link);
        }
    }
    let is_reached_from_others = reach.addresses.iter().any(|address| !address.ip().is_loopback());
    for link in links.into_iter().filter(|link| link.master.is_none()) {
        if owners.contains(&link.index) {
            reach.owners.push(link);
        } else if is_reached_from_others && link.is_up {
            reach.others.push(link);
        }
    }
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

    fn reach_of_one(listener: &TcpListener) -> Reach {
        reach_of(&[listener.as_fd()]).unwrap()
    }

    fn link(index: u32, name: &str) -> Link {
        Link { index, name: name.to_owned(), ethernet: true, is_up: true, master: None }
    }

    /// The names of the owners and of the other devices of a listener, in a namespace with these links and addresses.
    fn devices_of(listener: &str, links: &[Link], known: &[(u32, &str)]) -> [Vec<String>; 2] {
        let bound = Bound { address: listener.parse().unwrap(), port: 80, dual: false };
        let known: Vec<LinkAddress> = known
            .iter()
            .map(|(link, address)| LinkAddress { link: *link, address: address.parse().unwrap() })
            .collect();
        let found = reach(&[bound], links.to_vec(), &known);
        [found.owners, found.others].map(|links| links.into_iter().map(|link| link.name).collect())
    }

    #[test]
    fn devices_without_the_address_are_others() {
        let links = [link(1, "lo"), link(2, "eth0"), link(3, "tun0")];
        let known = [(1, "127.0.0.1"), (1, "10.0.0.9"), (2, "10.0.0.1"), (3, "fe80::3"), (1, "::1")];
        for (listener, owners, others) in [
            ("10.0.0.9", &["lo"][..], &["eth0", "tun0"][..]),
            ("10.0.0.1", &["lo", "eth0"], &["tun0"]),
            ("0.0.0.0", &["lo", "eth0"], &["tun0"]),
            ("::", &["lo", "tun0"], &["eth0"]),
            ("127.0.0.1", &["lo"], &[]),
            ("::1", &["lo"], &[]),
        ] {
            let found = devices_of(listener, &links, &known);
            assert_eq!(found, [owners, others].map(<[&str]>::to_vec), "{listener}");
        }
    }

    #[test]
    fn devices_that_are_down_wait_unless_they_own() {
        let down = |index, name| Link { is_up: false, ..link(index, name) };
        let links = [link(1, "lo"), down(2, "eth0"), down(3, "eth1")];
        let found = devices_of("10.0.0.1", &links, &[(2, "10.0.0.1"), (3, "10.0.1.1")]);
        assert_eq!(found, [vec!["lo", "eth0"], vec![]]);
    }

    #[test]
    fn devices_with_a_master_leave_packets_to_it() {
        let links = [link(1, "lo"), Link { master: Some(3), ..link(2, "eth0") }, link(3, "br0")];
        for (address, owners, others) in [
            ((3, "10.0.0.1"), &["lo", "br0"][..], &[][..]),
            ((1, "10.0.0.1"), &["lo"], &["br0"]),
            ((2, "10.0.0.1"), &["lo"], &["br0"]),
        ] {
            let found = devices_of("10.0.0.1", &links, &[address]);
            assert_eq!(found, [owners, others].map(<[&str]>::to_vec), "{address:?}");
        }
    }

    #[test]
    fn a_listener_on_loopback_is_reached_there_alone() {
        for text in ["127.0.0.1:0", "127.3.2.1:0"] {
            let listener = TcpListener::bind(text).unwrap();
            let reach = reach_of_one(&listener);
            assert_eq!(reach.addresses, BTreeSet::from([listener.local_addr().unwrap()]));
            assert_eq!(reach.devices().map(|link| &*link.name).collect::<Vec<_>>(), ["lo"]);
        }
    }

    #[test]
    fn a_listener_everywhere_is_reached_at_each_address() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let reach = reach_of_one(&listener);
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
        let reach = reach_of_one(&listener);
        assert!(reach.addresses.contains(&SocketAddr::from(([127, 0, 0, 1], port))), "{reach:?}");
        assert!(reach.addresses.iter().all(|address| !address.ip().is_unspecified()));
    }
}
