//! TLS to the target: the trusted certificates, and what all connections share: settings, tickets, the first failure.
//!
//! rustls implements the protocol, and `verifiers` judge certificates. The client offers one protocol (ALPN): `h2` or `http/1.1`. The engine holds the state
//! of each connection.

mod verifiers;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use base::lock;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls12Resumption, Tls13ClientSessionValue,
    WebPkiServerVerifier,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, NamedGroup, RootCertStore, SupportedProtocolVersion,
};

use crate::error::LoadError;
use verifiers::{Exact, Unverified};

/// The most tickets kept for resumption. One ticket serves one handshake, a server sends two with each
/// handshake, and thousands of handshakes may be in progress at once.
const TICKETS_MAX: usize = 4096;

/// HTTP/2 among the protocols of ALPN (RFC 9113, 3.1).
pub(crate) const HTTP2: &[u8] = b"h2";

const ONLY_1_2: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
const ONLY_1_3: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// The certificates that prove the target's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Certificates that the machine's own roots have signed.
    #[default]
    System,
    /// Certificates that the roots in this PEM file have signed, and every certificate in the file itself.
    Roots(PathBuf),
    /// Any certificate, for servers with a self-signed one.
    Anybody,
}

impl Trust {
    /// The path of the roots, or the word for the others.
    pub(crate) fn name(&self) -> String {
        match self {
            Trust::System => "system".to_owned(),
            Trust::Roots(path) => path.display().to_string(),
            Trust::Anybody => "anybody".to_owned(),
        }
    }
}

/// TLS settings.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsOptions {
    /// The trusted certificates.
    pub trust: Trust,
    /// True if connections after the first resume its session, as browsers do.
    pub resume: bool,
    /// The server name in the handshake, which the certificate must have; `None` takes the URL's host.
    #[serde(default)]
    pub server_name: Option<String>,
    /// The only version to speak; `None` accepts 1.2 and 1.3.
    #[serde(default)]
    pub version: Option<TlsVersion>,
    /// The groups that the client offers.
    pub key_exchange: KeyExchange,
    /// The client's certificate. It belongs to one machine and does not travel.
    #[serde(skip)]
    pub identity: Option<ClientIdentity>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    V1_2,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V1_3,
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == TlsVersion::V1_2 { "1.2" } else { "1.3" })
    }
}

/// The groups that the client offers for the key exchange. The server chooses among them (docs/decisions/0075).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyExchange {
    /// X25519MLKEM768 first, as browsers do, and then the classical groups.
    #[default]
    Hybrid,
    /// X25519, secp256r1 and secp384r1.
    Classical,
}

impl KeyExchange {
    fn provider(self) -> CryptoProvider {
        match self {
            KeyExchange::Hybrid => ::tls::provider(),
            KeyExchange::Classical => ring::default_provider(),
        }
    }
}

impl fmt::Display for KeyExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == KeyExchange::Hybrid { "hybrid" } else { "classical" })
    }
}

/// The certificate that the client shows to a server that asks for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// A PEM file with the certificate, and the certificates between it and its root.
    pub certificate: PathBuf,
    /// A PEM file with the private key; `None` for a key in the certificate's file.
    pub key: Option<PathBuf>,
}

impl Default for TlsOptions {
    fn default() -> TlsOptions {
        TlsOptions {
            trust: Trust::default(),
            resume: true,
            server_name: None,
            version: None,
            key_exchange: KeyExchange::default(),
            identity: None,
        }
    }
}

/// The TLS state that all connections to a target share.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// The reason of the first failed connection.
    failure: Arc<OnceLock<String>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tls {
    /// TLS to a host, given by name or address, for HTTP/2 or HTTP/1.1.
    ///
    /// # Errors
    /// [`LoadError::Tls`] without any root certificate, for unusable files, or for a host that no certificate can name.
    pub(crate) fn new(host: &str, options: &TlsOptions, http2: bool) -> Result<Tls, LoadError> {
        let host = options.server_name.as_deref().unwrap_or(host);
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(host.to_owned())
                .map_err(|_| refused(format!("no certificate can name '{host}'")))?,
        };
        let provider = Arc::new(options.key_exchange.provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions(options.version))
            .map_err(|error| refused(error.to_string()))?;
        let builder = match &options.trust {
            Trust::Anybody => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
            }
            trust => {
                let (roots, exact) = roots(trust)?;
                let by_roots = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let by_roots = by_roots.map_err(|error| refused(error.to_string()))?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Exact { by_roots, exact }))
            }
        };
        let mut config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = read_identity(identity)?;
                let shown = identity.certificate.display();
                let told = |error| refused(format!("--cert {shown}: its key cannot be used: {error}"));
                builder.with_client_auth_cert(chain, key).map_err(told)?
            }
        };
        config.alpn_protocols = vec![if http2 { HTTP2 } else { b"http/1.1" }.to_vec()];
        config.resumption = match options.resume {
            true => Resumption::store(Arc::new(Tickets::default()))
                .tls12_resumption(Tls12Resumption::SessionIdOrTickets),
            false => Resumption::disabled(),
        };
        Ok(Tls { config: Arc::new(config), name, failure: Arc::default() })
    }

    /// The reason of the first failed connection, if one has failed.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Keeps the reason of the first failed connection.
    pub(crate) fn note_failure(&self, error: &io::Error) {
        self.failure.get_or_init(|| failure_reason(error));
    }

    /// A session for a connection that is established.
    ///
    /// # Errors
    /// Settings that rustls refuses.
    pub(crate) fn session(&self) -> io::Result<Box<ClientConnection>> {
        let session = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut session = Box::new(session.map_err(io::Error::other)?);
        // The session buffers a request of any length during the handshake.
        session.set_buffer_limit(None);
        Ok(session)
    }
}

