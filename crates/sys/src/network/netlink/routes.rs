//! Routes and devices of a network namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{LINK_LENGTH, Request, Route, find_attribute, too_short, u32_at};

/// `struct rtmsg`.
const ROUTE_LENGTH: usize = 12;

/// The next hop of packets to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The address belongs to this namespace.
    pub is_local: bool,
    /// The link that the packets leave by.
    pub link: u32,
    /// The router that gets the packets, if the address is not on the link itself.
    pub gateway: Option<IpAddr>,
}

/// A network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device's number.
    pub index: u32,
    /// The device's hardware address; `None` if it does not have six bytes.
    pub address: Option<[u8; 6]>,
    /// The device's longest packet in bytes.
    pub mtu: u32,
    /// Number of the device's receive queues.
    pub receive_queues: u32,
}

pub(super) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// An address of either family, recognised by its length.
pub(super) fn address(octets: &[u8]) -> io::Result<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).map_err(|_| too_short())
}

impl Request {
    /// Appends a `struct rtmsg` for the main table, then the destination.
    fn put_route(&mut self, network: IpAddr, prefix_length: u8, scope: u8, kind: u8) {
        self.put(&[family(network), prefix_length, 0, 0]);
        self.put(&[libc::RT_TABLE_MAIN, libc::RTPROT_STATIC, scope, kind]);
        self.put(&0_u32.to_ne_bytes());
        self.attribute(libc::RTA_DST, &octets(network));
    }
}

