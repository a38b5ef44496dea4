//! The source addresses of connections.
//!
//! The side that closes first keeps the pair of addresses and ports in TIME-WAIT for 60 s, and one source
//! address has about 28,000 ports. At more than a few hundred connections per second to one server the ports
//! can run out. Several source addresses, taken in turn, multiply them. `IP_BIND_ADDRESS_NO_PORT` leaves the
//! port to connect(), which knows the whole four-tuple; without it bind() would reserve one port for all
//! destinations.
//!
//! A target on 127.0.0.0/8 can be reached from any loopback address. The run uses enough of them to keep half
//! of each address's ports free. With fewer free ports the kernel's search for one gets slow. For other
//! targets the kernel chooses, unless a range is given.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use base::Nanos;

/// The time for which a closed connection keeps its port: the kernel's TCP_TIMEWAIT_LEN.
pub const TIME_WAIT: Nanos = Nanos::from_secs(60);

/// The most addresses of a range: 65,536 times 28,000 ports exceed any number of descriptors.
const ADDRESSES_MAX: u128 = 65_536;

/// A range of source addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRange {
    first: IpAddr,
    /// The number of addresses, 1 or more.
    count: u32,
}

impl SourceRange {
    /// One address.
    pub fn one(address: IpAddr) -> SourceRange {
        SourceRange { first: address, count: 1 }
    }

    /// The first address.
    pub fn first(self) -> IpAddr {
        self.first
    }

    /// The number of addresses.
    pub fn count(self) -> u32 {
        self.count
    }

    /// The address at a position in the range.
    pub(crate) fn nth(self, number: u32) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from_bits(first.to_bits().wrapping_add(number))),
            IpAddr::V6(first) => {
                IpAddr::V6(Ipv6Addr::from_bits(first.to_bits().wrapping_add(u128::from(number))))
            }
        }
    }

    fn from_to(first: IpAddr, last: IpAddr) -> Option<SourceRange> {
        let (low, high) = match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => (first.to_bits().into(), last.to_bits().into()),
            (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits(), last.to_bits()),
            _ => return None,
        };
        let count = u128::checked_sub(high, low)?.checked_add(1)?;
        (count <= ADDRESSES_MAX).then_some(SourceRange { first, count: count as u32 })
    }
}

/// The text is not a range of source addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a source address: expected 10.0.0.5, 10.0.0.5-9, 10.0.0.5-10.0.1.9 or 10.0.1.0/24, with at most 65536 addresses"
)]
pub struct NotSources(String);

impl FromStr for SourceRange {
    type Err = NotSources;

    fn from_str(text: &str) -> Result<SourceRange, NotSources> {
        let parsed = if let Some((first, last)) = text.split_once('-') {
            range(first, last)
        } else if let Some((address, length)) = text.split_once('/') {
            prefix(address, length)
        } else {
            text.parse().ok().map(SourceRange::one)
        };
        parsed.ok_or_else(|| NotSources(text.to_owned()))
    }
}

/// Parses `first-last`; `last` is an address, or the last number of an IPv4 address.
fn range(first: &str, last: &str) -> Option<SourceRange> {
    let first: IpAddr = first.parse().ok()?;
    let last = match (first, last.parse::<u8>()) {
        (IpAddr::V4(v4), Ok(number)) => {
            let [a, b, c, _] = v4.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, number))
        }
        _ => last.parse().ok()?,
    };
    SourceRange::from_to(first, last)
}

