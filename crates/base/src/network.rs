//! A set of addresses that a setting names: an address, or a network in CIDR notation.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// An address, or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// Tells whether an address is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Parses an address or a network, and drops set bits after its prefix, as nginx does.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn parse_truncated(text: &str) -> Result<Network, String> {
        match text.parse::<IpNet>() {
            Ok(network) => network.trunc().to_string().parse(),
            Err(_) => text.parse(),
        }
    }

    /// Returns the first address.
    pub fn address(&self) -> IpAddr {
        self.0.addr()
    }

    /// Returns the number of leading bits that all its addresses share.
    pub fn prefix(&self) -> u8 {
        self.0.prefix_len()
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let network = match text.parse::<IpAddr>() {
            Ok(address) => Ok(IpNet::from(address)),
            Err(_) => text.parse::<IpNet>(),
        };
        let network =
            network.map_err(|_| "expected an address or a network, such as 192.0.2.7 or 2001:db8::/32");
        match network? {
            // The server turns the IPv4 addresses of an IPv6 listener into plain ones.
            IpNet::V6(mapped) if mapped.addr().to_ipv4_mapped().is_some() => {
                Err("expected an IPv4 address in its own form, such as 192.0.2.0/24".to_owned())
            }
            network if network.trunc() != network => {
                Err(format!("bits after the prefix are set; expected {}", network.trunc()))
            }
            network => Ok(Network(network)),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_parser_takes_addresses_and_names_mistakes() {
        let contains = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("192.0.2.7", "192.0.2.7") && !contains("192.0.2.7", "192.0.2.8"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1") && !contains("2001:db8::/32", "192.0.2.7"));
        assert!(contains("0.0.0.0/0", "192.0.2.7"));
        let truncated = |text| Network::parse_truncated(text).map(|network| network.to_string());
        assert_eq!(truncated("192.0.2.7/24"), Ok("192.0.2.0/24".to_owned()));
        assert_eq!(truncated("192.0.2.7"), Ok("192.0.2.7/32".to_owned()));
        assert!(truncated("unix:").is_err());
        for (text, wrong) in [
            ("192.0.2.0/33", "expected an address or a network"),
            ("example.org", "expected an address or a network"),
            ("192.0.2.7/24", "expected 192.0.2.0/24"),
            ("::ffff:192.0.2.7", "an IPv4 address in its own form"),
        ] {
            let error = text.parse::<Network>().unwrap_err();
            assert!(error.contains(wrong), "{text}: {error}");
        }
    }
}
