//! The choice of the certificate for a client: by the name that it asks for (SNI, RFC 6066), or the first.
//!
//! A server of several hosts decides which host a name belongs to ([`HostOf`]), and a host's own certificates come before
//! all others. Among them, and without any, the names in the certificates decide. A full name comes before a wildcard,
//! and of two certificates with the same name the first wins. A host whose certificates lack the name shows its first one.
//! A certificate goes with its OCSP response until the response ends.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use base::{Clock, RealClock, WallTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Returns the number of the host that has a name; `None` if no host has it.
pub type HostOf = Arc<dyn Fn(&str) -> Option<u16> + Send + Sync>;

/// A certificate to put in force.
pub struct Owned {
    /// The certificate with its key.
    pub certificate: CertifiedKey,
    /// An OCSP response about it, if there is one.
    pub staple: Option<Staple>,
    /// The number of the host that alone has it; `None` for all hosts.
    pub host: Option<u16>,
}

/// An OCSP response to staple.
pub struct Staple {
    /// The response in DER.
    pub response: Vec<u8>,
    /// The end of the response, in seconds since 1970.
    pub end: Option<u64>,
}

/// A client's request for a name, as the server understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The host of the name; 0, the default host, for a name that no host has.
    pub host: u16,
    /// The place of the certificate for the name.
    pub certificate: u16,
}

/// The certificates in force; they may be replaced at any time.
pub struct Names {
    table: RwLock<Arc<Table>>,
    /// Empty on a server of one host.
    host_of: OnceLock<HostOf>,
}

struct Table {
    /// The certificates in the order of the settings.
    certificates: Vec<Shown>,
    /// Places of certificates, by host and name. Without a host: those of all certificates. A wildcard's key is the part
    /// after the asterisk.
    exact: HashMap<(Option<u16>, String), usize>,
    wildcards: HashMap<(Option<u16>, String), usize>,
    /// The first certificate of each host that has its own.
    first: HashMap<u16, usize>,
}

/// A certificate as clients see it.
struct Shown {
    bare: Arc<CertifiedKey>,
    /// The certificate with its OCSP response, and the end of the response in seconds since 1970.
    stapled: Option<(Arc<CertifiedKey>, Option<u64>)>,
    /// In lower case.
    names: Vec<String>,
}

impl Shown {
    fn new(Owned { certificate, staple, .. }: Owned) -> Shown {
        let names = names(&certificate);
        let stapled = staple.map(|Staple { response, end }| {
            (Arc::new(CertifiedKey { ocsp: Some(response), ..certificate.clone() }), end)
        });
        Shown { bare: Arc::new(certificate), stapled, names }
    }

    /// Returns the certificate to show. Leaves out a response that has ended: some clients refuse it, although they
    /// accept a certificate without a response.
    fn at(&self, time: WallTime) -> Arc<CertifiedKey> {
        let in_time = |end: &Option<u64>| end.is_none_or(|end| time.seconds < end);
        let stapled = self.stapled.as_ref().filter(|(_, end)| in_time(end));
        Arc::clone(stapled.map_or(&self.bare, |(certificate, _)| certificate))
    }
}

impl Names {
    /// Makes a table of certificates.
    ///
    /// # Panics
    /// Without any certificate.
    pub fn new(certificates: Vec<Owned>) -> Names {
        Names { table: RwLock::new(Arc::new(Table::new(certificates))), host_of: OnceLock::new() }
    }

    /// Sets the function that finds the host of a name. Only the first call has an effect.
    pub fn choose_hosts(&self, host_of: HostOf) {
        // The hosts of a server do not change.
        let _ = self.host_of.set(host_of);
    }