/// Parses a prefix and returns all its host addresses. An IPv4 prefix with more than two addresses loses its
/// first and its last one.
fn prefix(address: &str, length: &str) -> Option<SourceRange> {
    let (address, length): (IpAddr, u32) = (address.parse().ok()?, length.parse().ok()?);
    match address {
        IpAddr::V4(v4) => {
            let host_bits = 32u32.checked_sub(length)?;
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            let (low, high) = (v4.to_bits() & mask, v4.to_bits() | !mask);
            let (low, high) = if host_bits >= 2 { (low + 1, high - 1) } else { (low, high) };
            SourceRange::from_to(Ipv4Addr::from_bits(low).into(), Ipv4Addr::from_bits(high).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128u32.checked_sub(length)?).unwrap_or(0);
            let (low, high) = (v6.to_bits() & mask, v6.to_bits() | !mask);
            SourceRange::from_to(Ipv6Addr::from_bits(low).into(), Ipv6Addr::from_bits(high).into())
        }
    }
}

impl fmt::Display for SourceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => self.first.fmt(f),
            count => write!(f, "{}-{}", self.first, self.nth(count - 1)),
        }
    }
}

/// The default range for a target; `None` leaves the choice to the kernel. `connections` is the most
/// connections in TIME-WAIT at once, `ports` the kernel's port range for connects.
pub(crate) fn automatic(
    target: SocketAddr,
    connections: f64,
    ports: &std::ops::RangeInclusive<u16>,
) -> Option<SourceRange> {
    let IpAddr::V4(address) = target.ip() else { return None };
    if !address.is_loopback() {
        return None;
    }
    let half = ports.len() as f64 / 2.0;
    let count = (connections / half).ceil().clamp(1.0, ADDRESSES_MAX as f64) as u32;
    // If no process listens on the target port, the kernel may choose that very port as the source port. TCP
    // then connects the socket with itself, so the target's own address is excluded here.
    let may_meet_itself = ports.contains(&target.port());
    let first = if may_meet_itself { address.to_bits() + 1 } else { Ipv4Addr::LOCALHOST.to_bits() };
    (may_meet_itself || count > 1)
        .then(|| SourceRange { first: IpAddr::V4(Ipv4Addr::from_bits(first)), count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str, count: u32) {
        let range: SourceRange = text.parse().unwrap();
        assert_eq!((range.to_string().as_str(), range.count()), (shown, count));
    }

    #[test]
    fn ranges_are_read() {
        check("10.0.0.5", "10.0.0.5", 1);
        check("10.0.0.5-9", "10.0.0.5-10.0.0.9", 5);
        check("10.0.0.250-10.0.1.4", "10.0.0.250-10.0.1.4", 11);
        check("10.0.1.77/24", "10.0.1.1-10.0.1.254", 254);
        check("10.0.1.77/32", "10.0.1.77", 1);
        check("10.0.1.76/31", "10.0.1.76-10.0.1.77", 2);
        check("::1", "::1", 1);
        check("fd00::/120", "fd00::-fd00::ff", 256);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "10.0.0",
            "10.0.0.9-5",
            "10.0.0.0/8",
            "10.0.0.0/33",
            "::1-10.0.0.1",
            "::/0",
            "a-b",
            "0.0.0.0/0",
        ] {
            assert!(text.parse::<SourceRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_gets_the_addresses_that_time_wait_needs() {
        let ports = 32_768..=60_999;
        let target = "127.0.0.1:80".parse().unwrap();
        assert_eq!(automatic(target, 6_000.0, &ports), None);
        assert_eq!(automatic(target, 120_000.0, &ports).unwrap().count(), 9);
        assert_eq!(automatic("10.0.0.1:80".parse().unwrap(), 120_000.0, &ports), None);
        assert_eq!(automatic("[::1]:80".parse().unwrap(), 120_000.0, &ports), None);
    }

    #[test]
    fn a_socket_is_never_connected_with_itself() {
        let range = automatic("127.0.0.1:40000".parse().unwrap(), 10.0, &(32_768..=60_999)).unwrap();
        assert_eq!(range.first(), "127.0.0.2".parse::<IpAddr>().unwrap());
        let range = automatic("127.0.0.3:40000".parse().unwrap(), 60_000.0, &(32_768..=60_999)).unwrap();
        assert_eq!(range.to_string(), "127.0.0.4-127.0.0.8");
    }
}
