//! Networks whose SYNs the admission never refuses, such as those of health checks.

use std::net::IpAddr;

use aya::maps::lpm_trie::{Key, LpmTrie};
use base::Network;

use crate::address_octets;
use crate::error::BpfError;
use crate::object::Loaded;

/// `EXEMPT_NETWORKS` of `programs/admission.h`.
const NETWORKS: usize = 256;
/// Bits before an IPv4 address that is mapped into IPv6.
const MAPPED_BITS: u32 = 96;

/// Networks whose SYNs are admitted even while others are refused. An IPv4 address is also in the IPv6 networks that
/// contain its mapped form, such as `::/0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exempt(Vec<Network>);

impl Exempt {
    /// No networks.
    pub const NONE: Exempt = Exempt(Vec::new());

    /// Makes a list of at most 256 networks.
    ///
    /// # Errors
    /// [`BpfError::TooMany`] from the 257th on.
    pub fn new(networks: Vec<Network>) -> Result<Exempt, BpfError> {
        match networks.len() {
            0..=NETWORKS => Ok(Exempt(networks)),
            _ => Err(BpfError::TooMany { what: "the list of exempt networks", limit: NETWORKS }),
        }
    }

    /// Returns the networks.
    pub fn networks(&self) -> &[Network] {
        &self.0
    }

    /// Tells whether an address is in one of the networks.
    pub fn contains(&self, address: IpAddr) -> bool {
        let mapped = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().into(),
            IpAddr::V6(_) => address,
        };
        self.0.iter().any(|network| network.contains(address) || network.contains(mapped))
    }

    /// The number of networks.
    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Writes the networks into the object's map. The object's programs must be loaded: they keep the map.
    pub(crate) fn fill(&self, loaded: &mut Loaded) -> Result<(), BpfError> {
        let filled = LpmTrie::try_from(loaded.take_map("exempt")).and_then(|mut map| {
            self.0.iter().try_for_each(|network| {
                let before = if network.address().is_ipv4() { MAPPED_BITS } else { 0 };
                let key = Key::new(before + u32::from(network.prefix()), address_octets(network.address()));
                map.insert(&key, 1_u32, 0)
            })
        });
        filled.map_err(|error| loaded.error("set the exempt networks", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exempt_network_contains_mapped_addresses() {
        let contains = |network: &str, address: &str| {
            Exempt(vec![network.parse().unwrap()]).contains(address.parse().unwrap())
        };
        assert!(contains("10.0.0.0/8", "10.1.2.3") && !contains("10.0.0.0/8", "11.1.2.3"));
        assert!(contains("::/0", "10.1.2.3") && contains("::/0", "2001:db8::1"));
        assert!(!contains("2001:db8::/32", "10.1.2.3") && !contains("0.0.0.0/0", "2001:db8::1"));
    }
}
