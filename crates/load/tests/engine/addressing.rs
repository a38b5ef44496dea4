//! Ways to a server: redirected connections, other hosts, socket files, several addresses, and certificates.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use load::{ClientIdentity, Config, LoadError, TlsVersion, Trust};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use record::Outcome;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::servers::{Server, read_request};
use super::{assert_all, config, run};

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server that is named `localhost` by a certificate, with the client's roots if it asks for certificates.
struct Secured {
    server: Server,
    folder: tempfile::TempDir,
}

/// A self-signed certificate that says it is a CA's, as many tools make them.
fn own_authority() -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params, KeyPair::generate().unwrap())
}

impl Secured {
    fn new(asks_for_certificates: bool) -> Secured {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let (params, key) = own_authority();
        let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        write("ca.pem", &issuer.pem());
        let client_key = KeyPair::generate().unwrap();
        let mut client = CertificateParams::new(["client".to_owned()]).unwrap();
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        write("client.pem", &client.signed_by(&client_key, &issuer).unwrap().pem());
        write("client.key", &client_key.serialize_pem());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = if asks_for_certificates {
            let mut roots = RootCertStore::empty();
            roots.add(issuer.der().clone()).unwrap();
            let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(clients.unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let config = builder.with_single_cert(vec![issuer.der().clone()], der).unwrap();
        Secured { server: Server::replying_over_tls(Arc::new(config), REPLY), folder }
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self) -> Config {
        let mut config = config(&self.server);
        config.urls = vec![self.server.secure_url()];
        config.tls.trust = Trust::Roots(self.file("ca.pem"));
        config
    }
}

#[test]
fn self_signed_ca_is_trusted_if_it_is_the_servers_own() {
    let secured = Secured::new(false);
    assert_all(&run(secured.config()), Outcome::Ok);
    let stranger = Secured::new(false);
    let mut config = secured.config();
    config.tls.trust = Trust::Roots(stranger.file("ca.pem"));
    let refused = run(config);
    assert_all(&refused, Outcome::TlsFailed);
    let told = refused.reasons.join(" ");
    assert!(told.contains("a CA's own certificate, which is not in --ca"), "{told}");
}

#[test]
fn certificate_of_another_name_needs_sni() {
    let secured = Secured::new(false);
    let mut config = secured.config();
    let port = secured.server.address().port();
    config.urls = vec![format!("https://127.0.0.1:{port}/").parse().unwrap()];
    assert_all(&run(config.clone()), Outcome::TlsFailed);
    config.tls.server_name = Some("localhost".to_owned());
    assert_all(&run(config.clone()), Outcome::Ok);
    config.tls.version = Some(TlsVersion::V1_2);
    assert_all(&run(config), Outcome::Ok);
}

#[test]
fn client_certificate_opens_the_door() {
    let secured = Secured::new(true);
    let mut config = secured.config();
    // Of a refused client some see the alert, and others a reset on their request.
    let refused = run(config.clone());
    assert_eq!(refused.outcomes.get(Outcome::Ok), 0, "{:?}", refused.outcomes);
    let (certificate, key) = (secured.file("client.pem"), secured.file("client.key"));
    config.tls.identity = Some(ClientIdentity { certificate: certificate.clone(), key: Some(key) });
    assert_all(&run(config.clone()), Outcome::Ok);
    config.tls.identity = Some(ClientIdentity { certificate, key: None });
    let told = load::prepare(config).unwrap_err().to_string();
    assert!(told.contains("it has no private key") && told.contains("--key"), "{told}");
}

#[test]
fn redirected_connections_keep_the_host() {
    let (server, heard) = Server::listening();
    let mut config = config(&server);
    config.urls = vec!["http://shop.test/a".parse().unwrap()];
    let address = server.address();
    config.addressing.connect_to = vec![format!("shop.test:80:{address}").parse().unwrap()];
    config.request_timeout = base::Nanos::from_millis(100);
    run(config.clone());
    let request = String::from_utf8(heard.recv().unwrap()).unwrap();
    assert!(request.starts_with("GET /a HTTP/1.1\r\nHost: shop.test\r\n"), "{request}");
    config.form.fields = vec!["Host: other.test".parse().unwrap()];
    run(config.clone());
    let other =
        heard.try_iter().any(|heard| String::from_utf8_lossy(&heard).contains("Host: other.test\r\n"));
    assert!(other);
    config.form.fields.push("host: third.test".parse().unwrap());
    assert!(matches!(load::prepare(config), Err(LoadError::TwoHosts)));
}

#[test]
fn every_address_of_a_host_gets_connections() {
    let first = Server::replying(REPLY);
    let port = first.address().port();
    let (heard, second) = std::sync::mpsc::channel();
    let address: SocketAddr = format!("127.0.0.2:{port}").parse().unwrap();
    let Ok(listener) = TcpListener::bind(address) else {
        println!("skipped: {address} is taken");
        return;
    };
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if read_request(&mut stream) && stream.write_all(REPLY).is_ok() {
                // The test may be over.
                let _ = heard.send(());
            }
        }
    });
    let mut config = config(&first);
    config.urls = vec![format!("http://shop.test:{port}/").parse().unwrap()];
    let both = format!("shop.test:{port}:127.0.0.1,127.0.0.2");
    config.addressing.resolve = vec![both.parse().unwrap()];
    let result = run(config);
    assert_all(&result, Outcome::Ok);
    let of_second = second.try_iter().count() as u64;
    let all = result.connections.established;
    // The warm-up's connections are not counted, and both take turns.
    assert!(of_second >= all / 2 && of_second <= all, "{of_second} of {all}");
}

fn socket_server(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || while read_request(&mut stream) && stream.write_all(REPLY).is_ok() {});
        }
    });
}

#[test]
fn socket_file_is_a_target() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::closed());
    let path = folder.path().join("s");
    let mut config = config(&server);
    config.urls = vec![format!("unix:{}:/a", path.display()).parse().unwrap()];
    assert_all(&run(config.clone()), Outcome::Unreachable);
    socket_server(&path);
    let result = run(config.clone());
    assert_all(&result, Outcome::Ok);
    assert_eq!(result.manifest.config["urls"], format!("unix:{}:/a", path.display()));
    config.requests_per_connection = Some("3".parse().unwrap());
    assert_all(&run(config), Outcome::Ok);
}