impl Route {
    /// Routes packets for a network to a link: directly to their addresses, or all to a router on that link.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `AlreadyExists` if there is a route to the network; ENETDOWN
    /// while the link is down; ENETUNREACH for a router that is not on the link.
    pub fn add_route(
        &mut self,
        network: IpAddr,
        prefix_length: u8,
        index: u32,
        router: Option<IpAddr>,
    ) -> io::Result<()> {
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWROUTE, flags);
        let scope = if router.is_some() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
        request.put_route(network, prefix_length, scope, libc::RTN_UNICAST);
        request.attribute(libc::RTA_OIF, &index.to_ne_bytes());
        if let Some(router) = router {
            request.attribute(libc::RTA_GATEWAY, &octets(router));
        }
        let operation = format!("send packets for {network}/{prefix_length} to link {index}");
        self.socket.ask(&operation, request, |_| Ok(()))
    }

    /// Looks up the route to an address.
    ///
    /// # Errors
    /// `ENETUNREACH` if there is no route.
    pub fn destination(&mut self, target: IpAddr) -> io::Result<Destination> {
        let mut request = Request::new(libc::RTM_GETROUTE, libc::NLM_F_ACK);
        let length = if target.is_ipv4() { 32 } else { 128 };
        request.put_route(target, length, 0, 0);
        let mut found = None;
        self.socket.ask(&format!("find the route to {target}"), request, |payload| {
            let attributes = payload.get(ROUTE_LENGTH..).ok_or_else(too_short)?;
            let gateway = find_attribute(attributes, libc::RTA_GATEWAY)?;
            found = Some(Destination {
                is_local: payload[7] == libc::RTN_LOCAL,
                link: find_attribute(attributes, libc::RTA_OIF)?.map_or(Ok(0), |link| u32_at(link, 0))?,
                gateway: gateway.map(address).transpose()?,
            });
            Ok(())
        })?;
        found.ok_or_else(too_short)
    }

    /// All networks with a route in any table, with the lengths of their prefixes. The networks have the
    /// family of `like`. Default routes have length 0.
    ///
    /// # Errors
    /// None in practice.
    pub fn networks(&mut self, like: IpAddr) -> io::Result<Vec<(IpAddr, u8)>> {
        let mut request = Request::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP);
        request.put(&[family(like), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let unspecified: IpAddr =
            if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        self.socket.list("list the routes", request, |payload| {
            let attributes = payload.get(ROUTE_LENGTH..).ok_or_else(too_short)?;
            let network = find_attribute(attributes, libc::RTA_DST)?.map(address).transpose()?;
            Ok(Some((network.unwrap_or(unspecified), payload[1])))
        })
    }

    /// Looks up a device by its name.
    ///
    /// # Errors
    /// `ENODEV` if there is no device of that name.
    pub fn device(&mut self, name: &str) -> io::Result<Device> {
        let mut request = Request::new(libc::RTM_GETLINK, libc::NLM_F_ACK);
        request.put_link(0, 0, 0);
        request.name(name);
        let mut found = None;
        self.socket.ask(&format!("find the device {name}"), request, |payload| {
            let attributes = payload.get(LINK_LENGTH..).ok_or_else(too_short)?;
            let number = |kind| find_attribute(attributes, kind)?.map_or(Ok(0), |value| u32_at(value, 0));
            found = Some(Device {
                index: u32_at(payload, 4)?,
                address: find_attribute(attributes, libc::IFLA_ADDRESS)?.and_then(|mac| mac.try_into().ok()),
                mtu: number(libc::IFLA_MTU)?,
                receive_queues: number(libc::IFLA_NUM_RX_QUEUES)?,
            });
            Ok(())
        })?;
        found.ok_or_else(too_short)
    }

    /// Makes TCP hand a link packets of one segment each, as they are on a wire.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `ENODEV` if there is no such link.
    pub fn set_single_segments(&mut self, index: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK);
        request.put_link(index, 0, 0);
        request.attribute(libc::IFLA_GSO_MAX_SEGS, &1_u32.to_ne_bytes());
        self.socket.ask(&format!("send single segments on link {index}"), request, |_| Ok(()))
    }

    /// Names the hardware address of a neighbour for good, so that nobody asks for it.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; `ENODEV` if there is no such link.
    pub fn add_neighbour(&mut self, index: u32, address: IpAddr, hardware: [u8; 6]) -> io::Result<()> {
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let mut request = Request::new(libc::RTM_NEWNEIGH, flags);
        // `struct ndmsg`: family, three bytes, link, state, flags, type.
        request.put(&[family(address), 0, 0, 0]);
        request.put(&index.to_ne_bytes());
        request.put(&libc::NUD_PERMANENT.to_ne_bytes());
        request.put(&[0, 0]);
        request.attribute(libc::NDA_DST, &octets(address));
        request.attribute(libc::NDA_LLADDR, &hardware);
        self.socket.ask(&format!("name the neighbour {address} on link {index}"), request, |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::netns::NetworkNamespace;
    use std::os::fd::AsFd;

    #[test]
    fn own_address_is_local_and_loopback_has_networks() {
        let mut route = Route::open().unwrap();
        let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
        let destination = route.destination(localhost).unwrap();
        assert_eq!(destination, Destination { is_local: true, link: 1, gateway: None });
        let networks = route.networks(localhost).unwrap();
        assert!(networks.contains(&(Ipv4Addr::new(127, 0, 0, 0).into(), 8)), "{networks:?}");
        let loopback = route.device("lo").unwrap();
        assert_eq!((loopback.index, loopback.address), (1, Some([0; 6])));
        assert!(route.device("no-such-link").is_err());
    }

    #[test]
    fn a_route_leads_to_its_link_and_there_is_one_of_each() {
        let (here, there) = match (NetworkNamespace::create(), NetworkNamespace::create()) {
            (Ok(here), Ok(there)) => (here, there),
            (Err(error), _) | (_, Err(error)) => {
                return println!("skipped: no network namespaces here: {error}");
            }
        };
        let mut route = here.enter(Route::open).unwrap().unwrap();
        route.create_veth("left", there.as_fd(), "right").unwrap();
        let device = route.device("left").unwrap();
        assert!(device.mtu == 1500 && device.receive_queues >= 1 && device.address.is_some(), "{device:?}");
        route.set_up(device.index).unwrap();
        for (network, length, inside) in [("10.94.0.0", 16, "10.94.7.7"), ("fd94::", 64, "fd94::7")] {
            let (network, inside) = (network.parse().unwrap(), inside.parse().unwrap());
            if IpAddr::is_ipv6(&network) && !std::path::Path::new("/proc/sys/net/ipv6").exists() {
                println!("skipped: no IPv6 here");
                continue;
            }
            route.add_route(network, length, device.index, None).unwrap();
            assert!(route.add_route(network, length, device.index, None).is_err(), "it is there");
            assert!(route.networks(network).unwrap().contains(&(network, length)));
            let destination = route.destination(inside).unwrap();
            assert_eq!((destination.is_local, destination.link), (false, device.index));
        }
        route.add_address(device.index, Ipv4Addr::new(10, 77, 0, 1), 24).unwrap();
        let (network, router) = ("10.95.0.0".parse().unwrap(), "10.77.0.2".parse().unwrap());
        route.add_route(network, 16, device.index, Some(router)).unwrap();
        assert_eq!(route.destination("10.95.1.1".parse().unwrap()).unwrap().gateway, Some(router));
        let elsewhere = "192.0.2.1".parse().unwrap();
        assert!(route.add_route("10.96.0.0".parse().unwrap(), 16, device.index, Some(elsewhere)).is_err());
    }
}