fn refused(why: String) -> LoadError {
    LoadError::Tls { why }
}

fn versions(only: Option<TlsVersion>) -> &'static [&'static SupportedProtocolVersion] {
    match only {
        None => rustls::DEFAULT_VERSIONS,
        Some(TlsVersion::V1_2) => ONLY_1_2,
        Some(TlsVersion::V1_3) => ONLY_1_3,
    }
}

/// The roots, and the certificates that are trusted themselves.
fn roots(trust: &Trust) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), LoadError> {
    let (mut roots, mut exact) = (RootCertStore::empty(), Vec::new());
    if let Trust::Roots(path) = trust {
        exact = certificates("--ca", path)?;
        for certificate in &exact {
            roots.add(certificate.clone()).map_err(|error| unusable("--ca", path, &error))?;
        }
    } else {
        // Unusable roots are ignored: they matter only to a certificate that needs them.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        let why = "this machine has no root certificates; give some with --ca, or accept any server with --insecure";
        return Err(refused(why.to_owned()));
    }
    Ok((roots, exact))
}

type Chain = Vec<CertificateDer<'static>>;

fn read_identity(identity: &ClientIdentity) -> Result<(Chain, PrivateKeyDer<'static>), LoadError> {
    let chain = certificates("--cert", &identity.certificate)?;
    let (flag, file) = match &identity.key {
        Some(file) => ("--key", file),
        None => ("--cert", &identity.certificate),
    };
    let key = PrivateKeyDer::from_pem_file(file).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => refused(format!(
            "{flag} {}: it has no private key; expected one in PEM, here or in a file of its own with --key",
            file.display()
        )),
        error => refused(format!("{flag} {}: {error}; expected a private key in PEM", file.display())),
    })?;
    Ok((chain, key))
}

fn certificates(flag: &str, path: &Path) -> Result<Chain, LoadError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| unusable(flag, path, &error))?;
    if found.is_empty() {
        return Err(unusable(flag, path, &"it has no certificate"));
    }
    Ok(found)
}

fn unusable(flag: &str, path: &Path, why: &dyn fmt::Display) -> LoadError {
    refused(format!("{flag} {}: {why}; expected a PEM file of certificates", path.display()))
}

/// The tickets that the target issued for later connections. There is one target, so its name is ignored. The
/// library's own store keeps eight tickets, too few for many concurrent clients.
#[derive(Debug, Default)]
struct Tickets {
    newest: Mutex<VecDeque<Tls13ClientSessionValue>>,
    tls12: Mutex<Option<Tls12ClientSessionValue>>,
    group: Mutex<Option<NamedGroup>>,
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _server_name: ServerName<'static>, group: NamedGroup) {
        *lock(&self.group) = Some(group);
    }

    fn kx_hint(&self, _server_name: &ServerName<'_>) -> Option<NamedGroup> {
        *lock(&self.group)
    }

    fn set_tls12_session(&self, _server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        *lock(&self.tls12) = Some(value);
    }

    fn tls12_session(&self, _server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        lock(&self.tls12).clone()
    }

    fn remove_tls12_session(&self, _server_name: &ServerName<'static>) {
        *lock(&self.tls12) = None;
    }

    fn insert_tls13_ticket(&self, _server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut tickets = lock(&self.newest);
        if tickets.len() == TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        lock(&self.newest).pop_back()
    }
}

/// Returns true if a server showed a CA's own certificate. The library has no public type for this reason.
fn shows_a_ca(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(_)) && error.to_string().contains("CaUsedAsEndEntity")
}

/// The reason of a failure, with a remedy if there is one.
fn failure_reason(error: &io::Error) -> String {
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let remedy = match reason {
        Some(rustls::Error::InvalidMessage(_)) => {
            "the server's bytes are not TLS; check the port, or use http://"
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "no trusted certificate has signed the server's; give one with --ca, or use --insecure"
        }
        Some(error) if shows_a_ca(error) => {
            "the server shows a CA's own certificate, which is not in --ca; add it there, or use --insecure"
        }
        _ => return error.to_string(),
    };
    remedy.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_a_remedy() {
        let of = |error| failure_reason(&io::Error::new(io::ErrorKind::InvalidData, error));
        let issuer = of(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(issuer.contains("--ca"), "{issuer}");
        let cleartext = of(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        assert!(cleartext.contains("http://"), "{cleartext}");
        let other = of(rustls::Error::InvalidCertificate(CertificateError::Expired));
        assert!(other.contains("Expired"), "{other}");
    }
}
