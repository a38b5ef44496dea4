//! A certificate for the servers under test, and its key.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A certificate that vouches for itself, with a key of ECDSA P-256.
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
    pub fn make(folder: &Path) -> io::Result<Identity> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(io::Error::other)?;
        let [certificate, key] = [".certificate.pem", ".key.pem"].map(|name| folder.join(name));
        fs::write(&certificate, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        Ok(Identity { certificate, key })
    }
}
