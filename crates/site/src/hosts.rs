//! Several hosts on one server: each has a directory, options and rules of its own.
//!
//! ```text
//!   Host, :authority ──> Names ──> the host ──> its Site          (one of Sites, which a loop has)
//!   SNI ───────────────> Names ──> the host, and its certificate  (the crate tls)
//! ```
//!
//! Owns the choice of the host and the refusal of a request that came by the wrong connection. `name` parses a host's
//! name, and `sites` has the sites of one loop. Leaves out certificates: [`Speaks`] checks them.
//!
//! The choice rule (docs/decisions/0036): an exact name comes first, then the longest wildcard, then the default host,
//! which is the first. A wildcard stands for one label or more, so `*.example.org` is also for `a.b.example.org`, and
//! not for `example.org`. Letter case, the port and a dot at the end do not matter. An IPv6 address has many spellings.
//!
//! Invariants: a host selects a directory, and is never a part of a path, so that no `Host` leaves a root. A server of
//! one host looks up no name. The choice allocates nothing. Hosts and their names stay while the server runs; the rules
//! of each may change.

mod name;
mod sites;

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

use base::Clock;

use crate::{CacheLimits, Options, Root, Site};
pub use name::HostName;
use name::MOST_BYTES;
pub(crate) use name::bare;
pub use sites::Sites;

/// Most hosts of a server.
pub const MOST_HOSTS: usize = 1000;

/// Returns true if a connection with the certificate of this number may ask for a name.
pub type Speaks = Arc<dyn Fn(u16, &str) -> bool + Send + Sync>;

/// The names of all hosts.
#[derive(Debug, Default)]
pub struct Names {
    exact: HashMap<Box<[u8]>, u16>,
    /// Keys begin with the dot.
    wildcards: HashMap<Box<[u8]>, u16>,
    addresses: HashMap<Ipv6Addr, u16>,
}

impl Names {
    /// Makes the table of the names of hosts, in the order of the hosts.
    ///
    /// # Errors
    /// A name that two hosts have, or one host twice.
    pub fn new<'a>(hosts: impl Iterator<Item = &'a [HostName]>) -> Result<Names, HostName> {
        let mut names = Names::default();
        for (host, name) in
            (0..).zip(hosts).flat_map(|(host, names)| names.iter().map(move |name| (host, name)))
        {
            let before = match name {
                HostName::Full(text) => names.exact.insert(text.as_bytes().into(), host),
                HostName::Under(rest) => names.wildcards.insert(rest.as_bytes().into(), host),
                HostName::Address(address) => names.addresses.insert(*address, host),
            };
            if before.is_some() {
                return Err(name.clone());
            }
        }
        Ok(names)
    }

    /// The number of the host with the name in an authority; `None` if no host has that name.
    pub fn host_of(&self, authority: &str) -> Option<u16> {
        let host = bare(authority);
        if let Some(inner) = host.strip_prefix('[') {
            let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
            return self.addresses.get(&address).copied();
        }
        let mut buffer = [0; MOST_BYTES];
        let name = buffer.get_mut(..host.len())?;
        name.copy_from_slice(host.as_bytes());
        name.make_ascii_lowercase();
        let name = &*name;
        let longest_wildcard = || {
            // A client chooses the number of dots, so a server without wildcards looks for none.
            let rests = memchr::memchr_iter(b'.', name).filter(|dot| *dot > 0 && !self.wildcards.is_empty());
            rests.filter_map(|dot| self.wildcards.get(&name[dot..])).next()
        };
        self.exact.get(name).or_else(longest_wildcard).copied()
    }
}

/// One host as all loops share it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its directory.
    pub root: Arc<Root>,
    /// Its rules, and its share of the cache.
    pub options: Options,
}

/// The hosts of a server, as all loops share them. The first is the default.
#[derive(Clone)]
pub struct Hosts {
    list: Vec<Host>,
    names: Arc<Names>,
    speaks: Option<Speaks>,
}

