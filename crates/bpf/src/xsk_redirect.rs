//! Redirection of packets to the addresses of a load generator, from a device straight into its AF_XDP sockets.
//!
//! Owns `programs/xsk_redirect.c` and its link. The caller owns the sockets and their rings, and answers ARP requests and
//! neighbour solicitations. The kernel gets the packets of a receive queue without a socket, and all packets that do
//! not concern the network.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use aya::maps::{Array, MapData, XskMap};
use sys::network::netlink::Link;

use crate::address_words;
use crate::error::BpfError;
use crate::object::{Loaded, Object, object};
use crate::xdp::{self, Mode};

const REDIRECT: Object = object!("xsk_redirect", "the af-xdp link");

/// `QUEUES` of `programs/xsk_redirect.c`.
pub const QUEUES: usize = 64;

/// The redirecting program of one device. Dropping it detaches the program.
pub struct XskRedirect {
    loaded: Loaded,
    sockets: XskMap<MapData>,
    link: Option<OwnedFd>,
}

impl XskRedirect {
    /// Loads the program for packets to `network` and for requests for its hardware addresses. `network` is an
    /// address, and `prefix` the number of its leading bits that count.
    ///
    /// # Errors
    /// [`BpfError::Capability`], [`BpfError::Refused`], [`BpfError::System`].
    ///
    /// # Panics
    /// With a prefix longer than the address.
    pub fn load(network: IpAddr, prefix: u32) -> Result<XskRedirect, BpfError> {
        let mut loaded = REDIRECT.load(|_| ())?;
        xdp::load(&mut loaded)?;
        Array::try_from(loaded.take_map("network"))
            .and_then(|mut map: Array<MapData, [u32; 8]>| map.set(0, network_words(network, prefix), 0))
            .map_err(|error| loaded.error("set the network", &error))?;
        let sockets = XskMap::try_from(loaded.take_map("sockets"))
            .map_err(|error| loaded.error("use the map of sockets", &error))?;
        Ok(XskRedirect { loaded, sockets, link: None })
    }

    /// Redirects the packets that a device of the calling thread's network namespace receives, once its queues have
    /// sockets.
    ///
    /// # Errors
    /// [`BpfError::Occupied`], [`BpfError::NotEthernet`], [`BpfError::System`].
    pub fn attach(&mut self, device: &Link) -> Result<Mode, BpfError> {
        let (link, mode) = xdp::attach(&self.loaded, device)?;
        self.link = Some(link);
        Ok(mode)
    }

    /// Gives the packets of a receive queue to an AF_XDP socket that has a receive ring.
    ///
    /// # Errors
    /// [`BpfError::TooMany`] from queue 64 on; [`BpfError::System`] for a socket of another kind.
    pub fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        if queue as usize >= QUEUES {
            return Err(BpfError::TooMany { what: "redirecting by receive queue", limit: QUEUES });
        }
        self.sockets
            .set(queue, socket.as_raw_fd(), 0)
            .map_err(|error| self.loaded.error(format!("give queue {queue} its socket"), &error))
    }

    /// Runs the program on a packet of queue 0 that begins with its Ethernet header and reaches no network.
    ///
    /// # Errors
    /// The errors of [`sys::bpf::test_run`].
    pub fn test_run(&self, packet: &[u8], repeat: u32) -> Result<sys::bpf::TestRun, BpfError> {
        self.loaded.test_run(packet, repeat)
    }
}

/// `struct network`: an address and a mask.
fn network_words(network: IpAddr, prefix: u32) -> [u32; 8] {
    let bits = if network.is_ipv4() { 32 } else { 128 };
    assert!(prefix <= bits, "an address has {bits} bits, not {prefix}");
    let mask = u128::MAX.checked_shl(bits - prefix).unwrap_or(0);
    let mask = if network.is_ipv4() { mask | !u128::from(u32::MAX) } else { mask };
    let mut words = [0; 8];
    words[..4].copy_from_slice(&address_words(network));
    words[4..].copy_from_slice(&address_words(IpAddr::V6(mask.into())));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_is_address_and_mask_in_network_order() {
        let bytes = |network: &str, prefix| -> Vec<u8> {
            let words = network_words(network.parse().unwrap(), prefix);
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let v4 = bytes("10.94.0.0", 16);
        assert_eq!(v4[10..16], [0xff, 0xff, 10, 94, 0, 0]);
        assert_eq!(v4[16..28], [0xff; 12]);
        assert_eq!(v4[28..], [0xff, 0xff, 0, 0]);
        let v6 = bytes("fd00::", 8);
        assert_eq!(v6[16..20], [0xff, 0, 0, 0]);
        assert_eq!(bytes("::", 0)[16..], [0; 16]);
    }
}
