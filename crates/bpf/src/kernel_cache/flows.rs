//! Connections and answers in the form of the program's maps.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use base::Nanos;

use super::{Answer, ObjectId};
use crate::address_octets;

/// `struct tuple` of `programs/tcp_segment.h`.
pub(super) type Key = [u8; 36];
/// `struct flow` of `programs/cache_memory.h`, which begins with the times of its last packet and its last answer.
pub(super) type Value = [u8; 176];

/// The key of a connection.
pub(super) fn key(client: SocketAddr, server: SocketAddr) -> Key {
    let mut key = [0; 36];
    key[..16].copy_from_slice(&address_octets(client.ip()));
    key[16..32].copy_from_slice(&address_octets(server.ip()));
    key[32..34].copy_from_slice(&client.port().to_be_bytes());
    key[34..36].copy_from_slice(&server.port().to_be_bytes());
    key
}

/// Client and server of a connection.
pub(super) fn ends(key: &Key) -> (SocketAddr, SocketAddr) {
    let port = |at: usize| u16::from_be_bytes([key[at], key[at + 1]]);
    (SocketAddr::new(address(&key[..16]), port(32)), SocketAddr::new(address(&key[16..32]), port(34)))
}

/// The time of a connection's last packet.
pub(super) fn touched(flow: &Value) -> Nanos {
    Nanos(u64::from_ne_bytes(flow[..8].try_into().expect("eight bytes")))
}

/// The time of a connection's last answer; 0 without one.
pub(super) fn answered(flow: &Value) -> Nanos {
    Nanos(u64::from_ne_bytes(flow[8..16].try_into().expect("eight bytes")))
}

/// `struct event`.
pub(super) fn answer(event: &[u8]) -> Answer {
    let word = |at: usize| u32::from_ne_bytes(event[at..at + 4].try_into().expect("four bytes"));
    let port = |at: usize| u16::from_be_bytes([event[at], event[at + 1]]);
    Answer {
        at: Nanos(u64::from(word(0)) | u64::from(word(4)) << 32),
        client: SocketAddr::new(address(&event[8..24]), port(24)),
        port: port(26),
        object: ObjectId { index: word(28), generation: word(32) },
        bytes: word(36),
    }
}

fn address(octets: &[u8]) -> IpAddr {
    let octets: [u8; 16] = octets.try_into().expect("sixteen bytes");
    IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_both_ends() {
        for (client, server) in [("10.1.2.3:4567", "10.0.0.1:80"), ("[fd00::2]:4567", "[fd00::1]:8080")] {
            let (client, server) = (client.parse().unwrap(), server.parse().unwrap());
            assert_eq!(ends(&key(client, server)), (client, server));
        }
    }
}
