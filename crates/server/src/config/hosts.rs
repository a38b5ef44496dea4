//! Turns the hosts of a configuration into open directories with their names and certificates.
//!
//! Owns the way from settings to [`Hosts`]. `site` chooses the host of a request, and `tls` chooses the certificate
//! of a connection by the same table of names.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use site::hosts::{Names, Speaks};
use site::{Host, HostName, Hosts, LiveRules, Root, RootError};
use tls::Sessions;

use crate::config::serve::{HostConfig, ServeConfig};
use crate::ground::error::ServeError;

/// The rules in force, for each host.
pub struct LiveHosts(Vec<LiveRules>);

impl LiveHosts {
    /// Returns the rules of a server's hosts at its start.
    pub fn of(hosts: &[HostConfig]) -> LiveHosts {
        LiveHosts(hosts.iter().map(|host| host.site.rules.clone()).collect())
    }

    /// Puts the rules of a newer configuration of the same hosts in force.
    pub fn take_from(&self, newer: &[HostConfig]) {
        for (rules, newer) in self.0.iter().zip(newer) {
            rules.take_from(&newer.site.rules);
        }
    }
}

/// Opens the directory of a host.
///
/// # Errors
/// [`ServeError::Root`].
pub fn open_root(host: &HostConfig) -> Result<Root, ServeError> {
    opened_root(host, |path| Root::open(path))
}

fn opened_root(
    host: &HostConfig,
    open: impl Fn(&Path) -> Result<Root, RootError>,
) -> Result<Root, ServeError> {
    let root = host.root.as_deref().map_or_else(|| Ok(Root::empty()), open);
    root.map_err(|cause| ServeError::Root { host: host.title(), cause })
}

/// Opens the directories of all hosts, for the process that a user starts. If there are several hosts, `tls` chooses
/// certificates by their names from now on.
///
/// # Errors
/// [`ServeError::Root`]; [`ServeError::Setting`] for a name that two hosts have.
pub fn open(config: &ServeConfig, tls: Option<&Sessions>) -> Result<Hosts, ServeError> {
    opened_by(open_root, config, tls)
}

/// Opens the directories of all hosts again, for a worker process. A directory that is missing now may come back.
///
/// # Errors
/// The errors of [`open`], except for a missing directory.
pub fn reopen(config: &ServeConfig, tls: Option<&Sessions>) -> Result<Hosts, ServeError> {
    opened_by(|host| opened_root(host, |path| Root::reopen(path)), config, tls)
}

/// Returns the table of the names of all hosts.
///
/// # Errors
/// [`ServeError::Setting`] for a name that two hosts have.
pub fn names(config: &ServeConfig) -> Result<Names, ServeError> {
    Names::new(config.hosts.iter().map(|host| &host.names[..])).map_err(|name| taken(&name))
}

fn opened_by(
    open: impl Fn(&HostConfig) -> Result<Root, ServeError>,
    config: &ServeConfig,
    tls: Option<&Sessions>,
) -> Result<Hosts, ServeError> {
    let names = Arc::new(names(config)?);
    let host = |host: &HostConfig| Ok(Host { root: Arc::new(open(host)?), options: host.site.clone() });
    let list = config.hosts.iter().map(host).collect::<Result<Vec<_>, ServeError>>()?;
    let speaks = tls.filter(|_| list.len() > 1).map(|sessions| -> Speaks {
        let (table, sessions) = (Arc::clone(&names), sessions.clone());
        sessions.choose_hosts(Arc::new(move |name| table.host_of(name)));
        Arc::new(move |certificate, host| sessions.speaks_for(certificate, host))
    });
    Ok(Hosts::new(list, names, speaks))
}

/// Returns a line about the names of hosts that no certificate has; `None` if there are none.
pub fn unvouched(config: &ServeConfig, tls: Option<&Sessions>) -> Option<String> {
    let is_lacking = |name: &&HostName| match name {
        // A client that asks for an address sends no SNI, and only DNS names are read from certificates.
        HostName::Address(_) => false,
        HostName::Full(name) if name.parse::<Ipv4Addr>().is_ok() => false,
        name => tls.is_some_and(|sessions| !sessions.vouches_for(&name.to_string())),
    };
    let names = config.hosts.iter().flat_map(|host| &host.names).filter(is_lacking);
    let names: Vec<String> = names.map(ToString::to_string).collect();
    (!names.is_empty()).then(|| {
        format!("no certificate is for {}, so browsers warn visitors of these hosts", names.join(", "))
    })
}

fn taken(name: &HostName) -> ServeError {
    ServeError::Setting {
        setting: "--host",
        given: name.to_string(),
        accepted: "the name is given twice; expected a name that no other host has".to_owned(),
    }
}
