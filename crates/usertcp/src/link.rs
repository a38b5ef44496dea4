//! Links to and from the server: one trait, implemented by a TUN device and by AF_XDP sockets (`tun`,
//! `af_xdp`).
//!
//! A link carries IP packets. It handles lower layers itself, such as Ethernet headers and address
//! resolution. It lends memory in both directions, so that packets are written and read in place. It sends in
//! batches: packets leave with [`Link::flush`].

pub mod af_xdp;
pub mod tun;

use std::io;
use std::net::IpAddr;

use base::Nanos;

use crate::frame::{Arriving, Leaving};
use crate::net::SourceNet;

pub use af_xdp::AfXdp;
pub use tun::Tun;

/// A received packet, which begins with its IP header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The packet, perhaps followed by padding.
    pub bytes: &'a [u8],
    /// The state of its TCP checksum.
    pub checksum: Arriving,
}

/// A link for packets to the server and back. Only [`wait`](Self::wait) blocks.
pub trait Link {
    /// The longest packet to the server, in bytes.
    fn mtu(&self) -> usize;

    /// The party that computes the TCP checksums of sent packets.
    fn leaving(&self) -> Leaving;

    /// Room for the next packet to send, for the caller to fill; `None` without room.
    fn packet_out(&mut self, length: usize) -> Option<&mut [u8]>;

    /// Sends the written packets. Returns the number of packets that were lost for lack of room, or dropped by the device.
    ///
    /// # Errors
    /// The link is gone.
    fn flush(&mut self) -> io::Result<u64>;

    /// Advances to the next received packet; returns false if there is none.
    ///
    /// # Errors
    /// The link is gone.
    fn receive(&mut self) -> io::Result<bool>;

    /// The packet that [`receive`](Self::receive) advanced to; empty before the first.
    fn packet(&self) -> Packet<'_>;

    /// Sleeps until a packet arrives or the timeout passes. May return early without a reason.
    ///
    /// # Errors
    /// Errors of poll(2).
    fn wait(&mut self, timeout: Nanos) -> io::Result<()>;
}

/// The reason why a link cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The source net overlaps a route of this machine.
    #[error(
        "the source net {net} overlaps the route to {route}/{prefix_length} of this machine; name a free one with --source-net"
    )]
    NetInUse {
        /// The configured net.
        net: SourceNet,
        /// The network of the route.
        route: IpAddr,
        /// The length of its prefix.
        prefix_length: u8,
    },
    /// The source net contains an address of this machine.
    #[error(
        "the source net {net} contains {address}, an address of this machine; name a free one with --source-net"
    )]
    OwnAddress {
        /// The configured net.
        net: SourceNet,
        /// The address.
        address: IpAddr,
    },
    /// The server is not in this network namespace.
    #[error(
        "{server} is not an address of this network namespace, so a TUN device cannot reach it; \
         run beside the server, or name the interface towards it with --link af-xdp:IFACE"
    )]
    NotHere {
        /// The server's address.
        server: IpAddr,
    },
    /// The kernel never takes packets for this address from a device.
    #[error(
        "the kernel accepts packets for {server} only from itself; have the server listen on 127.0.0.1 or another address"
    )]
    Loopback {
        /// The server's address.
        server: IpAddr,
    },
    /// The interface may be shared, and the user has not declared it their own.
    #[error(
        "others on {interface} may see packets from addresses that this machine does not own; \
         add --i-own-this-server if the network and the server are yours"
    )]
    NotOurs {
        /// The interface.
        interface: String,
    },
    /// The server and the source net have different address families.
    #[error("{server} cannot be reached from {net}: one is IPv4 and the other IPv6")]
    Family {
        /// The server's address.
        server: IpAddr,
        /// The source net.
        net: SourceNet,
    },
    /// No host on the interface answers for the next hop.
    #[error("no host on {interface} answers for {next_hop}")]
    NoNeighbour {
        /// The interface.
        interface: String,
        /// The server, or the router on the way to it.
        next_hop: IpAddr,
    },
    /// The interface uses more receive queues than there are sockets.
    #[error(
        "{interface} uses more than {limit} receive queues, and AF_XDP takes {limit}: ethtool -L {interface} combined {limit}"
    )]
    Queues {
        /// The interface.
        interface: String,
        /// The most queues.
        limit: usize,
    },
    /// The program that hands over packets cannot run.
    #[error(transparent)]
    Program(#[from] bpf::BpfError),
    /// A system call failed.
    #[error("cannot {operation}: {source}")]
    System {
        /// The operation.
        operation: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl LinkError {
    fn system(operation: &'static str) -> impl FnOnce(io::Error) -> LinkError {
        move |source| LinkError::System { operation, source }
    }
}

fn same_family(server: IpAddr, net: SourceNet) -> Result<(), LinkError> {
    let same = server.is_ipv4() == net.network().is_ipv4();
    if same { Ok(()) } else { Err(LinkError::Family { server, net }) }
}
