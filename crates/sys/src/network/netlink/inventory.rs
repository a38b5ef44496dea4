//! The links of a network namespace, and their addresses.

use std::io;
use std::net::IpAddr;

use super::routes::address;
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
    /// True if the link was brought up; its cable may be out.
    pub is_up: bool,
    /// The link that gets the packets of this one instead of IP: its bridge, bond or team. `None` for a member of a
    /// VRF, which keeps its packets.
    pub master: Option<u32>,
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
        self.socket.list("list the links", request, |payload| {
            let attributes = payload.get(LINK_LENGTH..).ok_or_else(too_short)?;
            let name = find_attribute(attributes, libc::IFLA_IFNAME)?.ok_or_else(too_short)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            Ok(Some(Link {
                index: u32_at(payload, 4)?,
                name: String::from_utf8_lossy(name).into_owned(),
                ethernet: matches!(u16_at(payload, 2)?, ARPHRD_ETHER | ARPHRD_LOOPBACK),
                is_up: u32_at(payload, 8)? & libc::IFF_UP as u32 != 0,
                master: master(attributes)?,
            }))
        })
    }

    /// The addresses of all links of the namespace, of both families.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn addresses(&mut self) -> io::Result<Vec<LinkAddress>> {
        let mut request = Request::new(libc::RTM_GETADDR, libc::NLM_F_DUMP);
        request.put(&[0; ADDRESS_LENGTH]);
        self.socket.list("list the addresses", request, |payload| {
            let attributes = payload.get(ADDRESS_LENGTH..).ok_or_else(too_short)?;
            // On a point-to-point link IFA_LOCAL is the link's own address and IFA_ADDRESS the peer's. On
            // other links IPv6 has IFA_ADDRESS alone.
            let value = match find_attribute(attributes, libc::IFA_LOCAL)? {
                Some(local) => Some(local),
                None => find_attribute(attributes, libc::IFA_ADDRESS)?,
            };
            let link = u32_at(payload, 4)?;
            // Links of other protocols may have addresses of other families.
            let address = value.and_then(|octets| address(octets).ok());
            Ok(address.map(|address| LinkAddress { link, address }))
        })
    }
}

/// The master of a link with these attributes.
fn master(attributes: &[u8]) -> io::Result<Option<u32>> {
    let Some(master) = find_attribute(attributes, libc::IFLA_MASTER)? else { return Ok(None) };
    let information = find_attribute(attributes, libc::IFLA_LINKINFO)?.unwrap_or_default();
    match find_attribute(information, libc::IFLA_INFO_SLAVE_KIND)? {
        Some(b"vrf\0") => Ok(None),
        _ => u32_at(master, 0).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HEADER_LENGTH, LIST_TRIES, Socket};
    use super::*;
    use crate::network::netns::NetworkNamespace;
    use crate::network::tun::Tun;
    use crate::process::Program;
    use base::Nanos;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::net::Ipv4Addr;
    use std::os::fd::{AsFd, OwnedFd};

    #[test]
    fn the_loopback_link_is_listed_with_its_address() {
        let mut route = Route::open().unwrap();
        let loopback = route.links().unwrap().into_iter().find(|link| link.name == "lo").unwrap();
        assert_eq!((loopback.index, loopback.ethernet, loopback.master), (1, true, None));
        let address = LinkAddress { link: 1, address: Ipv4Addr::LOCALHOST.into() };
        assert!(route.addresses().unwrap().contains(&address));
    }

    #[test]
    fn a_tun_device_is_no_ethernet() {
        let namespace = match NetworkNamespace::create() {
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

    #[test]
    fn a_link_is_up_after_it_was_brought_up() {
        let namespace = match NetworkNamespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return println!("skipped: no network namespaces here: {error}"),
        };
        let mut route = namespace.enter(Route::open).unwrap().unwrap();
        let mut is_up = |change: fn(&mut Route)| {
            change(&mut route);
            route.links().unwrap().iter().find(|link| link.name == "lo").unwrap().is_up
        };
        assert!(!is_up(|_| ()));
        assert!(is_up(|route| route.set_up(1).unwrap()));
    }

    #[test]
    fn a_port_has_its_bridge_for_a_master() {
        let (here, there) = match (NetworkNamespace::create(), NetworkNamespace::create()) {
            (Ok(here), Ok(there)) => (here, there),
            (Err(error), _) | (_, Err(error)) => {
                return println!("skipped: no network namespaces here: {error}");
            }
        };
        let mut route = here.enter(Route::open).unwrap().unwrap();
        route.create_veth("port", there.as_fd(), "port").unwrap();
        let script = "ip link add above type bridge && ip link set port master above";
        let program = Program::new("sh").arguments(["-c", script]).in_namespace(Some(here.as_fd()));
        let output = program.start().and_then(|child| child.output(Nanos::MILLISECOND, || true)).unwrap();
        if !output.exit.status.success() {
            return println!("skipped: no bridges here: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let links = route.links().unwrap();
        let find = |name| links.iter().find(|link| link.name == name).unwrap();
        let (port, bridge) = (find("port"), find("above"));
        assert_eq!([port.master, bridge.master], [Some(bridge.index), None]);
    }

    #[test]
    fn a_member_of_a_vrf_has_no_master() {
        for (kind, expected) in [(&b"bond\0"[..], Some(7)), (b"vrf\0", None)] {
            let mut request = Request::new(0, 0);
            request.attribute(libc::IFLA_MASTER, &7_u32.to_ne_bytes());
            request.nested(libc::IFLA_LINKINFO, |request| {
                request.attribute(libc::IFLA_INFO_SLAVE_KIND, kind);
            });
            let message = request.finish(1);
            assert_eq!(master(&message[HEADER_LENGTH..]).unwrap(), expected);
        }
    }

    /// A socket with these answers to its next requests, and the end that they come from.
    fn answered(answers: &[Vec<u8>]) -> (Socket, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        let (fd, kernel) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        for answer in answers {
            rustix::io::write(&kernel, answer).unwrap();
        }
        (Socket { fd, sequence: 0 }, kernel)
    }

    fn message(kind: libc::c_int, flags: libc::c_int, sequence: u32, value: i32) -> Vec<u8> {
        let mut message = Request::new(kind as u16, flags);
        message.put(&value.to_ne_bytes());
        message.finish(sequence)
    }

    /// The items of the answers to one list.
    fn list(answers: &[Vec<u8>]) -> io::Result<Vec<u32>> {
        let (mut socket, _kernel) = answered(answers);
        let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP);
        socket.list("list", request, |payload| u32_at(payload, 0).map(Some))
    }

    #[test]
    fn a_list_that_the_kernel_cannot_make_is_an_error() {
        let error = list(&[message(libc::NLMSG_DONE, 0, 1, -libc::ENOENT)]).unwrap_err();
        assert_eq!((error.kind(), error.to_string().starts_with("list: ")), (io::ErrorKind::NotFound, true));
    }

    #[test]
    fn a_list_that_changed_meanwhile_is_asked_for_again() {
        let item = |sequence, value| message(libc::RTM_NEWLINK.into(), 0, sequence, value);
        let changed = |sequence| message(libc::NLMSG_DONE, libc::NLM_F_DUMP_INTR, sequence, 0);
        let whole = [item(2, 7), item(2, 8), message(libc::NLMSG_DONE, 0, 2, 0)].concat();
        assert_eq!(list(&[[item(1, 7), changed(1)].concat(), whole]).unwrap(), [7, 8]);
        let never_whole: Vec<Vec<u8>> = (1..=LIST_TRIES).map(changed).collect();
        assert_eq!(list(&never_whole).unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
