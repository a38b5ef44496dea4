//! The wrong passwords of each client.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;

use base::Nanos;
use lru::LruCache;

/// Most wrong passwords of a client in a [`WINDOW`].
const MOST: u32 = 10;

/// Time that begins with a client's first wrong password.
const WINDOW: Nanos = Nanos::from_secs(60);

/// Most clients that are known. The one that has been quiet longest is forgotten first.
const MOST_CLIENTS: NonZeroUsize = NonZeroUsize::new(16384).expect("it is not zero");

/// The wrong tries of clients.
#[derive(Debug)]
pub(super) struct Tries(LruCache<IpAddr, Window>);

#[derive(Clone, Copy, Debug)]
struct Window {
    began: Nanos,
    tries: u32,
}

impl Default for Tries {
    fn default() -> Tries {
        Tries(LruCache::new(MOST_CLIENTS))
    }
}

impl Tries {
    /// Returns the seconds until a client may try again; `None` if it may now.
    pub(super) fn blocked_for(&self, client: IpAddr, now: Nanos) -> Option<u64> {
        let window = self.0.peek(&subject(client))?;
        let left = (window.began + WINDOW).saturating_sub(now);
        (window.tries >= MOST && left > Nanos::ZERO).then(|| left.0.div_ceil(Nanos::SECOND.0))
    }

    /// Adds a wrong try.
    pub(super) fn add(&mut self, client: IpAddr, now: Nanos) {
        let window = self.0.get_or_insert_mut(subject(client), || Window { began: now, tries: 0 });
        if now >= window.began + WINDOW {
            *window = Window { began: now, tries: 0 };
        }
        window.tries += 1;
    }
}

/// The address that stands for a client: of IPv6, its network of 64 bits, which one client can have all of.
fn subject(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_one_64_of_ipv6_share_their_tries() {
        let (mut tries, now) = (Tries::default(), Nanos::SECOND);
        for client in 0..10 {
            tries.add(format!("2001:db8::{client}").parse().unwrap(), now);
        }
        let blocked = |client: &str, now| tries.blocked_for(client.parse().unwrap(), now);
        assert_eq!(blocked("2001:db8::99", now + Nanos::from_millis(1500)), Some(59));
        assert_eq!(blocked("2001:db8:0:1::1", now), None);
        assert_eq!(blocked("2001:db8::1", now + WINDOW), None);
    }

    #[test]
    fn clients_beyond_the_limit_are_forgotten() {
        let mut tries = Tries::default();
        for client in 0..MOST_CLIENTS.get() as u32 + 1 {
            tries.add(std::net::Ipv4Addr::from_bits(client).into(), Nanos::SECOND);
        }
        assert_eq!(tries.0.len(), MOST_CLIENTS.get());
        assert!(tries.0.peek(&"0.0.0.0".parse::<IpAddr>().unwrap()).is_none());
    }
}
