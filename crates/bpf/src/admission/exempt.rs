//! Clients whose SYNs the admission never refuses, such as health checks: networks that the user names, and sources that
//! connect at a steady pace.

use std::net::IpAddr;

use aya::EbpfLoader;
use aya::maps::lpm_trie::{Key, LpmTrie};
use base::Network;

use crate::address_octets;
use crate::error::BpfError;
use crate::object::Loaded;

/// `EXEMPT_NETWORKS` of `programs/admission.h`.
const NETWORKS: usize = 256;
/// Sources whose pace the program keeps, if it does: some 7 MB.
const SOURCES: u32 = 1 << 16;
/// Bits before an IPv4 address that is mapped into IPv6.
const MAPPED_BITS: u32 = 96;

/// Clients whose SYNs are admitted even while others are refused. An IPv4 address is also in the IPv6 networks that
/// contain its mapped form, such as `::/0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exempt {
    networks: Vec<Network>,
    steady_sources: bool,
}

impl Exempt {
    /// Nobody.
    pub const NONE: Exempt = Exempt { networks: Vec::new(), steady_sources: false };

    /// Makes a list of at most 256 networks.
    ///
    /// # Errors
    /// [`BpfError::TooMany`] from the 257th on.
    pub fn new(networks: Vec<Network>) -> Result<Exempt, BpfError> {
        match networks.len() {
            0..=NETWORKS => Ok(Exempt { networks, steady_sources: false }),
            _ => Err(BpfError::TooMany { what: "the list of exempt networks", limit: NETWORKS }),
        }
    }

    /// With the sources that connect at a steady pace, or without them: five times, with gaps between half a second and two
    /// minutes that differ by an eighth at most. A program learns them while nobody is refused.
    pub fn with_steady_sources(self, steady_sources: bool) -> Exempt {
        Exempt { steady_sources, ..self }
    }

    /// Returns the networks.
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// True with the sources that connect at a steady pace.
    pub fn has_steady_sources(&self) -> bool {
        self.steady_sources
    }

    /// Tells whether an address is in one of the networks.
    pub fn contains(&self, address: IpAddr) -> bool {
        let mapped = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().into(),
            IpAddr::V6(_) => address,
        };
        self.networks.iter().any(|network| network.contains(address) || network.contains(mapped))
    }

    /// What an object that includes `programs/admission.h` is told at its loading.
    pub(crate) fn constants(&self) -> [(&'static str, u32); 2] {
        [("exempt_networks", self.networks.len() as u32), ("steady_sources", self.steady_sources.into())]
    }

    /// Makes room in such an object.
    pub(crate) fn make_room(&self, loader: &mut EbpfLoader<'_>) {
        loader.map_max_entries("paces", if self.steady_sources { SOURCES } else { 1 });
    }

    /// Writes the networks into the object's map. The object's programs must be loaded: they keep the map.
    pub(crate) fn fill(&self, loaded: &mut Loaded) -> Result<(), BpfError> {
        let filled = LpmTrie::try_from(loaded.take_map("exempt")).and_then(|mut map| {
            self.networks.iter().try_for_each(|network| {
                let before = if network.address().is_ipv4() { MAPPED_BITS } else { 0 };
                let key = Key::new(before + u32::from(network.prefix()), address_octets(network.address()));
                map.insert(&key, 1_u32, 0)
            })
        });
        filled.map_err(|error| loaded.error("set the exempt networks", &error))
    }
}

#[cfg(test)]
mod tests;
