//! Networks whose SYNs the admission never refuses, such as those of health checks.

use std::net::IpAddr;

use aya::maps::lpm_trie::{Key, LpmTrie};

use crate::address_octets;
use crate::error::BpfError;
use crate::object::Loaded;

/// `EXEMPT_NETWORKS` of `bpf/admission.h`.
const NETWORKS: usize = 256;
/// Bits before an IPv4 address that is mapped into IPv6.
const MAPPED_BITS: u32 = 96;

/// Networks whose SYNs are admitted even while others are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exempt(Vec<(IpAddr, u8)>);

impl Exempt {
    /// No networks.
    pub const NONE: Exempt = Exempt(Vec::new());

    /// Networks, each an address and the length of its prefix in bits.
    ///
    /// # Errors
    /// [`BpfError::TooMany`] from the 257th on.
    pub fn new(networks: Vec<(IpAddr, u8)>) -> Result<Exempt, BpfError> {
        match networks.len() {
            0..=NETWORKS => Ok(Exempt(networks)),
            _ => Err(BpfError::TooMany { what: "the list of exempt networks", limit: NETWORKS }),
        }
    }

    /// The number of networks.
    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Writes the networks into the object's map. The object's programs must be loaded: they keep the map.
    pub(crate) fn fill(&self, loaded: &mut Loaded) -> Result<(), BpfError> {
        let filled = LpmTrie::try_from(loaded.take_map("exempt")).and_then(|mut map| {
            self.0.iter().try_for_each(|(address, prefix)| {
                let before = if address.is_ipv4() { MAPPED_BITS } else { 0 };
                let key = Key::new(before + u32::from(*prefix), address_octets(*address));
                map.insert(&key, 1_u32, 0)
            })
        });
        filled.map_err(|error| loaded.error("set the exempt networks", &error))
    }
}
