//! The server's CPU time for TLS with ring and with aws-lc-rs, beside each other: handshakes and records.
//!
//! Both ends of a connection are in memory, and only the server's calls are timed. The client always uses ring. The
//! providers take turns in each round. The table has the median of the rounds and their range.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::{ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{ProducesTickets, ServerConnection};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, ServerConfig, SupportedProtocolVersion};

const ROUNDS: usize = 9;
const HANDSHAKES: u32 = 500;
const RECORDS: u32 = 2_000;

type Error = Box<dyn std::error::Error>;

/// The certificate of the server, and its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

/// One server's side, and a client for it.
struct Pair {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Pair {
    fn new(
        provider: CryptoProvider,
        tickets: Arc<dyn ProducesTickets>,
        identity: &Identity,
        version: &'static SupportedProtocolVersion,
        resumes: bool,
    ) -> Result<Pair, Error> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key.clone()));
        let mut server = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])?
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate.clone()], key)?;
        server.ticketer = tickets;
        let mut roots = RootCertStore::empty();
        roots.add(identity.certificate.clone())?;
        let mut client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        if !resumes {
            client.resumption = Resumption::disabled();
        }
        Ok(Pair { server: Arc::new(server), client: Arc::new(client) })
    }

    /// Makes a connection. Returns it with the server's time.
    fn connect(&self) -> Result<(ServerConnection, ClientConnection, Duration), Error> {
        let mut client = ClientConnection::new(Arc::clone(&self.client), ServerName::try_from("localhost")?)?;
        let start = Instant::now();
        let mut server = ServerConnection::new(Arc::clone(&self.server))?;
        let mut time = start.elapsed();
        while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes)?;
            }
            let start = Instant::now();
            let mut unread = bytes.as_slice();
            while !unread.is_empty() {
                server.read_tls(&mut unread)?;
                server.process_new_packets()?;
            }
            let mut answer = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut answer)?;
            }
            time += start.elapsed();
            let mut unread = answer.as_slice();
            while !unread.is_empty() {
                client.read_tls(&mut unread)?;
                client.process_new_packets()?;
            }
        }
        Ok((server, client, time))
    }

    /// The server's time for a handshake of this kind, in microseconds.
    fn handshake_us(&self, kind: HandshakeKind) -> Result<f64, Error> {
        // The first one brings the ticket.
        self.connect()?;
        let mut sum = Duration::ZERO;
        for _ in 0..HANDSHAKES {
            let (server, _, time) = self.connect()?;
            assert_eq!(server.handshake_kind(), Some(kind));
            sum += time;
        }
        Ok(sum.as_secs_f64() * 1e6 / f64::from(HANDSHAKES))
    }

    /// The server's time to encrypt a response of some length, in microseconds.
    fn record_us(&self, length: usize) -> Result<f64, Error> {
        let (mut server, mut client, _) = self.connect()?;
        server.set_buffer_limit(None);
        let content = vec![b'x'; length];
        let mut sum = Duration::ZERO;
        for _ in 0..RECORDS {
            let mut bytes = Vec::with_capacity(length + 1024);
            let start = Instant::now();
            std::io::Write::write_all(&mut server.writer(), &content)?;
            while server.wants_write() {
                server.write_tls(&mut bytes)?;
            }
            sum += start.elapsed();
            let mut unread = bytes.as_slice();
            let mut plain = Vec::new();
            while !unread.is_empty() {
                client.read_tls(&mut unread)?;
                client.process_new_packets()?;
                let _ = std::io::Read::read_to_end(&mut client.reader(), &mut plain);
            }
            assert_eq!(plain.len(), length);
        }
        Ok(sum.as_secs_f64() * 1e6 / f64::from(RECORDS))
    }
}

fn main() -> Result<(), Error> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let identity = Identity { certificate: made.cert.der().clone(), key: made.signing_key.serialize_der() };
    let new = |is_ring: bool, version, resumes| {
        let (provider, tickets) = match is_ring {
            true => (ring::default_provider(), ring::Ticketer::new()?),
            false => (aws_lc_rs::default_provider(), aws_lc_rs::Ticketer::new()?),
        };
        // The same group and suite for both. aws-lc-rs otherwise prefers a post-quantum group.
        let mut provider = provider;
        provider.kx_groups.retain(|group| group.name() == rustls::NamedGroup::X25519);
        Pair::new(provider, tickets, &identity, version, resumes)
    };
    let (v12, v13) = (&rustls::version::TLS12, &rustls::version::TLS13);
    let full = |pair: &Pair| pair.handshake_us(HandshakeKind::Full);
    let resumed = |pair: &Pair| pair.handshake_us(HandshakeKind::Resumed);
    type Task<'a> = &'a dyn Fn(&Pair) -> Result<f64, Error>;
    let tasks: [(&str, &'static SupportedProtocolVersion, bool, Task<'_>); 6] = [
        ("full, TLS 1.3", v13, false, &full),
        ("full, TLS 1.2", v12, false, &full),
        ("resumed, TLS 1.3", v13, true, &resumed),
        ("resumed, TLS 1.2", v12, true, &resumed),
        ("response of 1 KiB", v13, false, &|pair| pair.record_us(1 << 10)),
        ("response of 100 KiB", v13, false, &|pair| pair.record_us(100 << 10)),
    ];
    println!("{:<22}{:>22}{:>22}{:>18}", "us of the server", "ring", "aws-lc-rs", "ratio");
    for (name, version, resumes, task) in tasks {
        let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for round in 0..ROUNDS {
            let mut order = [0, 1];
            if round % 2 == 1 {
                order.reverse();
            }
            for which in order {
                times[which].push(task(&new(which == 0, version, resumes)?)?);
            }
            ratios.push(times[1][round] / times[0][round]);
        }
        let [ring, aws] = times.map(|of| spread(of, 1));
        println!("{name:<22}{ring:>22}{aws:>22}{:>18}", spread(ratios, 2));
    }
    Ok(())
}

/// The median, and the range.
fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (first, last, middle) = (values[0], values[values.len() - 1], values[values.len() / 2]);
    format!("{middle:.digits$} ({first:.digits$}..{last:.digits$})")
}
