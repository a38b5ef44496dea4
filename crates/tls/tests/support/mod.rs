//! Certificates of our own making, and a client that lives in memory.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tls::{Asked, Event, Files, Session};

/// A certificate with its key, in files.
pub struct Identity {
    pub files: Files,
    pub certificate: CertificateDer<'static>,
    pub key: KeyPair,
}

/// Makes an identity for some names, in `folder`.
pub fn identity(folder: &Path, stem: &str, names: &[&str]) -> Identity {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let files = Files {
        certificate: folder.join(format!("{stem}.crt")),
        key: folder.join(format!("{stem}.key")),
        ocsp: None,
        host: None,
    };
    fs::write(&files.certificate, made.pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    Identity { files, certificate: made.der().clone(), key }
}

/// A client that trusts these identities, and resumes its sessions.
pub fn client(
    identities: &[&Identity],
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> Arc<ClientConfig> {
    client_of(rustls::crypto::ring::default_provider(), identities, versions, protocols)
}

/// The same client with the groups and suites of a provider.
pub fn client_of(
    provider: CryptoProvider,
    identities: &[&Identity],
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    identities.iter().for_each(|identity| roots.add(identity.certificate.clone()).unwrap());
    let builder =
        ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.resumption = Resumption::in_memory_sessions(16);
    Arc::new(config)
}

/// The same client, which takes any certificate for any name.
pub fn trusting(config: &Arc<ClientConfig>) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(config);
    config.dangerous().set_certificate_verifier(Arc::new(Trusting));
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The events that a session has told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub established: Option<bool>,
    pub asked: Option<Asked>,
    pub bytes: Vec<u8>,
    pub ended: bool,
}

/// A client and a server, with nothing between them.
pub struct Pair {
    pub client: ClientConnection,
    pub server: Session,
    pub told: Told,
    /// Plain bytes that the client has received.
    received: Vec<u8>,
    /// The most bytes of the client that one call gives to the server.
    pub piece: usize,
}

impl Pair {
    pub fn new(config: &Arc<ClientConfig>, name: &str, server: Session) -> Pair {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let client = ClientConnection::new(Arc::clone(config), name).unwrap();
        Pair { client, server, told: Told::default(), received: Vec::new(), piece: usize::MAX }
    }

    /// Passes bytes on until neither side has any; returns the client's error.
    ///
    /// # Errors
    /// The server's error.
    pub fn run(&mut self) -> Result<Result<(), rustls::Error>, rustls::Error> {
        let mut failure = None;
        loop {
            let mut up = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut up).unwrap();
            }
            for piece in up.chunks(self.piece.min(up.len().max(1))) {
                let told = &mut self.told;
                let taken = self.server.receive(piece, |event| match event {
                    Event::Established { resumed, asked, .. } => {
                        told.asked = asked;
                        assert_eq!(told.established.replace(resumed), None, "told once");
                        assert!(told.bytes.is_empty());
                    }
                    Event::Bytes(bytes) => told.bytes.extend_from_slice(bytes),
                    Event::Ended => assert!(!std::mem::replace(&mut told.ended, true), "told once"),
                });
                if let Err(error) = taken {
                    failure = Some(error);
                    break;
                }
            }
            let mut down = Vec::new();
            while self.server.wants_write() {
                self.server.write_to(&mut down).unwrap();
            }
            let nothing = up.is_empty() && down.is_empty();
            let mut rest = &down[..];
            while !rest.is_empty() {
                self.client.read_tls(&mut rest).unwrap();
                if let Err(error) = self.client.process_new_packets() {
                    return failure.map_or(Ok(Err(error)), Err);
                }
                self.read();
            }
            match failure {
                Some(error) => return Err(error),
                None if nothing => return Ok(Ok(())),
                None => {}
            }
        }
    }

    /// Takes the plain bytes out of the client, whose buffer is small. Returns true if they ended well.
    fn read(&mut self) -> bool {
        self.client.reader().read_to_end(&mut self.received).is_ok()
    }

    /// Returns the bytes that the client has received, and true if they ended well.
    pub fn received(&mut self) -> (Vec<u8>, bool) {
        let ended = self.read();
        (std::mem::take(&mut self.received), ended)
    }

    pub fn says(&mut self, bytes: &[u8]) {
        self.client.writer().write_all(bytes).unwrap();
    }
}
