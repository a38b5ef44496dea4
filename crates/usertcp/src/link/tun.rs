//! A link over a private TUN device, to a server on any address of this network namespace.
//!
//! The kernel treats the device as a card with checksum and segmentation offload. The server therefore sends
//! its replies in pieces of up to 64 KiB and computes no checksum. A packet costs one system call. The kernel
//! receives a written packet on the writing CPU, unless receive packet steering names others for the device:
//! see [`Tun::name`].
//!
//! Owns the device, the route to the source net, and two settings of the device. The kernel removes the
//! device with this process, however it ends, and route and settings vanish with the device.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use base::Nanos;
use sys::errno::{Failure, classify};
use sys::network::netlink::Route;
use sys::network::tun::{OFFLOAD_HEADER, checksum_is_known, checksum_missing};
use sys::readiness::poll::{PollFd, bits};

use super::{Link, LinkError, Packet, same_family};
use crate::frame::{Arriving, Leaving, TCP_CHECKSUM_OFFSET};
use crate::net::SourceNet;

/// The device's name; the kernel appends the lowest free number.
const NAME: &str = "inrush%d";

/// The longest packet to the server, as on Ethernet.
const MTU: u32 = 1500;

/// Packets from the server that may wait to be read: 50 ms at 200,000/s.
const QUEUE_PACKETS: u32 = 10_000;

/// The longest packet from the server, with its offload header.
const READ_MAX: usize = OFFLOAD_HEADER + 64 * 1024;

/// The link over a TUN device.
pub struct Tun {
    device: sys::network::tun::Tun,
    name: String,
    offload: [u8; OFFLOAD_HEADER],
    /// Packets to write, each after an offload header; `ends` holds the end of each.
    out: Vec<u8>,
    ends: Vec<usize>,
    /// The packet read last, with its offload header.
    read: Box<[u8]>,
    read_length: usize,
}

impl Tun {
    /// Creates the device in this thread's network namespace, and the route to `net`. Takes some
    /// milliseconds.
    ///
    /// # Errors
    /// The server is not in this namespace, a route overlaps `net`, or CAP_NET_ADMIN is missing.
    pub fn open(server: IpAddr, net: SourceNet) -> Result<Tun, LinkError> {
        same_family(server, net)?;
        let mut route = Route::open().map_err(LinkError::system("ask for routes"))?;
        refuse_what_is_not_ours(&mut route, server, net)?;
        let make = "make a TUN device, which needs CAP_NET_ADMIN";
        let (device, name) =
            sys::network::tun::Tun::create_offloading(NAME).map_err(LinkError::system(make))?;
        let index = route.link_index(&name).map_err(LinkError::system("find the TUN device"))?;
        route.set_sizes(index, MTU, QUEUE_PACKETS).map_err(LinkError::system("set up the TUN device"))?;
        set_up_family(&name, server).map_err(LinkError::system("set up the TUN device"))?;
        route.set_up(index).map_err(LinkError::system("bring the TUN device up"))?;
        route
            .add_route(net.network(), net.prefix_length(), index, None)
            .map_err(LinkError::system("make the route to the source net"))?;
        let header = if server.is_ipv4() { 20 } else { 40 };
        Ok(Tun {
            device,
            name,
            offload: checksum_missing(header, TCP_CHECKSUM_OFFSET as u16),
            out: Vec::new(),
            ends: Vec::new(),
            read: vec![0; READ_MAX].into_boxed_slice(),
            read_length: 0,
        })
    }

    /// The device's name, which is needed to set `rps_cpus` of its receive queue as root. Without that
    /// setting the server's kernel does its receive work on this thread's CPU.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn refuse_what_is_not_ours(route: &mut Route, server: IpAddr, net: SourceNet) -> Result<(), LinkError> {
    let is_here = route.destination(server).is_ok_and(|destination| destination.is_local);
    if !is_here {
        return Err(LinkError::NotHere { server });
    }
    if server.is_loopback() && server.is_ipv6() {
        return Err(LinkError::Loopback { server });
    }
    let networks = route.networks(server).map_err(LinkError::system("list the routes"))?;
    for (network, prefix_length) in networks.into_iter().filter(|(_, prefix_length)| *prefix_length > 0) {
        let theirs: SourceNet = SourceNet::new(network, prefix_length).expect("a route has a prefix");
        if net.contains(network) || theirs.contains(net.network()) {
            return Err(LinkError::NetInUse { net, route: network, prefix_length });
        }
    }
    Ok(())
}

/// Stops the kernel from sending its own packets, and admits packets for 127.0.0.0/8.
fn set_up_family(name: &str, server: IpAddr) -> io::Result<()> {
    if server.is_ipv4() {
        match fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1") {
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    if server.is_loopback() {
        fs::write(format!("/proc/sys/net/ipv4/conf/{name}/route_localnet"), "1")?;
    }
    Ok(())
}

impl Link for Tun {
    fn mtu(&self) -> usize {
        MTU as usize
    }

    fn leaving(&self) -> Leaving {
        Leaving::Partial
    }

    fn packet_out(&mut self, length: usize) -> Option<&mut [u8]> {
        self.out.extend_from_slice(&self.offload);
        let start = self.out.len();
        self.out.resize(start + length, 0);
        self.ends.push(self.out.len());
        Some(&mut self.out[start..])
    }

    fn flush(&mut self) -> io::Result<u64> {
        let (mut start, mut lost) = (0, 0);
        for end in self.ends.drain(..) {
            match self.device.write(&self.out[start..end]) {
                Ok(()) => {}
                Err(error) => match classify(&error) {
                    Failure::WouldBlock | Failure::NoMemory => lost += 1,
                    _ => return Err(error),
                },
            }
            start = end;
        }
        self.out.clear();
        Ok(lost)
    }

    fn receive(&mut self) -> io::Result<bool> {
        match self.device.read(&mut self.read) {
            Ok(length) => {
                self.read_length = length;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn packet(&self) -> Packet<'_> {
        let Some((header, bytes)) = self.read[..self.read_length].split_first_chunk() else {
            return Packet { bytes: &[], checksum: Arriving::Whole };
        };
        let checksum = if checksum_is_known(header) { Arriving::Verified } else { Arriving::Whole };
        Packet { bytes, checksum }
    }

    fn wait(&mut self, timeout: Nanos) -> io::Result<()> {
        let mut set = [PollFd::new(self.device.as_fd().as_raw_fd(), bits::IN)];
        match sys::readiness::poll::wait(&mut set, Some(timeout)) {
            Err(error) if classify(&error) != Failure::Retry => Err(error),
            _ => Ok(()),
        }
    }
}
