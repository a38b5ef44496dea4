//! The certificates of a server that speaks TLS, and the rereading of their files.
//!
//! Files are read again at SIGHUP, and within two seconds of a change, so that a renewal program need not know this
//! server. A certificate whose files cannot be used stays as it was; the others are renewed.

use base::Nanos;
use tls::{Material, Sessions, TlsError, Watch};

use crate::config::serve::ServeConfig;
use crate::ground::config_text::ConfigText;

/// The time between two checks of the files; each takes some microseconds.
pub const LOOK_EVERY: Nanos = Nanos::SECOND;

/// Certificates in force, and their files.
pub struct Certificates {
    sessions: Sessions,
    watch: Watch,
    /// Passes changes on to worker processes.
    workers: Option<ConfigText>,
}

impl Certificates {
    /// Returns the certificates of a configuration; `None` if it has none. Tickets have new keys, or those of
    /// `ticket_keys`. Blocks while it reads the files.
    ///
    /// # Errors
    /// [`TlsError`]: a file cannot be used.
    pub fn of(config: &ServeConfig, ticket_keys: Option<&[u8]>) -> Result<Option<Certificates>, TlsError> {
        if config.tls.is_empty() {
            return Ok(None);
        }
        let watch = Watch::new(config.tls.clone());
        let material = Material::read(watch.files())?;
        let sessions = match ticket_keys {
            Some(keys) => Sessions::continuing(material, keys)?,
            None => Sessions::new(material)?,
        };
        Ok(Some(Certificates { sessions, watch, workers: None }))
    }

    /// Passes changes on to worker processes, if the server has them.
    pub fn told_to(self, workers: Option<ConfigText>) -> Certificates {
        Certificates { workers, ..self }
    }

    /// Returns the maker of sessions.
    pub fn sessions(&self) -> Sessions {
        self.sessions.clone()
    }

    /// Returns the keys of tickets, to be passed to a successor.
    pub fn ticket_keys(&self) -> Vec<u8> {
        self.sessions.ticket_keys()
    }

    /// Returns the names that the certificates are for.
    pub fn names(&self) -> Vec<String> {
        self.sessions.names()
    }

    /// Reads the files if they have changed and settled. Call it every [`LOOK_EVERY`].
    pub fn read_if_changed(&mut self) {
        if self.watch.changed() {
            self.read();
        }
    }

    /// Reads the files.
    pub fn read_again(&mut self) {
        self.watch.reads();
        self.read();
    }

    /// Reports the result, so that an operator sees the arrival of a renewal.
    fn read(&mut self) {
        let (has_changed, errors) = self.sessions.read_again();
        if has_changed {
            sys::say!("inrush: new certificates in force");
            self.workers.iter().for_each(ConfigText::announce_change);
        }
        for error in &errors {
            sys::say!("inrush: the certificate stays as it was: {error}");
        }
    }
}
