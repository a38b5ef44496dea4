//! The properties of bytes from strangers, as TLS records and as an OCSP response. The tests and the fuzz targets share
//! them, by path.

use std::fs;
use std::io::Write;
use std::sync::{Arc, OnceLock};

use rcgen::{CertificateParams, KeyPair, SerialNumber};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tls::{Event, Files, Material, Session, Sessions, TlsError};

/// What the client says to the server.
const SAID: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// The serial number of the certificate, which the OCSP responses of the corpus are about.
const SERIAL: [u8; 2] = [0x13, 0x07];

/// More bytes than a server's part of a handshake has.
const LONG_FLIGHT: usize = 16 << 10;

/// One certificate with its key, for all inputs.
struct Identity {
    certificate: String,
    key: String,
    der: CertificateDer<'static>,
}

fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["a".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(SERIAL.to_vec()));
        let made = params.self_signed(&key).unwrap();
        Identity { certificate: made.pem(), key: key.serialize_pem(), der: made.der().clone() }
    })
}

fn sessions(response: Option<&[u8]>) -> Result<Sessions, TlsError> {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let files = Files {
        certificate: write("certificate", identity().certificate.as_bytes()),
        key: write("key", identity().key.as_bytes()),
        ocsp: response.map(|response| write("response", response)),
        host: None,
    };
    Sessions::new(Material::read(&[files])?)
}

/// Whatever a file has, a server does not staple it unless it is about the server's certificate, and says why in one line.
///
/// # Panics
/// The check breaks the property.
pub fn ocsp_response_property(data: &[u8]) {
    match sessions(Some(data)) {
        Ok(_) => assert!(data.windows(SERIAL.len()).any(|window| window == SERIAL), "about what?"),
        Err(error) => {
            let why = error.to_string();
            assert!(why.starts_with("--tls-ocsp ") && !why.contains(char::is_control), "{why:?}");
        }
    }
}

/// The first byte chooses the version, or bytes without a client; the second the length of the pieces that the server gets.
/// The others are changes of what the client sends, four bytes each, or these bytes themselves. Whatever is changed, the
/// server reports the events in order, and no byte that the client has not said in its place. Without a change, it
/// reports all.
///
/// # Panics
/// The session breaks the property.
pub fn tls_session_property(data: &[u8]) {
    static SESSIONS: OnceLock<Sessions> = OnceLock::new();
    let Some(([kind, piece], rest)) = data.split_first_chunk() else { return };
    let server = SESSIONS.get_or_init(|| sessions(None).unwrap()).begin().unwrap();
    let piece = usize::from(*piece);
    let mut line = Line { server, piece, established: false, ended: false, plain: Vec::new() };
    match kind % 3 {
        0 => line.run(client(&TLS12), rest),
        1 => line.run(client(&TLS13), rest),
        _ => {
            let _ = line.pass(rest);
            assert!(!line.established && line.answers().len() < LONG_FLIGHT);
        }
    }
}

fn client(version: &'static rustls::SupportedProtocolVersion) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(identity().der.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), ServerName::try_from("a").unwrap()).unwrap()
}

/// One change of a client's bytes.
struct Change {
    at: usize,
    act: u8,
    byte: u8,
}

/// The way from a client to a server, and what the server has reported.
struct Line {
    server: Session,
    /// The length of the pieces that the server gets; 0 gives it all at once.
    piece: usize,
    established: bool,
    ended: bool,
    plain: Vec<u8>,
}

impl Line {
    /// Lets the client say its request and close, with changes on the way.
    fn run(&mut self, mut client: ClientConnection, changes: &[u8]) {
        let (fours, _) = changes.as_chunks();
        let changes: Vec<Change> = fours
            .iter()
            .map(|&[high, low, act, byte]| Change { at: u16::from_be_bytes([high, low]).into(), act, byte })
            .collect();
        client.writer().write_all(SAID).unwrap();
        let (mut sent, mut is_closed, mut is_broken) = (0, false, false);
        while !is_broken {
            let mut up = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut up).unwrap();
            }
            let on_the_way = changed(&up, sent, &changes);
            sent += up.len();
            is_broken = self.pass(&on_the_way).is_err();
            let down = self.answers();
            if up.is_empty() && down.is_empty() {
                break;
            }
            let mut down = &down[..];
            while !down.is_empty() && !is_broken {
                is_broken = client.read_tls(&mut down).is_err() || client.process_new_packets().is_err();
            }
            // Before the end of the handshake it would overtake the request.
            if !client.is_handshaking() && !std::mem::replace(&mut is_closed, true) {
                client.send_close_notify();
            }
        }
        assert!(SAID.starts_with(&self.plain), "{:?} was not said", self.plain);
        if changes.is_empty() {
            assert!(self.established && self.ended && self.plain == SAID, "nothing was changed");
        }
    }

    /// Passes bytes to the server in pieces.
    fn pass(&mut self, bytes: &[u8]) -> Result<(), rustls::Error> {
        let Line { server, piece, established, ended, plain } = self;
        let length = if *piece == 0 { bytes.len().max(1) } else { *piece };
        for piece in bytes.chunks(length) {
            server.receive(piece, |event| match event {
                Event::Established { .. } => {
                    assert!(!std::mem::replace(established, true) && plain.is_empty())
                }
                Event::Bytes(bytes) => {
                    assert!(*established && !*ended && !bytes.is_empty());
                    plain.extend_from_slice(bytes);
                }
                Event::Ended => assert!(!std::mem::replace(ended, true)),
            })?;
        }
        Ok(())
    }

    /// The bytes that wait at the server.
    fn answers(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.server.wants_write() {
            self.server.write_to(&mut bytes).unwrap();
        }
        bytes
    }
}

/// Bytes that begin at a position of the client's stream, with the changes that lie in them.
fn changed(bytes: &[u8], begin: usize, changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        match changes.iter().find(|change| change.at == begin + at) {
            None => out.push(*byte),
            Some(Change { act, byte: other, .. }) => match act % 4 {
                0 => out.push(byte ^ other),
                1 => out.extend([*byte, *other]),
                2 => {}
                _ => out.extend_from_slice(&bytes[..=at]),
            },
        }
    }
    out
}
