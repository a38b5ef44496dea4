//! The server's CPU time for a full handshake of TLS 1.3, with X25519MLKEM768 and with X25519 alone.
//!
//! Both ends are in memory, and only the server's calls are timed. The groups take turns in each round. The output has
//! the median of the rounds and their range:
//!
//!     cargo run --release -p tls --example key_exchange

use std::sync::Arc;

use base::{Clock, RealClock};
use rustls::client::{ClientConnection, Resumption};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tls::{Files, Material, Sessions};

const ROUNDS: usize = 9;
const HANDSHAKES: u64 = 500;

type Error = Box<dyn std::error::Error>;

/// The server's time for one handshake, in nanoseconds.
fn handshake(sessions: &Sessions, config: &Arc<ClientConfig>, clock: &RealClock) -> Result<u64, Error> {
    let mut client = ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost")?)?;
    let start = clock.now();
    let mut server = sessions.begin().ok_or("the library makes no session")?;
    let mut time = (clock.now() - start).0;
    while client.is_handshaking() || server.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes)?;
        }
        let start = clock.now();
        server.receive(&bytes, |_| {})?;
        let mut answer = Vec::new();
        while server.wants_write() {
            server.write_to(&mut answer)?;
        }
        time += (clock.now() - start).0;
        let mut unread = answer.as_slice();
        while !unread.is_empty() {
            client.read_tls(&mut unread)?;
            client.process_new_packets()?;
        }
    }
    Ok(time)
}

fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let (certificate, key) = (folder.path().join("own.crt"), folder.path().join("own.key"));
    std::fs::write(&certificate, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    let sessions = Sessions::new(Material::read(&[Files { certificate, key, ocsp: None, host: None }])?)?;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let config = |provider| -> Result<Arc<ClientConfig>, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let mut config = builder.with_root_certificates(roots.clone()).with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    };
    let groups = [
        ("X25519MLKEM768", config(tls::provider())?),
        ("X25519", config(rustls::crypto::ring::default_provider())?),
    ];
    let clock = RealClock::new();
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for turn in 0..groups.len() {
            let which = (round + turn) % groups.len();
            let mut sum = 0;
            for _ in 0..HANDSHAKES {
                sum += handshake(&sessions, &groups[which].1, &clock)?;
            }
            times[which].push(sum as f64 / HANDSHAKES as f64 / 1000.0);
        }
    }
    for ((name, _), times) in groups.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let (first, middle, last) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
        println!("{name}: {middle:.1} us ({first:.1}..{last:.1})");
    }
    Ok(())
}
