//! The log that a request's line goes to: its host's own, or the server's.
//!
//! The default host answers requests for unknown names, so their lines go to its log. A request that could not be
//! parsed names no host, so its line goes to the server's log.

use http_semantics::server::Entry;
use site::hosts::Names;

use crate::config::hosts;
use crate::config::serve::{LogTarget, ServeConfig};
use crate::ground::error::ServeError;

/// The logs of a server, and the log of each host.
#[derive(Debug)]
pub struct Routes {
    /// The logs, without duplicates.
    targets: Vec<LogTarget>,
    /// The place of the server's own log.
    server: Option<usize>,
    /// The places of the hosts' logs, by the number of the host; empty if all are the server's.
    of_hosts: Vec<Option<usize>>,
    names: Names,
}

impl Routes {
    /// Returns the routes of a configuration; `None` if it has no log.
    ///
    /// # Errors
    /// [`ServeError::Setting`]: a name that two hosts have.
    pub fn of(config: &ServeConfig) -> Result<Option<Routes>, ServeError> {
        let targets: Vec<LogTarget> = config.logs().into_iter().cloned().collect();
        if targets.is_empty() {
            return Ok(None);
        }
        let place = |target: &LogTarget| targets.iter().position(|other| other == target);
        let server = config.access_log.as_ref().and_then(place);
        let of_host = |own: Option<&LogTarget>| own.map_or(server, place);
        let mut of_hosts: Vec<_> =
            config.hosts.iter().map(|host| of_host(host.access_log.as_ref())).collect();
        if of_hosts.iter().all(|place| *place == server) {
            of_hosts.clear();
        }
        Ok(Some(Routes { server, of_hosts, names: hosts::names(config)?, targets }))
    }

    /// Returns the logs, without duplicates.
    pub fn targets(&self) -> &[LogTarget] {
        &self.targets
    }

    /// Returns the place of the log for an entry, by the host that the request names; `None` if its host has none.
    pub fn of_entry(&self, entry: &Entry<'_>) -> Option<usize> {
        match entry.version {
            Some(_) if !self.of_hosts.is_empty() => self.of_host(self.names.host_of(entry.host).unwrap_or(0)),
            _ => self.server,
        }
    }

    /// Returns the place of the log of a host, by its number; `None` if the host has none.
    pub fn of_host(&self, host: u16) -> Option<usize> {
        self.of_hosts.get(usize::from(host)).copied().unwrap_or(self.server)
    }

    /// Routes to one log of the server.
    #[cfg(test)]
    pub fn one(target: LogTarget) -> Routes {
        Routes { targets: vec![target], server: Some(0), of_hosts: Vec::new(), names: Names::default() }
    }
}
