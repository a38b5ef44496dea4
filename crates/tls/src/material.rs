//! Certificates with their keys and OCSP responses: read from files, checked, and passed on to other processes.
//!
//! Owns the mistakes that an operator can make with these files. Does not decide which certificate a client gets.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use crate::names::{Owned, Staple};
use crate::staple::{self, Defect};

/// The size limit of a file; a chain of certificates has some KiB.
const MOST_BYTES: u64 = 1 << 20;

/// The paths of a certificate, its key and its OCSP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// A PEM file with the certificate, followed by its intermediate certificates.
    pub certificate: PathBuf,
    /// A PEM file with the private key.
    pub key: PathBuf,
    /// A DER file with an OCSP response about the certificate, for clients that ask for one.
    pub ocsp: Option<PathBuf>,
    /// The number of the host that alone has this certificate; `None` for all hosts.
    pub host: Option<u16>,
}

impl Files {
    /// Returns the paths, the OCSP response last.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.certificate, &self.key].into_iter().chain(&self.ocsp).map(PathBuf::as_path)
    }
}

/// A certificate, a key or an OCSP response that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {why}", path.display())]
pub struct TlsError {
    /// The flag that named the file.
    flag: &'static str,
    path: PathBuf,
    why: String,
}

const CERTIFICATE: &str = "--tls-cert";
const KEY: &str = "--tls-key";
const OCSP: &str = "--tls-ocsp";

/// Accepted files, in the words of errors.
const PEM: &str = "a PEM file";
const DER: &str = "an OCSP response in DER";

fn wrong(flag: &'static str, path: &Path, why: impl ToString) -> TlsError {
    TlsError { flag, path: path.to_owned(), why: why.to_string() }
}

/// A certificate, its key and its OCSP response, as their files held them.
#[derive(Clone, PartialEq, Eq)]
struct Pair {
    files: Files,
    certificate: Vec<u8>,
    key: Vec<u8>,
    ocsp: Option<Vec<u8>>,
}

/// The content of the files, in the order of the flags.
#[derive(Clone, PartialEq, Eq)]
pub struct Material(Vec<Pair>);

impl Material {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// [`TlsError`]: a file cannot be read.
    pub fn read(files: &[Files]) -> Result<Material, TlsError> {
        Ok(Material(files.iter().map(Pair::read).collect::<Result<_, _>>()?))
    }

    /// Reads the files again. A certificate whose files cannot be used stays as it was, with its key and its OCSP
    /// response. Returns the content with its certificates, and an error for each certificate that stays. Blocks.
    ///
    /// # Panics
    /// If [`Material::certified`] refuses this material.
    pub(crate) fn read_again(&self, provider: &CryptoProvider) -> (Material, Vec<Owned>, Vec<TlsError>) {
        let mut errors = Vec::new();
        let mut newest = |old: &Pair| {
            let read = Pair::read(&old.files).and_then(|pair| Ok((pair.certified(provider)?, pair)));
            read.unwrap_or_else(|error| {
                errors.push(error);
                (old.certified(provider).expect("it was certified before"), old.clone())
            })
        };
        let (certificates, pairs) = self.0.iter().map(&mut newest).unzip();
        (Material(pairs), certificates, errors)
    }

    /// Checks the certificates with their keys and OCSP responses: each belongs to its certificate.
    pub(crate) fn certified(&self, provider: &CryptoProvider) -> Result<Vec<Owned>, TlsError> {
        self.0.iter().map(|pair| pair.certified(provider)).collect()
    }

    /// Returns the certificates, keys and OCSP responses, private keys included, as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for Pair { files, certificate, key, ocsp } in &self.0 {
            // No path of a file is empty.
            let (no_path, no_response) = (PathBuf::new(), Vec::new());
            let paths = [&files.certificate, &files.key, files.ocsp.as_ref().unwrap_or(&no_path)]
                .map(|path| path.as_os_str().as_bytes());
            let host = files.host.map_or(Vec::new(), |host| host.to_be_bytes().to_vec());
            let contents = [certificate, key, ocsp.as_ref().unwrap_or(&no_response)].map(Vec::as_slice);
            for part in paths.into_iter().chain([&host[..]]).chain(contents) {
                bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
                bytes.extend_from_slice(part);
            }
        }
        bytes
    }

    /// Returns the material of [`Material::to_bytes`], or `None` for any other bytes.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<Material> {
        let mut pairs = Vec::new();
        while !bytes.is_empty() {
            let mut next = || {
                let (length, rest) = bytes.split_first_chunk()?;
                let (part, rest) = rest.split_at_checked(u64::from_be_bytes(*length) as usize)?;
                bytes = rest;
                Some(part.to_vec())
            };
            let mut path = || next().map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
            let (certificate, key, ocsp) = (path()?, path()?, path()?);
            let ocsp = Some(ocsp).filter(|path| path != Path::new(""));
            let host = <[u8; 2]>::try_from(next()?).ok().map(u16::from_be_bytes);
            let files = Files { certificate, key, ocsp, host };
            let (certificate, key, response) = (next()?, next()?, next()?);
            let ocsp = files.ocsp.is_some().then_some(response);
            pairs.push(Pair { files, certificate, key, ocsp });
        }
        (!pairs.is_empty()).then_some(Material(pairs))
    }
}

