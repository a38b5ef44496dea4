//! Initial sequence numbers (RFC 6528): a keyed hash of the addresses and ports, plus a clock.
//!
//! The clock ticks every 64 ns, as Linux's clock does. The number of a name therefore rises from one
//! connection to the next. A server with the last connection in TIME-WAIT then accepts the new SYN (RFC 9293,
//! section 3.6.1).

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use base::Nanos;
use siphasher::sip::SipHasher24;

use crate::wrapping::Seq;

const TICK: Nanos = Nanos(64);

/// Draws initial sequence numbers for connections to one server.
pub struct InitialSequence {
    /// Keyed hash that already contains the server's address and port.
    hash: SipHasher24,
}

impl InitialSequence {
    /// A source with a secret key.
    pub fn new(key: [u64; 2], remote: SocketAddr) -> InitialSequence {
        let mut hash = SipHasher24::new_with_keys(key[0], key[1]);
        write_name(&mut hash, remote);
        InitialSequence { hash }
    }

    /// The number for a connection that begins at `time`, on a clock that goes on when the program restarts.
    pub fn at(&self, time: Nanos, local: SocketAddr) -> Seq {
        let mut hash = self.hash;
        write_name(&mut hash, local);
        Seq((hash.finish() as u32).wrapping_add((time.0 / TICK.0) as u32))
    }
}

fn write_name(hash: &mut SipHasher24, name: SocketAddr) {
    match name.ip() {
        IpAddr::V4(v4) => hash.write(&v4.octets()),
        IpAddr::V6(v6) => hash.write(&v6.octets()),
    }
    hash.write_u16(name.port());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isn_rises_per_name_and_differs_by_name_and_key() {
        let server = "10.0.0.1:80".parse().unwrap();
        let (name, other) = ("10.94.0.1:1024".parse().unwrap(), "10.94.0.1:1025".parse().unwrap());
        let numbers = InitialSequence::new([1, 2], server);
        let first = numbers.at(Nanos::SECOND, name);
        assert_eq!(numbers.at(Nanos::SECOND + Nanos(6400), name).since(first), 100);
        assert_ne!(numbers.at(Nanos::SECOND, other), first);
        assert_ne!(InitialSequence::new([1, 3], server).at(Nanos::SECOND, name), first);
        assert_ne!(InitialSequence::new([1, 2], other).at(Nanos::SECOND, name), first);
    }
}