    /// Replaces the certificates, from the next handshake on.
    ///
    /// # Panics
    /// Without any certificate.
    pub fn replace(&self, certificates: Vec<Owned>) {
        let table = Arc::new(Table::new(certificates));
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    /// Returns the names that certificates are chosen by, sorted.
    pub fn all(&self) -> Vec<String> {
        let table = self.table();
        let exact = table.exact.keys().filter(|(host, _)| host.is_none()).map(|(_, name)| name.clone());
        let wildcards = table.wildcards.keys().filter(|(host, _)| host.is_none());
        let mut all: Vec<String> = exact.chain(wildcards.map(|(_, rest)| format!("*{rest}"))).collect();
        all.sort_unstable();
        all
    }

    /// Returns the meaning of a name that a client asked for; `None` on a server of one host.
    pub fn asked(&self, name: &str) -> Option<Asked> {
        let host = self.host_of.get()?(name);
        let certificate = self.table().of(host, name) as u16;
        Some(Asked { host: host.unwrap_or(0), certificate })
    }

    /// Tells whether a connection with a certificate may ask for a name: the certificate names it, or a client that asks
    /// for the name gets the same one.
    pub fn speaks_for(&self, certificate: u16, name: &str) -> bool {
        let (name, table, certificate) = (name.to_ascii_lowercase(), self.table(), usize::from(certificate));
        table.of(self.host(&name), &name) == certificate || table.names(certificate, &name)
    }

    /// Tells whether the certificate that a client gets for a name has the name. The name may be a wildcard.
    pub fn vouches_for(&self, name: &str) -> bool {
        let (name, table) = (name.to_ascii_lowercase(), self.table());
        table.names(table.of(self.host(&name), &name), &name)
    }

    /// The host of a name; `None` if no host has it, and on a server of one host.
    fn host(&self, name: &str) -> Option<u16> {
        self.host_of.get().and_then(|host_of| host_of(name))
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let table = self.table();
        let place = hello.server_name().map_or(0, |name| {
            let name = name.to_ascii_lowercase();
            table.of(self.host(&name), &name)
        });
        Some(table.certificates[place].at(RealClock::new().wall()))
    }
}

impl Table {
    fn new(owned: Vec<Owned>) -> Table {
        assert!(!owned.is_empty(), "there is a certificate");
        let (mut exact, mut wildcards, mut first) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut certificates = Vec::new();
        for (place, owned) in owned.into_iter().enumerate() {
            let owner = owned.host;
            let shown = Shown::new(owned);
            for (host, name) in
                [None, owner].iter().flat_map(|host| shown.names.iter().map(move |name| (*host, name)))
            {
                let (table, key) = match name.strip_prefix('*') {
                    Some(rest) => (&mut wildcards, rest.to_owned()),
                    None => (&mut exact, name.clone()),
                };
                table.entry((host, key)).or_insert(place);
            }
            if let Some(host) = owner {
                first.entry(host).or_insert(place);
            }
            certificates.push(shown);
        }
        Table { certificates, exact, wildcards, first }
    }

    /// The place of the certificate for a name in lower case, which belongs to this host.
    fn of(&self, host: Option<u16>, name: &str) -> usize {
        let own = host.and_then(|host| self.first.get(&host));
        let group = host.filter(|_| own.is_some());
        let found = self.exact.get(&(group, name.to_owned())).or_else(|| {
            let rest = &name[name.find('.')?..];
            self.wildcards.get(&(group, rest.to_owned()))
        });
        found.or(own).copied().unwrap_or(0)
    }

    /// Tells whether a certificate has a name in lower case.
    fn names(&self, place: usize, name: &str) -> bool {
        let rest = name.find('.').map(|dot| &name[dot..]);
        let is_it = |known: &String| known == name || (rest.is_some() && known.strip_prefix('*') == rest);
        self.certificates.get(place).is_some_and(|shown| shown.names.iter().any(is_it))
    }
}

/// Returns the DNS names of a certificate in lower case; empty if it has none.
fn names(certificate: &CertifiedKey) -> Vec<String> {
    let first = certificate.end_entity_cert().ok();
    let parsed = first.and_then(|first| webpki::EndEntityCert::try_from(first).ok());
    parsed.map_or_else(Vec::new, |parsed| parsed.valid_dns_names().map(str::to_ascii_lowercase).collect())
}
