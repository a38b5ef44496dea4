//! The state that all connections share: certificates, tickets, and the accepted versions and suites.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use base::RealClock;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;

use crate::key_exchange::provider;
use crate::material::{Material, TlsError};
use crate::names::{HostOf, Names, Owned};
use crate::session::Session;
use crate::tickets::{State, Tickets};

/// Makes sessions; clones share everything.
#[derive(Clone)]
pub struct Sessions(Arc<Shared>);

struct Shared {
    config: Arc<ServerConfig>,
    names: Arc<Names>,
    tickets: Arc<Tickets<RealClock>>,
    /// The origin of the certificates in force, for other processes.
    material: Mutex<Material>,
    provider: Arc<CryptoProvider>,
}

impl Sessions {
    /// Makes sessions with ticket keys of their own.
    ///
    /// # Errors
    /// [`TlsError`]: a certificate or key cannot be used.
    ///
    /// # Panics
    /// Without any certificate, or if the kernel has no randomness.
    pub fn new(material: Material) -> Result<Sessions, TlsError> {
        let tickets = Tickets::new(RealClock::new()).expect("the kernel has randomness");
        Sessions::with(material, tickets)
    }

    /// Makes sessions that open the tickets of another process, by its [`Sessions::ticket_keys`]. Keys in another form are
    /// ignored: clients make a full handshake then.
    ///
    /// # Errors
    /// [`TlsError`]: a certificate or key cannot be used.
    ///
    /// # Panics
    /// As [`Sessions::new`].
    pub fn continuing(material: Material, keys: &[u8]) -> Result<Sessions, TlsError> {
        match keys.try_into() {
            Ok(state) => Sessions::with(material, Tickets::of(State::from_bytes(state), RealClock::new())),
            Err(_) => Sessions::new(material),
        }
    }

    /// Returns the keys of tickets. Send them over a private channel only.
    pub fn ticket_keys(&self) -> Vec<u8> {
        self.0.tickets.state().to_bytes().to_vec()
    }

    fn with(material: Material, tickets: Tickets<RealClock>) -> Result<Sessions, TlsError> {
        let provider = Arc::new(provider());
        let names = Arc::new(Names::new(material.certified(&provider)?));
        let tickets = Arc::new(tickets);
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&names) as _);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = Arc::clone(&tickets) as _;
        // Tickets only: one process does not know the sessions that another has stored.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let (config, material) = (Arc::new(config), Mutex::new(material));
        Ok(Sessions(Arc::new(Shared { config, names, tickets, material, provider })))
    }

    /// Sets the function that finds the host of a name, for all clones. Certificates of one host are then chosen for
    /// its names.
    pub fn choose_hosts(&self, host_of: HostOf) {
        self.0.names.choose_hosts(host_of);
    }

    /// Tells whether a connection whose client was shown this certificate may ask for a host.
    pub fn speaks_for(&self, certificate: u16, host: &str) -> bool {
        self.0.names.speaks_for(certificate, host)
    }

    /// Tells whether the certificate that a client gets for a name has the name, which may be a wildcard.
    pub fn vouches_for(&self, name: &str) -> bool {
        self.0.names.vouches_for(name)
    }

    /// Begins the session of a new connection; `None` if the library cannot make one, which is a bug of Inrush.
    pub fn begin(&self) -> Option<Session> {
        Session::new(Arc::clone(&self.0.config), Arc::clone(&self.0.names)).ok()
    }

    /// Reads the files again, and puts their certificates in force from the next handshake on. Tickets stay valid. A
    /// certificate whose files cannot be used stays as it was. Returns true if a certificate, key or OCSP response has
    /// changed, and an error for each certificate that stays. Blocks.
    pub fn read_again(&self) -> (bool, Vec<TlsError>) {
        // Without the lock: a worker that starts during the reads gets the certificates in force.
        let earlier = self.material().clone();
        let (material, certificates, errors) = earlier.read_again(&self.0.provider);
        let has_changed = material != earlier;
        if has_changed {
            self.put_in_force(material, certificates);
        }
        (has_changed, errors)
    }

    fn put_in_force(&self, material: Material, certificates: Vec<Owned>) {
        self.0.names.replace(certificates);
        *self.material() = material;
    }

    fn material(&self) -> MutexGuard<'_, Material> {
        base::lock(&self.0.material)
    }

    /// Returns the names that the certificates are for.
    pub fn names(&self) -> Vec<String> {
        self.0.names.all()
    }

    /// Returns the certificates with their private keys, and the keys of tickets. Send them to worker processes over
    /// a private channel only.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.0.tickets.state().to_bytes()[..], &self.material().to_bytes()].concat()
    }

    /// Returns sessions with the tickets of another process, or `None` for bytes that [`Sessions::to_bytes`] did not
    /// make.
    pub fn from_bytes(bytes: &[u8]) -> Option<Sessions> {
        let (state, material) = bytes.split_first_chunk()?;
        let tickets = Tickets::of(State::from_bytes(state), RealClock::new());
        Sessions::with(Material::from_bytes(material)?, tickets).ok()
    }

    /// Puts the certificates of another process in force. Ignores bytes that [`Sessions::to_bytes`] did not make.
    pub fn replace_from_bytes(&self, bytes: &[u8]) {
        let material = bytes.get(State::BYTES..).and_then(Material::from_bytes);
        // A comparison is cheaper than the check of a certificate with its key.
        let newer = material.filter(|material| *material != *self.material());
        let certified =
            newer.and_then(|material| Some((material.certified(&self.0.provider).ok()?, material)));
        if let Some((certificates, material)) = certified {
            self.put_in_force(material, certificates);
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("names", &self.names()).finish_non_exhaustive()
    }
}
