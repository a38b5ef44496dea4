//! The source net: the addresses that connections come from. The machine owns none of them.
//!
//! An address and a port together are a *name*, numbered from 0. 65,536 addresses give 4.2 billion names.
//! That suffices for 200,000 connections per second over five hours without using a name twice.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The ports of each address: all that need no privilege.
pub const PORTS: RangeInclusive<u16> = 1024..=u16::MAX;
const PORTS_COUNT: u32 = *PORTS.end() as u32 - *PORTS.start() as u32 + 1;

/// The most addresses used; further addresses of a larger net stay unused.
pub const ADDRESSES_MAX: u32 = 65_536;

/// A prefix of source addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceNet {
    network: IpAddr,
    prefix_length: u8,
    /// The distance of the first usable address from `network`.
    skipped: u32,
    /// The number of usable addresses, from 1 to [`ADDRESSES_MAX`].
    addresses: u32,
}

impl SourceNet {
    /// The net of a prefix. An IPv4 net of more than two addresses loses its first and its last one, an IPv6 net
    /// of more than one its first. Those addresses belong to the net and to broadcasts (RFC 1122, section
    /// 3.2.1.3; RFC 4291, section 2.6.1).
    pub fn new(address: IpAddr, prefix_length: u8) -> Option<SourceNet> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let host_bits = u32::from(bits - u8::min(bits, prefix_length));
        if prefix_length > bits {
            return None;
        }
        let network = match address {
            IpAddr::V4(v4) => {
                IpAddr::from(Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(host_bits).unwrap_or(0)))
            }
            IpAddr::V6(v6) => IpAddr::from(Ipv6Addr::from_bits(
                v6.to_bits() & u128::MAX.checked_shl(host_bits).unwrap_or(0),
            )),
        };
        let all = 1_u32 << host_bits.min(17);
        let (skipped, reserved) = match (address, host_bits) {
            (IpAddr::V4(_), 2..) => (1, 2),
            (IpAddr::V6(_), 1..) => (1, 1),
            _ => (0, 0),
        };
        let addresses = (all - reserved).min(ADDRESSES_MAX);
        Some(SourceNet { network, prefix_length, skipped, addresses })
    }

    /// The first address of the prefix, which is a source only in a net without reserved addresses.
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// The length of the prefix in bits.
    pub fn prefix_length(&self) -> u8 {
        self.prefix_length
    }

    /// The number of addresses that connections come from.
    pub fn addresses(&self) -> u32 {
        self.addresses
    }

    /// The number of names.
    pub fn names(&self) -> u32 {
        self.addresses * PORTS_COUNT
    }

    /// Returns true if `address` lies in the prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        SourceNet::new(address, self.prefix_length).is_some_and(|net| net.network == self.network)
    }

    /// The name of a number below [`names`](Self::names). Successive numbers have the same address until its
    /// ports are used up.
    pub fn name(&self, number: u32) -> SocketAddr {
        let address = self.skipped + number / PORTS_COUNT;
        let port = *PORTS.start() + (number % PORTS_COUNT) as u16;
        let address = match self.network {
            IpAddr::V4(v4) => IpAddr::from(Ipv4Addr::from_bits(v4.to_bits() + address)),
            IpAddr::V6(v6) => IpAddr::from(Ipv6Addr::from_bits(v6.to_bits() + u128::from(address))),
        };
        SocketAddr::new(address, port)
    }

    /// The number of a name; `None` for a name outside this net.
    pub fn number(&self, name: SocketAddr) -> Option<u32> {
        let distance = match (name.ip(), self.network) {
            (IpAddr::V4(address), IpAddr::V4(network)) => address.to_bits().wrapping_sub(network.to_bits()),
            (IpAddr::V6(address), IpAddr::V6(network)) => {
                u32::try_from(address.to_bits().wrapping_sub(network.to_bits())).ok()?
            }
            _ => return None,
        };
        let address = distance.wrapping_sub(self.skipped);
        let port = u32::from(name.port().checked_sub(*PORTS.start())?);
        (address < self.addresses).then(|| address * PORTS_COUNT + port)
    }

    /// One of `count` equal parts of the net, for one thread. Parts are prefixes, so that each can have a
    /// route. A part of the net stays unused unless `count` is a power of two.
    ///
    /// # Errors
    /// The net has too few addresses.
    pub fn share(&self, index: u32, count: u32) -> Result<SourceNet, NotANet> {
        let more_bits = count.next_power_of_two().trailing_zeros();
        let bits = if self.network.is_ipv4() { 32 } else { 128 };
        let length = u32::from(self.prefix_length) + more_bits;
        let refuse = || NotANet::TooSmall { net: *self, parts: count };
        if length > bits {
            return Err(refuse());
        }
        let network = match self.network {
            IpAddr::V4(v4) => {
                let offset = u64::from(index) << (32 - length);
                IpAddr::from(Ipv4Addr::from_bits(v4.to_bits() | offset as u32))
            }
            IpAddr::V6(v6) => {
                let offset = u128::from(index).checked_shl(128 - length).unwrap_or(0);
                IpAddr::from(Ipv6Addr::from_bits(v6.to_bits() | offset))
            }
        };
        SourceNet::new(network, length as u8).ok_or_else(refuse)
    }
}

