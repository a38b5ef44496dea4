//! TLS to the target: the trusted certificates, and what all connections share: settings, tickets, the first failure.
//!
//! rustls implements the protocol. The client offers one protocol (ALPN): `h2` or `http/1.1`. The engine holds the state
//! of each connection.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use base::lock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls12Resumption, Tls13ClientSessionValue,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, NamedGroup, RootCertStore,
    SignatureScheme,
};

use crate::error::LoadError;

/// The most tickets kept for resumption. One ticket serves one handshake, a server sends two with each
/// handshake, and thousands of handshakes may be in progress at once.
const TICKETS_MAX: usize = 4096;

/// HTTP/2 among the protocols of ALPN (RFC 9113, 3.1).
pub(crate) const HTTP2: &[u8] = b"h2";

/// The certificates that prove the target's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Certificates that the machine's own roots have signed.
    #[default]
    System,
    /// Certificates that the roots in this PEM file have signed.
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
}

impl Default for TlsOptions {
    fn default() -> TlsOptions {
        TlsOptions { trust: Trust::default(), resume: true }
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
    /// [`LoadError::Tls`] without any root certificate, or for a host that no certificate can name.
    pub(crate) fn new(host: &str, options: &TlsOptions, http2: bool) -> Result<Tls, LoadError> {
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(host.to_owned())
                .map_err(|_| LoadError::Tls { why: format!("no certificate can name '{host}'") })?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| LoadError::Tls { why: error.to_string() })?;
        let mut config = match &options.trust {
            Trust::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Unverified(provider)))
                .with_no_client_auth(),
            trust => builder.with_root_certificates(roots(trust)?).with_no_client_auth(),
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
        self.failure.get_or_init(|| told(error));
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

fn roots(trust: &Trust) -> Result<RootCertStore, LoadError> {
    let mut roots = RootCertStore::empty();
    if let Trust::Roots(path) = trust {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| unusable(path, &error))?;
        }
    } else {
        // Unusable roots are ignored: they matter only to a certificate that needs them.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        let why = "this machine has no root certificates; give some with --ca, or accept any server with --insecure";
        return Err(LoadError::Tls { why: why.to_owned() });
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(path, &"it has no certificate"));
    }
    Ok(found)
}

fn unusable(path: &Path, why: &dyn fmt::Display) -> LoadError {
    LoadError::Tls { why: format!("--ca {}: {why}; expected a PEM file of certificates", path.display()) }
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

/// Accepts every certificate, and every signature: one by a key that nobody vouches for proves nothing. Checking it costs
/// the client more than the server's signing, and would make the client the limit.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The reason of a failure, with a remedy if there is one.
fn told(error: &io::Error) -> String {
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let remedy = match reason {
        Some(rustls::Error::InvalidMessage(_)) => {
            "the server's bytes are not TLS; check the port, or use http://"
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "no trusted certificate has signed the server's; give one with --ca, or use --insecure"
        }
        Some(rustls::Error::InvalidCertificate(_)) if error.to_string().contains("CaUsedAsEndEntity") => {
            "the server shows the certificate of a CA itself; use one that the CA has signed, or --insecure"
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
        let of = |error| told(&io::Error::new(io::ErrorKind::InvalidData, error));
        let issuer = of(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(issuer.contains("--ca"), "{issuer}");
        let cleartext = of(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        assert!(cleartext.contains("http://"), "{cleartext}");
        let other = of(rustls::Error::InvalidCertificate(CertificateError::Expired));
        assert!(other.contains("Expired"), "{other}");
    }
}
