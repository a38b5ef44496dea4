//! The certificates of a server that speaks TLS, and when their files are read again.
//!
//! At SIGHUP, and within two seconds of a change: whoever renews certificates need not know of this server. Files that
//! cannot be used change nothing.

use base::Nanos;
use tls::{Material, Sessions, TlsError, Watch};

use crate::config::ServeConfig;
use crate::processes::ConfigText;

/// Between two looks at the files: each takes some microseconds.
pub const LOOK_EVERY: Nanos = Nanos::SECOND;

/// Certificates in force, and their files.
pub struct Certificates {
    sessions: Sessions,
    watch: Watch,
    /// Tells worker processes.
    workers: Option<ConfigText>,
}

impl Certificates {
    /// The certificates of a configuration; `None` where it has none. Blocks, as every reading does.
    ///
    /// # Errors
    /// [`TlsError`]: a file cannot be used.
    pub fn of(config: &ServeConfig) -> Result<Option<Certificates>, TlsError> {
        if config.tls.is_empty() {
            return Ok(None);
        }
        let watch = Watch::new(config.tls.clone());
        let sessions = Sessions::new(Material::read(watch.files())?)?;
        Ok(Some(Certificates { sessions, watch, workers: None }))
    }

    /// The same for a server with worker processes, which hear of changes.
    pub fn told_to(self, workers: Option<ConfigText>) -> Certificates {
        Certificates { workers, ..self }
    }

    /// Makes sessions.
    pub fn sessions(&self) -> Sessions {
        self.sessions.clone()
    }

    /// The names that they are for.
    pub fn names(&self) -> Vec<String> {
        self.sessions.names()
    }

    /// Reads the files if they have changed and settled. To be called every [`LOOK_EVERY`].
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

    /// Says what came of it, so that an operator sees that a renewal has arrived.
    fn read(&mut self) {
        let material = Material::read(self.watch.files());
        match material.and_then(|material| self.sessions.replace(material)) {
            Ok(()) => sys::say!("inrush: certificates read again"),
            Err(error) => return sys::say!("inrush: the certificates stay as they were: {error}"),
        }
        self.workers.iter().for_each(ConfigText::tell);
    }
}
