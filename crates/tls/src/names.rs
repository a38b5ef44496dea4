//! The choice of the certificate for a client: by the name that it asks for (SNI, RFC 6066), or the first.
//!
//! Names come from the certificates themselves. A full name comes before a wildcard. Of two certificates with the
//! same name, the first wins.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificates in force; they may be replaced at any time.
#[derive(Debug)]
pub struct Names(RwLock<Arc<Table>>);

#[derive(Debug)]
struct Table {
    first: Arc<CertifiedKey>,
    /// Keys are names in lower case; a wildcard's key is the part after the asterisk.
    exact: HashMap<String, Arc<CertifiedKey>>,
    wildcards: HashMap<String, Arc<CertifiedKey>>,
}

impl Names {
    /// Makes a table of certificates.
    ///
    /// # Panics
    /// Without any certificate.
    pub fn new(certificates: Vec<Arc<CertifiedKey>>) -> Names {
        Names(RwLock::new(Arc::new(Table::new(certificates))))
    }

    /// Replaces the certificates, from the next handshake on.
    ///
    /// # Panics
    /// Without any certificate.
    pub fn replace(&self, certificates: Vec<Arc<CertifiedKey>>) {
        let table = Arc::new(Table::new(certificates));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    /// Returns the names that certificates are chosen by, sorted.
    pub fn all(&self) -> Vec<String> {
        let table = self.table();
        let wildcards = table.wildcards.keys().map(|rest| format!("*{rest}"));
        let mut all: Vec<String> = table.exact.keys().cloned().chain(wildcards).collect();
        all.sort_unstable();
        all
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.table().of(hello.server_name()))
    }
}

impl Table {
    fn new(certificates: Vec<Arc<CertifiedKey>>) -> Table {
        let (mut exact, mut wildcards) = (HashMap::new(), HashMap::new());
        for certificate in &certificates {
            for name in names(certificate) {
                let (table, key) = match name.strip_prefix('*') {
                    Some(rest) => (&mut wildcards, rest.to_owned()),
                    None => (&mut exact, name),
                };
                table.entry(key).or_insert_with(|| Arc::clone(certificate));
            }
        }
        let first = certificates.into_iter().next().expect("there is a certificate");
        Table { first, exact, wildcards }
    }

    fn of(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let found = name.and_then(|name| {
            let name = name.to_ascii_lowercase();
            let rest = name.find('.').map(|dot| &name[dot..]);
            self.exact.get(&name).or_else(|| self.wildcards.get(rest?))
        });
        Arc::clone(found.unwrap_or(&self.first))
    }
}

/// Returns the DNS names of a certificate in lower case; empty if it has none.
fn names(certificate: &CertifiedKey) -> Vec<String> {
    let first = certificate.end_entity_cert().ok();
    let parsed = first.and_then(|first| webpki::EndEntityCert::try_from(first).ok());
    parsed.map_or_else(Vec::new, |parsed| parsed.valid_dns_names().map(str::to_ascii_lowercase).collect())
}
