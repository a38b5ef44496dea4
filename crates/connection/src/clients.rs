//! Limits of each client: its open connections, and its new connections a second.
//!
//! ```text
//!   accept ──> exempt, or no limit is set ──> Free
//!          ├─> a proxy ──> Free; the machine asks again when the PROXY protocol has told the client
//!          └─> connections ──> rate ──> Counted: until the connection ends
//!                   └───────────┴────> Refused: answered 429, or reset under TLS
//! ```
//!
//! A client is an IPv4 address, or the first 64 bits of an IPv6 address, because a provider gives each customer at
//! least that many addresses. All loops and threads of a process share two tables of fixed size (`sketch`). Attackers choose
//! addresses, so the index of a client is a keyed hash of its address, with a new key at each start.
//!
//! Both tables are sketches. A client's figure is never too low, so no client exceeds a limit. Other clients may make
//! it too high, so that a connection is refused by mistake. `docs/decisions/0035` has the bound, and `sketch` its
//! measurement.
//!
//! Owns the decision and the tables. The acceptor carries out a refusal; behind a proxy, the machine does. Worker
//! processes share no tables, so their architectures do not offer the limits.
//!
//! Invariants: a server without limits, exempt clients and proxies has no [`Clients`]; a [`Permit`] gives its
//! connection back when it is dropped.

mod sketch;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base::{Nanos, Network};
use bpf::Exempt;

use crate::counts::PeerCounts;
use sketch::{Counts, Hasher, Places, Rates};

/// The limits of each client, and the proxies in front of the server.
#[derive(Clone, Debug, Default)]
pub struct ClientSettings {
    /// The maximum number of open connections of one client.
    pub connections: Option<u32>,
    /// New connections of one client, per second. The same number may come at once.
    pub rate_per_s: Option<u32>,
    /// Clients that neither these limits nor overload control refuses.
    pub exempt: Exempt,
    /// Peers whose connections begin with a header of the PROXY protocol.
    pub proxies: Vec<Network>,
}

impl ClientSettings {
    /// Tells whether a client has a limit.
    pub fn has_limits(&self) -> bool {
        self.connections.is_some() || self.rate_per_s.is_some()
    }
}

/// The limits in use. Clones share them.
#[derive(Clone, Debug)]
pub struct Clients(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    hasher: Hasher,
    counts: Option<Counts>,
    rates: Option<Rates>,
    exempt: Exempt,
    proxies: Vec<Network>,
    resets: bool,
}

/// The decision on a client's connection.
#[derive(Debug, Default)]
pub enum Admission {
    /// Nothing is counted for this connection.
    #[default]
    Free,
    /// The connection is one of its client's.
    Counted(Box<Permit>),
    /// The client has reached a limit.
    Refused,
}

/// The right to one of a client's open connections.
#[derive(Debug)]
pub struct Permit {
    clients: Arc<Shared>,
    places: Places,
}

impl Admission {
    /// Returns the right that a counted connection holds.
    pub fn permit(self) -> Option<Box<Permit>> {
        match self {
            Admission::Counted(permit) => Some(permit),
            Admission::Free | Admission::Refused => None,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.clients.counts.iter().for_each(|counts| counts.close(&self.places));
    }
}

impl Clients {
    /// Makes the tables for at most `connections` open connections. Returns `None` without limits, exempt clients and
    /// proxies.
    /// `resets` selects resets for refused connections, because an answer would cost a TLS handshake.
    pub fn new(
        settings: &ClientSettings,
        connections: usize,
        resets: bool,
        key: [u64; 2],
    ) -> Option<Clients> {
        let exempts = !settings.exempt.networks().is_empty();
        if !settings.has_limits() && !exempts && settings.proxies.is_empty() {
            return None;
        }
        Some(Clients(Arc::new(Shared {
            hasher: Hasher::new(key),
            counts: settings.connections.map(|most| Counts::new(most, connections)),
            rates: settings.rate_per_s.map(Rates::new),
            exempt: settings.exempt.clone(),
            proxies: settings.proxies.clone(),
            resets,
        })))
    }

    /// Tells whether a refused connection is reset instead of answered.
    pub fn resets(&self) -> bool {
        self.0.resets
    }

    /// Tells whether the connections of a peer begin with a header of the PROXY protocol.
    pub fn is_proxy(&self, peer: Option<SocketAddr>) -> bool {
        is_in(&self.0.proxies, peer.map(canonical))
    }

    /// Tells whether no limit and no overload control may refuse a client.
    pub fn is_exempt(&self, client: SocketAddr) -> bool {
        self.0.exempt.contains(canonical(client))
    }

    /// Decides on a new connection of a peer.
    pub fn admit_peer(&self, peer: Option<SocketAddr>, now: Nanos, counts: &mut PeerCounts) -> Admission {
        match peer {
            Some(address) if !self.is_proxy(peer) => self.admit(address, now, counts),
            _ => Admission::Free,
        }
    }

