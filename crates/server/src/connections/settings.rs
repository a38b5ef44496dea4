//! Limits and timeouts of the protocol, which may change while the server runs.
//!
//! Each thread holds a copy and checks for newer settings when it begins a turn. The check loads one number that
//! hardly ever changes.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base::lock;
use http1::server::Settings;
use tls::Sessions;

use crate::connections::clients::Clients;
use crate::ground::listener::Custody;

/// One thread's view of the settings. A clone is another thread's view of the same settings.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    shared: Arc<Shared>,
    seen: u64,
    mine: Arc<Settings>,
    tls: Option<Sessions>,
    clients: Option<Clients>,
    custody: Custody,
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
            clients: None,
            custody: Custody::default(),
        }
    }

    /// Adds TLS, whose certificates may change as well.
    pub fn with_tls(self, tls: Option<Sessions>) -> LiveSettings {
        LiveSettings { tls, ..self }
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

    /// Returns the limits of each client; `None` without limits and proxies.
    pub fn clients(&self) -> Option<&Clients> {
        self.clients.as_ref()
    }

    /// Returns the maker of TLS sessions; `None` for plain connections.
    pub fn tls(&self) -> Option<&Sessions> {
        self.tls.as_ref()
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
}
