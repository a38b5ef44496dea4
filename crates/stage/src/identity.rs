//! A certificate for the servers under test, and its key.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use experiment::TlsKey;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};

/// A certificate that vouches for itself.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The PEM file of the certificate.
    pub certificate: PathBuf,
    /// The PEM file of its key.
    pub key: PathBuf,
}

impl Identity {
    /// Makes both files in a folder, under names that no server of ours serves.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn make(folder: &Path, key: TlsKey) -> io::Result<Identity> {
        let algorithm = match key {
            TlsKey::P256 => &PKCS_ECDSA_P256_SHA256,
            TlsKey::P384 => &PKCS_ECDSA_P384_SHA384,
        };
        let pair = KeyPair::generate_for(algorithm).map_err(io::Error::other)?;
        let parameters = CertificateParams::new(["localhost".to_owned()]).map_err(io::Error::other)?;
        let made = parameters.self_signed(&pair).map_err(io::Error::other)?;
        let [certificate, key] = [".certificate.pem", ".key.pem"].map(|name| folder.join(name));
        fs::write(&certificate, made.pem())?;
        fs::write(&key, pair.serialize_pem())?;
        Ok(Identity { certificate, key })
    }
}