    /// Decides on a new connection of a client, and counts a refusal.
    pub fn admit(&self, client: SocketAddr, now: Nanos, counts: &mut PeerCounts) -> Admission {
        let Shared { hasher, counts: open, rates, exempt, .. } = &*self.0;
        let client = canonical(client);
        if (open.is_none() && rates.is_none()) || exempt.contains(client) {
            return Admission::Free;
        }
        let places = hasher.places(client);
        if open.as_ref().is_some_and(|open| !open.open(&places)) {
            counts.limit_client_connections += 1;
            return Admission::Refused;
        }
        let permit = open.as_ref().map(|_| Permit { clients: Arc::clone(&self.0), places });
        if rates.as_ref().is_some_and(|rates| !rates.admit(&places, now)) {
            counts.limit_client_rate += 1;
            return Admission::Refused;
        }
        permit.map_or(Admission::Free, |permit| Admission::Counted(Box::new(permit)))
    }
}

/// Returns the address of a peer, as plain IPv4 even if it came through an IPv6 listener.
fn canonical(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

fn is_in(networks: &[Network], address: Option<IpAddr>) -> bool {
    address.is_some_and(|address| networks.iter().any(|network| network.contains(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(settings: &ClientSettings) -> Clients {
        Clients::new(settings, 100, false, [1, 2]).unwrap()
    }

    fn exempt(network: &str) -> Exempt {
        Exempt::new(vec![network.parse().unwrap()]).unwrap()
    }

    fn peer(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), 1)
    }

    fn is_refused(clients: &Clients, ip: &str, counts: &mut PeerCounts) -> bool {
        matches!(clients.admit_peer(Some(peer(ip)), Nanos::SECOND, counts), Admission::Refused)
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_a_64_of_ipv6() {
        let clients = clients(&ClientSettings { connections: Some(1), ..ClientSettings::default() });
        let mut counts = PeerCounts::default();
        let mut open = |ip| clients.admit_peer(Some(peer(ip)), Nanos::SECOND, &mut counts);
        let held = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1"].map(&mut open);
        assert!(held.iter().all(|admission| matches!(admission, Admission::Counted(_))));
        for same in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::2", "2001:db8:0:1:ffff::"] {
            assert!(is_refused(&clients, same, &mut counts), "{same}");
        }
        assert_eq!(counts.limit_client_connections, 4);
        drop(held);
        assert!(!is_refused(&clients, "2001:db8::3", &mut counts));
    }

    #[test]
    fn a_refusal_by_rate_gives_the_connection_back() {
        let settings =
            ClientSettings { connections: Some(1), rate_per_s: Some(2), ..ClientSettings::default() };
        let (clients, mut counts) = (clients(&settings), PeerCounts::default());
        let refused = [(); 5].map(|()| is_refused(&clients, "192.0.2.1", &mut counts));
        assert_eq!(refused, [false, false, true, true, true]);
        assert_eq!((counts.limit_client_connections, counts.limit_client_rate), (0, 3));
    }

    #[test]
    fn exempt_clients_and_proxies_are_never_refused() {
        let settings = ClientSettings {
            connections: Some(1),
            rate_per_s: Some(1),
            exempt: exempt("192.0.2.0/25"),
            proxies: vec!["2001:db8::/32".parse().unwrap()],
        };
        let (clients, mut counts) = (clients(&settings), PeerCounts::default());
        for free in ["192.0.2.1", "192.0.2.127", "::ffff:192.0.2.1", "2001:db8::9"] {
            assert!([(); 9].iter().all(|()| !is_refused(&clients, free, &mut counts)), "{free}");
        }
        assert!(clients.is_proxy(Some(peer("2001:db8::9"))) && !clients.is_proxy(Some(peer("192.0.2.1"))));
        // The address that a proxy tells counts, even if it is the proxy's own.
        let mut told =
            || matches!(clients.admit(peer("2001:db8::9"), Nanos::ZERO, &mut counts), Admission::Refused);
        assert_eq!([told(), told()], [false, true]);
    }

    #[test]
    fn without_settings_there_is_nothing_to_ask() {
        assert!(Clients::new(&ClientSettings::default(), 9, false, [0; 2]).is_none());
        let exempt = exempt("192.0.2.0/25");
        let clients = clients(&ClientSettings { exempt, ..ClientSettings::default() });
        assert!(clients.is_exempt(peer("192.0.2.1")) && clients.is_exempt(peer("::ffff:192.0.2.1")));
        assert!(!clients.is_exempt(peer("192.0.2.128")));
        let mut counts = PeerCounts::default();
        assert!(!is_refused(&clients, "192.0.2.128", &mut counts), "there is no limit");
    }
}