/// The reason against a source net.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotANet {
    /// The text is not a prefix.
    #[error("'{0}' is not a source net such as 10.94.0.0/16 or fd94::/64")]
    Text(String),
    /// The net has fewer addresses than threads.
    #[error("the source net {net} is too small for {parts} threads: each needs an address of its own")]
    TooSmall {
        /// The net.
        net: SourceNet,
        /// The number of parts.
        parts: u32,
    },
}

impl FromStr for SourceNet {
    type Err = NotANet;

    fn from_str(text: &str) -> Result<SourceNet, NotANet> {
        let parse = || {
            let (address, length) = text.split_once('/')?;
            SourceNet::new(address.parse().ok()?, length.parse().ok()?)
        };
        parse().ok_or_else(|| NotANet::Text(text.to_owned()))
    }
}

impl fmt::Display for SourceNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, addresses: u32, first: &str) {
        let net: SourceNet = text.parse().unwrap();
        assert_eq!((net.addresses, net.name(0).to_string().as_str()), (addresses, first));
    }

    #[test]
    fn nets_are_read() {
        check("10.94.0.0/16", 65_534, "10.94.0.1:1024");
        check("10.94.3.7/24", 254, "10.94.3.1:1024");
        check("10.94.3.7/32", 1, "10.94.3.7:1024");
        check("10.94.3.6/31", 2, "10.94.3.6:1024");
        check("10.0.0.0/8", 65_536, "10.0.0.1:1024");
        check("fd94::/64", 65_536, "[fd94::1]:1024");
        check("fd94::5/128", 1, "[fd94::5]:1024");
        for text in ["10.94.0.0", "10.94.0.0/33", "fd94::/129", "/16", "10.94.0/16", "a/8", ""] {
            let error = text.parse::<SourceNet>().unwrap_err().to_string();
            assert_eq!(error, format!("'{text}' is not a source net such as 10.94.0.0/16 or fd94::/64"));
        }
    }

    #[test]
    fn last_port_is_followed_by_the_next_address() {
        let net: SourceNet = "10.94.0.0/16".parse().unwrap();
        assert_eq!(net.name(64_511).to_string(), "10.94.0.1:65535");
        assert_eq!(net.name(64_512).to_string(), "10.94.0.2:1024");
        assert_eq!(net.name(net.names() - 1).to_string(), "10.94.255.254:65535");
    }

    #[test]
    fn names_of_others_have_no_number() {
        let net: SourceNet = "10.94.0.0/24".parse().unwrap();
        for name in ["10.94.0.0:1024", "10.94.0.255:1024", "10.94.1.1:1024", "10.94.0.1:1023", "[::1]:1024"] {
            assert_eq!(net.number(name.parse().unwrap()), None, "{name}");
        }
    }

    #[test]
    fn threads_have_prefixes_of_their_own() {
        let net: SourceNet = "10.94.0.0/16".parse().unwrap();
        let shares: Vec<String> = (0..3).map(|index| net.share(index, 3).unwrap().to_string()).collect();
        assert_eq!(shares, ["10.94.0.0/18", "10.94.64.0/18", "10.94.128.0/18"]);
        assert_eq!(net.share(0, 1), Ok(net));
        let one: SourceNet = "10.94.0.5/32".parse().unwrap();
        assert_eq!(
            one.share(0, 2).unwrap_err().to_string(),
            "the source net 10.94.0.5/32 is too small for 2 threads: each needs an address of its own"
        );
        let wide: SourceNet = "fd94::/64".parse().unwrap();
        assert_eq!(wide.share(1, 2).unwrap().to_string(), "fd94::8000:0:0:0/65");
    }

    proptest! {
        #[test]
        fn a_number_and_its_name_belong_together(number in any::<u32>(), v4 in any::<bool>(), length in 0_u8..=32) {
            let text = if v4 { format!("10.94.7.9/{length}") } else { format!("fd94::7:9/{}", 96 + length) };
            let net: SourceNet = text.parse().unwrap();
            let number = number % net.names();
            let name = net.name(number);
            prop_assert!(net.contains(name.ip()));
            prop_assert_eq!(net.number(name), Some(number));
        }
    }
}