impl Hosts {
    /// The hosts of a server, with their names. `speaks` knows the certificates; `None` without TLS.
    ///
    /// # Panics
    /// Without any host.
    pub fn new(list: Vec<Host>, names: Arc<Names>, speaks: Option<Speaks>) -> Hosts {
        assert!(!list.is_empty(), "there is a default host");
        Hosts { list, names, speaks }
    }

    /// The only host of a server.
    pub fn one(root: Arc<Root>, options: Options) -> Hosts {
        Hosts::new(vec![Host { root, options }], Arc::default(), None)
    }

    /// The same hosts with changed options.
    pub fn with(&self, change: impl Fn(&mut Options)) -> Hosts {
        let mut hosts = self.clone();
        hosts.list.iter_mut().for_each(|host| change(&mut host.options));
        hosts
    }

    /// The number of the host of an authority: 0, the default host, if no host has the name.
    pub fn number(&self, authority: &str) -> u16 {
        if self.list.len() == 1 { 0 } else { self.names.host_of(authority).unwrap_or(0) }
    }

    /// The sites of one loop.
    pub fn sites<C: Clock + Clone>(&self, clock: C) -> Sites<C> {
        let site = |host: &Host| Site::new(Arc::clone(&host.root), host.options.clone(), clock.clone());
        Sites::new(self.list.iter().map(site).collect(), Arc::clone(&self.names), self.speaks.clone())
    }
}

impl CacheLimits {
    /// The limits of one of `parts` caches, which together hold at least as much as one cache with these limits.
    #[must_use]
    pub fn part(self, parts: usize) -> CacheLimits {
        CacheLimits {
            entries: self.entries.div_ceil(parts),
            open_files: self.open_files.div_ceil(parts),
            bytes: base::Bytes(self.bytes.0 / parts as u64),
            absent: self.absent.div_ceil(parts),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of three hosts. The first has none, as a default host may.
    fn names() -> Names {
        let hosts: [&[&str]; 3] = [
            &[],
            &["example.org", "*.example.org", "[2001:db8::1]", "192.0.2.1"],
            &["*.b.example.org", "a.b.example.org", "Other.Test."],
        ];
        let hosts =
            hosts.map(|names| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<HostName>>());
        Names::new(hosts.iter().map(Vec::as_slice)).unwrap()
    }

    #[test]
    fn a_full_name_comes_first_then_the_longest_wildcard() {
        for (authority, expected) in [
            ("example.org", Some(1)),
            ("EXAMPLE.Org", Some(1)),
            ("example.org:8080", Some(1)),
            ("example.org.", Some(1)),
            ("example.org.:443", Some(1)),
            ("www.example.org", Some(1)),
            ("x.y.example.org", Some(1)),
            ("b.example.org", Some(1)),
            ("a.b.example.org", Some(2)),
            ("c.b.example.org:1", Some(2)),
            ("d.c.B.example.org", Some(2)),
            ("other.test", Some(2)),
            ("[2001:db8::1]", Some(1)),
            ("[2001:DB8:0:0::1]:443", Some(1)),
            ("192.0.2.1:80", Some(1)),
            ("", None),
            (":80", None),
            (".", None),
            ("..", None),
            (".example.org", None),
            ("example.org..", None),
            ("notexample.org", None),
            ("org", None),
            ("www.other.test", None),
            ("[::1]", None),
            ("[2001:db8::1", None),
            ("*.example.org", Some(1)),
            ("../../etc/passwd", None),
            ("%65xample.org", None),
            ("example.org\0", None),
        ] {
            assert_eq!(names().host_of(authority), expected, "{authority}");
        }
        assert_eq!(names().host_of(&format!("{}.example.org", "x.".repeat(5000))), None, "it is too long");
    }

    #[test]
    fn a_name_belongs_to_one_host() {
        for (one, other) in [("a.test", "A.test."), ("*.a.test", "*.A.test"), ("[::1]", "[0:0::1]")] {
            let hosts: [[HostName; 1]; 2] = [[one.parse().unwrap()], [other.parse().unwrap()]];
            let taken = Names::new(hosts.iter().map(<[HostName; 1]>::as_slice)).unwrap_err();
            assert_eq!(taken, one.parse().unwrap());
        }
    }
}
