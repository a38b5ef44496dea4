//! The links of a network namespace, and their addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{LINK_LENGTH, Request, Route, find_attribute, too_short, u16_at, u32_at};

/// `struct ifaddrmsg`: family, prefix length, flags, scope, link.
const ADDRESS_LENGTH: usize = 8;
// From <linux/if_arp.h>: the links whose packets begin with an Ethernet header.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The link's number in its namespace.
    pub index: u32,
    /// The link's name.
    pub name: String,
    /// True if the link's packets begin with an Ethernet header; those of a TUN device do not.
    pub ethernet: bool,
}

/// An address of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The link's number.
    pub link: u32,
    /// The link's own address, not its peer's.
    pub address: IpAddr,
}

impl Route {
    /// The links of the namespace, up or down.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let mut request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP);
        request.put_link(0, 0, 0);
        let mut links = Vec::new();
        self.socket.ask("list the links", request, |payload| {
            let attributes = payload.get(LINK_LENGTH..).ok_or_else(too_short)?;
            let name = find_attribute(attributes, libc::IFLA_IFNAME)?.ok_or_else(too_short)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            links.push(Link {
                index: u32_at(payload, 4)?,
                name: String::from_utf8_lossy(name).into_owned(),
                ethernet: matches!(u16_at(payload, 2)?, ARPHRD_ETHER | ARPHRD_LOOPBACK),
            });
            Ok(())
        })?;
        Ok(links)
    }

    /// The addresses of all links of the namespace, of both families.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn addresses(&mut self) -> io::Result<Vec<LinkAddress>> {
        let mut request = Request::new(libc::RTM_GETADDR, libc::NLM_F_DUMP);
        request.put(&[0; ADDRESS_LENGTH]);
        let mut addresses = Vec::new();
        self.socket.ask("list the addresses", request, |payload| {
            let attributes = payload.get(ADDRESS_LENGTH..).ok_or_else(too_short)?;
            // On a point-to-point link IFA_LOCAL is the link's own address and IFA_ADDRESS the peer's. On
            // other links IPv6 has IFA_ADDRESS alone.
            let value = match find_attribute(attributes, libc::IFA_LOCAL)? {
                Some(local) => Some(local),
                None => find_attribute(attributes, libc::IFA_ADDRESS)?,
            };
            if let Some(address) = value.and_then(address) {
                addresses.push(LinkAddress { link: u32_at(payload, 4)?, address });
            }
            Ok(())
        })?;
        Ok(addresses)
    }
}

/// An address of either family, recognised by its length.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|octets| Ipv4Addr::from(octets).into());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|octets| Ipv6Addr::from(octets).into())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tun::Tun;

    #[test]
    fn the_loopback_link_is_listed_with_its_address() {
        let mut route = Route::open().unwrap();
        let loopback = route.links().unwrap().into_iter().find(|link| link.name == "lo").unwrap();
        assert_eq!(loopback, Link { index: 1, name: "lo".into(), ethernet: true });
        let address = LinkAddress { link: 1, address: Ipv4Addr::LOCALHOST.into() };
        assert!(route.addresses().unwrap().contains(&address));
    }

    #[test]
    fn a_tun_device_is_no_ethernet() {
        let namespace = match crate::netns::NetworkNamespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return println!("skipped: no network namespaces here: {error}"),
        };
        let tun = match namespace.enter(|| Tun::create("tun0")).unwrap() {
            Ok(tun) => tun,
            Err(error) => return println!("skipped: {error}"),
        };
        let mut route = namespace.enter(Route::open).unwrap().unwrap();
        let links = route.links().unwrap();
        let ethernet = |name| links.iter().find(|link| link.name == name).map(|link| link.ethernet);
        assert_eq!((ethernet("tun0"), ethernet("lo")), (Some(false), Some(true)));
        assert!(route.addresses().unwrap().is_empty());
        drop(tun);
    }
}
