//! The groups of a key exchange, with X25519MLKEM768 among them (draft-ietf-tls-ecdhe-mlkem, section 4).
//!
//! A recorded connection over X25519 alone can be read once a quantum computer exists. The hybrid adds ML-KEM-768
//! (FIPS 203): its secret holds as long as one of the two does. Owns the form of its key shares, which is ML-KEM's part and
//! then that of X25519. Both computations are a library's, ml-kem and ring (docs/decisions/0070).
//!
//! Leaves out the choice between groups: rustls takes the first of the client's list that the provider has.
//!
//! Invariants: only TLS 1.3 uses the hybrid. A share of another length, a key that FIPS 203 refuses, or a point of low
//! order ends the handshake. A server only encapsulates, so it has no long-lived or reused ML-KEM key. Each copy of a
//! secret that this module makes is overwritten at its end; ml-kem and ring may leave copies on the stack.

use ml_kem::kem::{Decapsulate, Encapsulate, Kem, KeyExport};
use ml_kem::ml_kem_768::{DecapsulationKey, EncapsulationKey};
use ml_kem::{MlKem768, SharedKey};
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup, ring,
};
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};
use zeroize::Zeroize;

/// Length of a client's ML-KEM key, in bytes (FIPS 203, table 3).
const KEY_BYTES: usize = 1184;

/// Length of a server's ML-KEM ciphertext, in bytes (FIPS 203, table 3).
const CIPHERTEXT_BYTES: usize = 1088;

const INVALID_SHARE: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// Returns ring's provider with the hybrid group before its own. A client with this provider offers the hybrid first. A
/// server with it uses the hybrid with each client that prefers it, and another group with other clients.
pub fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.kx_groups.insert(0, &Hybrid);
    provider
}

/// X25519MLKEM768.
#[derive(Debug)]
struct Hybrid;

/// A client's half of an exchange.
struct Offered {
    key: DecapsulationKey,
    classical: Box<dyn ActiveKeyExchange>,
    share: Vec<u8>,
}

/// The part of ML-KEM, then that of X25519.
fn joined(post_quantum: &[u8], classical: &[u8]) -> Vec<u8> {
    [post_quantum, classical].concat()
}

/// The secret of the hybrid. Overwrites that of ML-KEM; rustls does so with the other two.
fn joined_secret(post_quantum: &mut SharedKey, classical: &SharedSecret) -> SharedSecret {
    let secret = joined(post_quantum, classical.secret_bytes());
    post_quantum.zeroize();
    SharedSecret::from(secret)
}

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let classical = ring::kx_group::X25519.start()?;
        let (key, public) = MlKem768::generate_keypair();
        let share = joined(&public.to_bytes(), classical.pub_key());
        Ok(Box::new(Offered { key, classical, share }))
    }

    fn start_and_complete(&self, client: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (key, point) = client.split_at_checked(KEY_BYTES).ok_or(INVALID_SHARE)?;
        let key = key.try_into().map_err(|_| INVALID_SHARE)?;
        let key = EncapsulationKey::new(key).map_err(|_| INVALID_SHARE)?;
        let classical = ring::kx_group::X25519.start_and_complete(point)?;
        let (ciphertext, mut secret) = key.encapsulate();
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: joined(&ciphertext, &classical.pub_key),
            secret: joined_secret(&mut secret, &classical.secret),
        })
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

impl ActiveKeyExchange for Offered {
    fn complete(self: Box<Self>, server: &[u8]) -> Result<SharedSecret, Error> {
        let (ciphertext, point) = server.split_at_checked(CIPHERTEXT_BYTES).ok_or(INVALID_SHARE)?;
        let classical = self.classical.complete(point)?;
        let mut secret = self.key.decapsulate_slice(ciphertext).map_err(|_| INVALID_SHARE)?;
        Ok(joined_secret(&mut secret, &classical))
    }

    /// A server without the hybrid can use the share of X25519 without asking again.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((self.classical.group(), self.classical.pub_key()))
    }

    fn complete_hybrid_component(self: Box<Self>, server: &[u8]) -> Result<SharedSecret, Error> {
        self.classical.complete(server)
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_of_the_hybrid_share_a_secret() {
        let client = Hybrid.start().unwrap();
        assert_eq!(client.pub_key().len(), KEY_BYTES + 32);
        let server = Hybrid.start_and_complete(client.pub_key()).unwrap();
        assert_eq!(server.pub_key.len(), CIPHERTEXT_BYTES + 32);
        let secret = client.complete(&server.pub_key).unwrap();
        assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
        assert_eq!(secret.secret_bytes().len(), 64);
    }

    /// The order is part of the protocol: both ends of the test above would agree on another one too.
    #[test]
    fn part_of_ml_kem_comes_first_in_shares_and_secret() {
        let (key, public) = MlKem768::generate_keypair();
        let classical = ring::kx_group::X25519.start().unwrap();
        let share = [&public.to_bytes()[..], classical.pub_key()].concat();
        let server = Hybrid.start_and_complete(&share).unwrap();
        let (ciphertext, point) = server.pub_key.split_at(CIPHERTEXT_BYTES);
        let post_quantum = key.decapsulate_slice(ciphertext).unwrap();
        let classical = classical.complete(point).unwrap();
        assert_eq!(server.secret.secret_bytes(), [&post_quantum[..], classical.secret_bytes()].concat());
    }

    #[test]
    fn point_of_low_order_is_refused_by_both_ends() {
        let client = Hybrid.start().unwrap();
        let server = Hybrid.start_and_complete(client.pub_key()).unwrap();
        // RFC 7748, section 6.1: both give an X25519 secret of zeros.
        for low in [0, 1] {
            let point = [&[low][..], &[0; 31]].concat();
            let share = [&client.pub_key()[..KEY_BYTES], &point].concat();
            assert!(Hybrid.start_and_complete(&share).is_err());
            let share = [&server.pub_key[..CIPHERTEXT_BYTES], &point].concat();
            assert!(Hybrid.start().unwrap().complete(&share).is_err());
        }
    }

    #[test]
    fn client_share_that_is_wrong_is_refused() {
        let client = Hybrid.start().unwrap();
        let share = client.pub_key();
        // A coefficient of 4095 is not below the modulus 3329.
        let not_a_key = [&[0xff; 3], &share[3..]].concat();
        for wrong in [&[][..], &share[..KEY_BYTES], &share[1..], &[share, &[0]].concat(), &not_a_key] {
            assert!(Hybrid.start_and_complete(wrong).is_err(), "{} bytes", wrong.len());
        }
    }

    #[test]
    fn server_share_that_is_wrong_is_refused() {
        for length in [0, 32, CIPHERTEXT_BYTES, CIPHERTEXT_BYTES + 31, CIPHERTEXT_BYTES + 33] {
            assert!(Hybrid.start().unwrap().complete(&vec![9; length]).is_err(), "{length} bytes");
        }
    }
}
