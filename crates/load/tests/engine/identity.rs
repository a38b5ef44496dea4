//! A server's self-signed certificate for localhost, for the tests of the engine and of the crate itself.

use std::io::Write;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;

/// A certificate of a test server.
pub struct Identity {
    /// The server's TLS configuration.
    pub config: Arc<ServerConfig>,
    /// The PEM file by which a client trusts the server.
    pub pem: tempfile::NamedTempFile,
}

/// A new identity of a server that has the classical groups alone.
pub fn identity() -> Identity {
    identity_with(rustls::crypto::ring::default_provider())
}

/// A new identity of a server with these groups for the key exchange.
pub fn identity_with(provider: CryptoProvider) -> Identity {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut pem = tempfile::NamedTempFile::new().unwrap();
    pem.write_all(made.cert.pem().as_bytes()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    Identity { config: Arc::new(config), pem }
}