impl Pair {
    fn read(files: &Files) -> Result<Pair, TlsError> {
        Ok(Pair {
            files: files.clone(),
            certificate: read(CERTIFICATE, &files.certificate, PEM)?,
            key: read(KEY, &files.key, PEM)?,
            ocsp: files.ocsp.as_deref().map(|path| read(OCSP, path, DER)).transpose()?,
        })
    }

    fn certified(&self, provider: &CryptoProvider) -> Result<Owned, TlsError> {
        let wrong_certificate = |why: &str| wrong(CERTIFICATE, &self.files.certificate, why);
        let wrong_key = |why: &str| wrong(KEY, &self.files.key, why);
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| wrong_certificate("it is not a PEM file; expected a PEM file of certificates"))?;
        if chain.is_empty() {
            return Err(wrong_certificate("it has no certificate; expected a PEM file of certificates"));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| wrong_key(no_key(&self.key)))?;
        let certificate = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => wrong_key(&format!(
                "it does not belong to the certificate in {}; each --tls-key goes with the --tls-cert of its place",
                self.files.certificate.display()
            )),
            Error::InvalidCertificate(_) => wrong_certificate("its first certificate cannot be read"),
            _ => wrong_key("its kind is not supported; expected ECDSA P-256 or P-384, Ed25519, or RSA of 2048 bits or more"),
        })?;
        let first = certificate
            .end_entity_cert()
            .ok()
            .and_then(|first| webpki::EndEntityCert::try_from(first).ok())
            .ok_or_else(|| {
                wrong_certificate(
                    "its first certificate cannot be used by a server; expected X.509 version 3",
                )
            })?;
        let staple = match (&self.files.ocsp, &self.ocsp) {
            (Some(path), Some(response)) => {
                let defect = |defect| wrong(OCSP, path, self.unusable_response(defect));
                let end = staple::check(response, first.serial()).map_err(defect)?;
                Some(Staple { response: response.clone(), end })
            }
            _ => None,
        };
        Ok(Owned { certificate, staple, host: self.files.host })
    }

    /// Returns the reason why an OCSP response cannot be used.
    fn unusable_response(&self, defect: Defect) -> String {
        match defect {
            Defect::Form => format!("it is not an OCSP response; expected {DER}"),
            Defect::Status(status) => {
                format!("the responder answered {status:?}; expected {DER} with the status Successful")
            }
            Defect::Subject => format!(
                "it is not about the certificate in {}; each --tls-ocsp goes with the --tls-cert of its place",
                self.files.certificate.display()
            ),
        }
    }
}

/// Returns the reason why a file gives no key.
fn no_key(pem: &[u8]) -> &'static str {
    const ENCRYPTED: &[u8] = b"ENCRYPTED";
    if pem.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED) {
        "the key is encrypted, and nobody is asked for its password; decrypt it, such as with 'openssl pkey'"
    } else {
        "it has no private key; expected a PEM file with one"
    }
}

fn read(flag: &'static str, path: &Path, accepted: &str) -> Result<Vec<u8>, TlsError> {
    let cannot = |cause: io::Error| wrong(flag, path, format!("cannot read it: {cause}"));
    let about = fs::metadata(path).map_err(cannot)?;
    if !about.is_file() {
        return Err(wrong(flag, path, format!("it is not a file; expected {accepted}")));
    }
    if about.len() > MOST_BYTES {
        return Err(wrong(flag, path, format!("it is larger than 1 MiB; expected {accepted}")));
    }
    fs::read(path).map_err(cannot)
}
