//! Two networks with a path between them: a namespace for the client, one for the server, and a link in each.
//!
//! Owns namespaces, links, addresses and settings. TUN devices leave the path to the router. A veth pair
//! leaves it to the kernel, and `netem` changes the kernel's behaviour.
//!
//! Invariant: nothing outside the two namespaces changes. They have no names, and the devices live as long as
//! their descriptors. They end with this process, even if SIGKILL ends it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use sys::network::netlink::{LinkStatistics, Route};
use sys::network::netns::NetworkNamespace;
use sys::network::tun::Tun;

use crate::conditions::MTU;

/// The link's name on both sides.
pub const LINK: &str = "wan0";
/// The server's address.
pub const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
/// The client's first address; [`CLIENT_ADDRESSES`] consecutive addresses begin there.
pub const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// The number of client addresses, as in the lab: each has about 28,000 ports, and a port stays busy for a
/// minute after its connection.
pub const CLIENT_ADDRESSES: u8 = 8;
const PREFIX_LENGTH: u8 = 24;
/// Packets that may wait for the router to read them: 50 ms at 200,000/s. That covers every scheduler pause
/// on a machine that is not overloaded.
const DEVICE_QUEUE: u32 = 10_000;

/// One of the two networks.
pub struct Side {
    /// The namespace in which its programs run.
    pub namespace: NetworkNamespace,
    route: Route,
    link: u32,
}

impl Side {
    /// Sets addresses, sizes and settings of a namespace that has its link.
    fn set_up(namespace: NetworkNamespace, addresses: &[Ipv4Addr]) -> io::Result<Side> {
        // IPv6 sends packets of its own as soon as a link is up. They would be counted and would consume
        // random draws.
        match namespace.set_sysctl("net.ipv6.conf.all.disable_ipv6", "1") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        let mut route = namespace.enter(Route::open)??;
        let (loopback, link) = (route.link_index("lo")?, route.link_index(LINK)?);
        route.set_sizes(link, MTU, DEVICE_QUEUE)?;
        for address in addresses {
            route.add_address(link, *address, PREFIX_LENGTH)?;
        }
        route.set_up(loopback)?;
        route.set_up(link)?;
        Ok(Side { namespace, route, link })
    }

    /// Prepares the side's end of a veth pair for the path to the other side.
    fn join(&mut self, other: &mut Side, addresses: &[Ipv4Addr]) -> io::Result<()> {
        self.route.set_single_segments(self.link)?;
        let hardware = other
            .route
            .device(LINK)?
            .address
            .ok_or_else(|| io::Error::other("the link has no hardware address"))?;
        addresses
            .iter()
            .try_for_each(|address| self.route.add_neighbour(self.link, (*address).into(), hardware))
    }

    /// The counters of its link.
    ///
    /// # Errors
    /// ENODEV if the link was removed.
    pub fn statistics(&mut self) -> io::Result<LinkStatistics> {
        self.route.statistics(self.link)
    }
}

/// The client's network and the server's.
pub struct Network {
    /// The client's side.
    pub client: Side,
    /// The server's side.
    pub server: Side,
}

impl Network {
    /// Two networks whose links are TUN devices: the client's and the server's.
    ///
    /// # Errors
    /// `PermissionDenied` without root; `NotFound` from a kernel without TUN; ENOSPC if the machine allows no
    /// more namespaces.
    pub fn with_devices() -> io::Result<(Network, Tun, Tun)> {
        let (client, server) = (NetworkNamespace::create()?, NetworkNamespace::create()?);
        let client_tun = client.enter(|| Tun::create(LINK))??;
        let server_tun = server.enter(|| Tun::create(LINK))??;
        Ok((Network::set_up(client, server)?, client_tun, server_tun))
    }

    /// Two networks joined by a veth pair. Its packets have one segment each, and neither side asks for the other's
    /// hardware address: what the path does to packets, it would do to 44 segments at once, and to the question.
    ///
    /// # Errors
    /// The errors of [`with_devices`](Self::with_devices), for veth.
    pub fn with_veth() -> io::Result<Network> {
        let (client, server) = (NetworkNamespace::create()?, NetworkNamespace::create()?);
        client.enter(Route::open)??.create_veth(LINK, server.as_fd(), LINK)?;
        let mut network = Network::set_up(client, server)?;
        let Network { client, server } = &mut network;
        client.join(server, &[SERVER_ADDRESS])?;
        server.join(client, &client_addresses())?;
        Ok(network)
    }

    fn set_up(client: NetworkNamespace, server: NetworkNamespace) -> io::Result<Network> {
        Ok(Network {
            client: Side::set_up(client, &client_addresses())?,
            server: Side::set_up(server, &[SERVER_ADDRESS])?,
        })
    }
}

fn client_addresses() -> Vec<Ipv4Addr> {
    let address = |next| Ipv4Addr::from_bits(CLIENT_ADDRESS.to_bits() + u32::from(next));
    (0..CLIENT_ADDRESSES).map(address).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn veth_carries_single_segments_and_no_questions() {
        let mut network = match Network::with_veth() {
            Ok(network) => network,
            Err(error) => return println!("skipped: no network namespaces here: {error}"),
        };
        let socket =
            network.client.namespace.enter(|| UdpSocket::bind((CLIENT_ADDRESS, 0))).unwrap().unwrap();
        socket.send_to(b"x", (SERVER_ADDRESS, 9)).unwrap();
        assert_eq!(network.server.statistics().unwrap().received, 1, "no ARP before it");

        let listener =
            network.server.namespace.enter(|| TcpListener::bind((SERVER_ADDRESS, 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = network.client.namespace.enter(|| TcpStream::connect(address)).unwrap().unwrap();
        let sender = std::thread::spawn(move || client.write_all(&[7; 1 << 20]).unwrap());
        listener.accept().unwrap().0.read_to_end(&mut Vec::new()).unwrap();
        sender.join().unwrap();
        let sent = network.client.statistics().unwrap();
        assert!(sent.sent >= (1 << 20) / u64::from(MTU), "{sent:?}");
    }
}
