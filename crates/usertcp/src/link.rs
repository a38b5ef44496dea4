//! The ways for packets to and from the server: one trait, and behind it a TUN device or an AF_XDP socket.
//!
//! A link carries IP packets. What lies below them, such as Ethernet headers and the questions for hardware
//! addresses, is the link's own affair. It lends memory in both directions, so that a packet is written and
//! read in place, and it batches: packets leave with [`Link::flush`].

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

/// A way for packets to the server and back. Nothing but [`wait`](Self::wait) blocks.
pub trait Link {
    /// The longest packet that it carries to the server, in bytes.
    fn mtu(&self) -> usize;

    /// The party that computes the TCP checksums of packets which it sends.
    fn leaving(&self) -> Leaving;

    /// Room for the next packet to be sent, which the caller fills; `None` where there is none.
    fn packet_out(&mut self, length: usize) -> Option<&mut [u8]>;

    /// Sends what was written. Returns how many packets were lost for want of room.
    ///
    /// # Errors
    /// The link is gone.
    fn flush(&mut self) -> io::Result<u64>;

    /// Goes on to the next received packet; returns false if there is none.
    ///
    /// # Errors
    /// The link is gone.
    fn receive(&mut self) -> io::Result<bool>;

    /// The packet that [`receive`](Self::receive) went on to; empty before the first.
    fn packet(&self) -> Packet<'_>;

    /// Sleeps until there is a packet or the time is over. May return for no reason.
    ///
    /// # Errors
    /// Those of poll(2).
    fn wait(&mut self, timeout: Nanos) -> io::Result<()>;
}

/// The reasons why a link cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The source net belongs to somebody.
    #[error(
        "the source net {net} overlaps the route to {route}/{prefix_length} of this machine; name a free one with --source-net"
    )]
    NetInUse {
        /// The net that was asked for.
        net: SourceNet,
        /// The network that is in the way.
        route: IpAddr,
        /// The length of its prefix.
        prefix_length: u8,
    },
    /// The server is somewhere else.
    #[error(
        "{server} is no address of this network namespace, so a TUN device leads nowhere; \
         run beside the server, or name the interface towards it with --link af-xdp:IFACE"
    )]
    NotHere {
        /// The server's address.
        server: IpAddr,
    },
    /// The kernel never takes packets for this address from a device.
    #[error(
        "the kernel takes packets for {server} from nobody but itself; have the server listen on 127.0.0.1 or another address"
    )]
    Loopback {
        /// The server's address.
        server: IpAddr,
    },
    /// The interface is not known to be the user's.
    #[error(
        "{interface} may be shared with others, who would see packets from addresses that are not this machine's; \
         say --i-own-this-server if the network and the server are yours"
    )]
    NotOurs {
        /// The interface.
        interface: String,
    },
    /// Server and source net are of different families.
    #[error("{server} cannot be reached from {net}: one is IPv4 and the other IPv6")]
    Family {
        /// The server's address.
        server: IpAddr,
        /// The source net.
        net: SourceNet,
    },
    /// Nobody has the address that packets go to.
    #[error("nobody on {interface} answers for {next_hop}")]
    NoNeighbour {
        /// The interface.
        interface: String,
        /// The server, or the router on the way to it.
        next_hop: IpAddr,
    },
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
