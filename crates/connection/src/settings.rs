//! Limits and timeouts of the protocol, which may change while the server runs.
//!
//! Each thread holds a copy and checks for newer settings when it begins a turn. The check loads one number that
//! hardly ever changes.

use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use base::lock;
use http_semantics::server::Settings;
use sys::socket::local_address;
use tls::Sessions;

use crate::clients::Clients;
use crate::custody::Custody;

/// One thread's view of the settings. A clone is another thread's view of the same settings.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    shared: Arc<Shared>,
    seen: u64,
    mine: Arc<Settings>,
    tls: Option<Sessions>,
    /// The addresses without TLS beside those with it; unset until the kernel has chosen their ports.
    plain: Arc<OnceLock<Vec<SocketAddr>>>,
    clients: Option<Clients>,
    custody: Custody,
}

/// The right to set the addresses without TLS, for all views of the settings. Setting them consumes it.
#[derive(Debug)]
pub struct PlainAddresses(Arc<OnceLock<Vec<SocketAddr>>>);

impl PlainAddresses {
    /// Sets the addresses.
    pub fn set(self, addresses: impl Iterator<Item = SocketAddr>) {
        let _ = self.0.set(addresses.collect());
    }
}

#[derive(Debug)]
struct Shared {
    version: AtomicU64,
    newest: Mutex<Arc<Settings>>,
}

impl LiveSettings {
    /// Makes the settings of a server that starts.
    pub fn new(settings: Settings) -> LiveSettings {
        let mine = Arc::new(settings);
        let shared = Shared { version: AtomicU64::new(0), newest: Mutex::new(Arc::clone(&mine)) };
        LiveSettings {
            shared: Arc::new(shared),
            seen: 0,
            mine,
            tls: None,
            plain: Arc::default(),
            clients: None,
            custody: Custody::default(),
        }
    }

    /// Adds TLS, whose certificates may change as well, and the addresses without it.
    pub fn with_tls(self, tls: Option<Sessions>, plain: &[SocketAddr]) -> LiveSettings {
        LiveSettings { tls, plain: Arc::new(OnceLock::from(plain.to_vec())), ..self }
    }

    /// Returns the same settings for addresses without TLS that are known only after binding, and the value that sets
    /// them.
    pub fn until_bound(self) -> (LiveSettings, PlainAddresses) {
        let plain = Arc::<OnceLock<_>>::default();
        (LiveSettings { plain: Arc::clone(&plain), ..self }, PlainAddresses(plain))
    }

    /// Adds the limits of each client.
    pub fn with_clients(self, clients: Option<Clients>) -> LiveSettings {
        LiveSettings { clients, ..self }
    }

    /// Adds the custody of the listening sockets, which decides how connections end.
    pub fn with_custody(self, custody: Custody) -> LiveSettings {
        LiveSettings { custody, ..self }
    }

    /// Returns the custody of the listening sockets.
    pub fn custody(&self) -> &Custody {
        &self.custody
    }

    /// Returns the limits of each client; `None` without limits, exempt clients and proxies.
    pub fn clients(&self) -> Option<&Clients> {
        self.clients.as_ref()
    }

    /// Returns the maker of TLS sessions; `None` for a server without certificates.
    pub fn tls(&self) -> Option<&Sessions> {
        self.tls.as_ref()
    }

    /// Returns the maker of TLS sessions for a connection; `None` for a plain one. Calls `getsockname` if the server has
    /// addresses of both kinds.
    pub fn tls_of(&self, connection: &OwnedFd) -> Option<&Sessions> {
        let is_plain = || local_address(connection).is_ok_and(|address| self.is_plain(address));
        self.tls().filter(|_| !(self.has_plain() && is_plain()))
    }

    fn has_plain(&self) -> bool {
        self.plain.get().is_some_and(|plain| !plain.is_empty())
    }

    /// Tells whether connections to an address are plain.
    pub fn is_plain(&self, address: SocketAddr) -> bool {
        let has = |plain: &SocketAddr| {
            let ip = plain.ip();
            plain.port() == address.port()
                && (ip.is_unspecified() || ip.to_canonical() == address.ip().to_canonical())
        };
        self.tls.is_none() || self.plain.get().is_some_and(|plain| plain.iter().any(has))
    }

    /// Replaces the settings of all threads. Each thread takes them at its next [`LiveSettings::refresh`].
    pub fn set(&self, settings: Settings) {
        let mut newest = lock(&self.shared.newest);
        *newest = Arc::new(settings);
        self.shared.version.fetch_add(1, Ordering::Release);
    }

    /// Takes the newest settings.
    pub fn refresh(&mut self) {
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.seen {
            self.mine = Arc::clone(&lock(&self.shared.newest));
            self.seen = version;
        }
    }
}

impl Deref for LiveSettings {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.mine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_at_the_next_look() {
        let setter = LiveSettings::new(Settings::default());
        let mut user = setter.clone();
        let mut changed = Settings::default();
        changed.limits.fields = 7;
        setter.set(changed);
        assert_eq!(user.limits.fields, Settings::default().limits.fields);
        user.refresh();
        assert_eq!(user.limits.fields, 7);
        assert_eq!(setter.clone().limits.fields, Settings::default().limits.fields);
    }

    #[test]
    fn plain_addresses_after_binding_reach_every_view() {
        let address = "127.0.0.1:8080".parse().unwrap();
        let (settings, plain) = LiveSettings::new(Settings::default()).until_bound();
        let view = settings.clone();
        assert!(!view.has_plain());
        plain.set([address].into_iter());
        assert!(view.has_plain() && settings.has_plain());
    }
}
