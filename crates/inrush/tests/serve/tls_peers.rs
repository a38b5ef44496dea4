//! The server's TLS as openssl, sslyze and Chromium see it: suites, versions, renegotiation, known attacks.
//!
//! A peer that is not installed is a printed skip. `pip install sslyze` installs the scanner.

use std::collections::BTreeSet;
use std::path::PathBuf;

use assert_cmd::Command;

use super::architectures::on_every_architecture;
use super::tls::{self, Identity, installed, s_client};
use crate::common::{Files, PATIENCE, Server};

/// The output of openssl.
fn openssl(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("openssl");
    let output = command.args(arguments).write_stdin(input).timeout(PATIENCE).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// An identity with a key that openssl makes, of the kind that the arguments of `-newkey` name.
fn with_key(files: &Files, kind: &[&str]) -> Identity {
    let identity = Identity { certificate: files.beside("made.crt"), key: files.beside("made.key") };
    let [certificate, key] = [&identity.certificate, &identity.key].map(|path| path.to_str().unwrap());
    let names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
    let to = ["-nodes", "-keyout", key, "-out", certificate];
    openssl(&[&["req", "-x509", "-newkey"][..], kind, &names, &to].concat(), "");
    identity
}

/// The suites of TLS 1.2 and below that the server accepts, of all that openssl knows. Each handshake offers all that the
/// server has not chosen yet, until it chooses none of the rest.
fn accepted(server: &Server) -> BTreeSet<String> {
    let all = openssl(&["ciphers", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"], "");
    let mut rest: Vec<&str> = all.trim().split(':').filter(|suite| !suite.starts_with("TLS_")).collect();
    assert!(rest.len() > 50, "{all}");
    let mut accepted = BTreeSet::new();
    while let Some(next) = chosen(server, &rest) {
        rest.retain(|suite| *suite != next);
        assert!(accepted.insert(next));
    }
    accepted
}

/// The suite that the server chooses of the offered ones. `None` if the server refuses all.
fn chosen(server: &Server, offered: &[&str]) -> Option<String> {
    let ciphers = format!("{}:@SECLEVEL=0", offered.join(":"));
    let said = s_client(server, &["-no_tls1_3", "-cipher", &ciphers]);
    if !said.contains("HTTP/1.1 200 OK") {
        assert!(said.contains("SSL alert number 40"), "{said}");
        return None;
    }
    let (_, suite) = said.split_once("Cipher is ").expect(&said);
    suite.lines().next().map(str::to_owned)
}

#[test]
fn only_forward_secret_aead_suites_are_accepted() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    for (identity, kind) in
        [(Identity::new(&files, "own", &["localhost"]), "ECDSA"), (with_key(&files, &["rsa:2048"]), "RSA")]
    {
        let server = tls::start(&files, &[&identity], &["--arch=sped"]);
        let expected = ["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"];
        let expected = expected.map(|suite| format!("ECDHE-{kind}-{suite}")).into();
        assert_eq!(accepted(&server), expected);
        server.stop_well();
    }
}

#[test]
fn old_tls_renegotiation_and_fallback_are_refused() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    let server = tls::start(&files, &[&identity], &["--arch=sped"]);
    let address = server.address.to_string();
    let client =
        |flags: &[&str], input: &str| openssl(&[&["s_client", "-connect", &address], flags].concat(), input);
    let weak = ["-cipher", "ALL:@SECLEVEL=0"];
    for version in ["-tls1", "-tls1_1"] {
        let said = client(&[&[version][..], &weak].concat(), "");
        assert!(said.contains("SSL alert number") && said.contains("Cipher is (NONE)"), "{version}: {said}");
    }
    // The server's random number says that it speaks TLS 1.3, so the client notices that it was led astray.
    let said = client(&["-tls1_2", "-fallback_scsv"], "");
    assert!(said.contains("inappropriate fallback"), "{said}");
    // A line with R asks for another handshake.
    let said = client(&["-tls1_2"], "R\n");
    assert!(said.contains("RENEGOTIATING") && said.contains("no renegotiation"), "{said}");
    assert!(said.contains("Compression: NONE") && said.contains("Extended master secret: yes"), "{said}");
    server.stop_well();
}

#[test]
fn a_scanner_finds_no_known_weakness() {
    if !installed("sslyze") {
        return;
    }
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    let server = tls::start(&files, &[&identity], &["--arch=sped"]);
    let checks =
        ["--compression", "--fallback", "--openssl_ccs", "--heartbleed", "--robot", "--reneg", "--ems"];
    let mut command = Command::new("sslyze");
    command.args(checks).args(["--mozilla_config=disable", &format!("localhost:{}", server.address.port())]);
    let output = command.timeout(PATIENCE).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.matches(" OK - ").count(), checks.len() + 1, "renegotiation has two lines: {said}");
    assert!(!["VULNERABLE - ", "FAILED - ", "ERROR - "].iter().any(|bad| said.contains(bad)), "{said}");
    server.stop_well();
}

#[test]
fn browser_shows_a_page_and_agrees_on_the_hybrid() {
    if !installed("chromium") {
        return;
    }
    let files = Files::new();
    files.write("/page.html", "<p>read by a browser</p>");
    let identity = Identity::new(&files, "own", &["localhost"]);
    let mut server = tls::start(&files, &[&identity], &["--arch=sped"]);
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    // Nobody has signed the certificate.
    command.arg("--ignore-certificate-errors");
    command.arg(format!("--user-data-dir={}", files.beside("profile").display()));
    let log = files.beside("netlog.json");
    command.arg(format!("--log-net-log={}", log.display()));
    command.arg(format!("https://localhost:{}/page.html", server.address.port()));
    let output = command.timeout(PATIENCE).output().unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("read by a browser"), "{page}{}", String::from_utf8_lossy(&output.stderr));
    server.eventually("a handshake", |status| status.count("tls_handshakes_full") > 0);
    let log = std::fs::read_to_string(log).unwrap();
    // X25519MLKEM768, by its number in the registry of TLS.
    assert!(log.contains("\"key_exchange_group\":4588,"), "{log}");
    server.stop_well();
}

#[test]
fn go_agrees_on_the_hybrid_on_every_architecture() {
    if !installed("go") {
        return;
    }
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    let source = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/tls_peers/group.go"));
    let program = files.beside("group");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).args([&program, &source]).env("GOTOOLCHAIN", "local").assert().success();
    on_every_architecture(|flags| {
        let server = tls::start(&files, &[&identity], flags);
        let url = format!("https://{}/none", server.address);
        Command::new(&program).arg(&url).timeout(PATIENCE).assert().stdout("X25519MLKEM768 404\n");
        server.stop_well();
    });
}

#[test]
fn clients_without_the_hybrid_choose_their_group() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    let server = tls::start(&files, &[&identity], &["--arch=sped"]);
    for (groups, key) in [
        ("X25519", "X25519, 253 bits"),
        ("P-256", "ECDH, prime256v1, 256 bits"),
        ("P-384:X25519", "ECDH, secp384r1, 384 bits"),
    ] {
        for version in ["-tls1_2", "-tls1_3"] {
            let said = s_client(&server, &[version, "-groups", groups]);
            assert!(said.contains(&format!("Server Temp Key: {key}\n")), "{groups}: {said}");
        }
    }
    server.stop_well();
}

/// Keys that a certificate may have, as openssl asks for them, and the kind of signature that clients see.
const KEYS: [(&[&str], &str); 6] = [
    (&["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "ECDSA"),
    (&["ec", "-pkeyopt", "ec_paramgen_curve:P-384"], "ECDSA"),
    (&["rsa:2048"], "RSA-PSS"),
    (&["rsa:3072"], "RSA-PSS"),
    (&["rsa:4096"], "RSA-PSS"),
    (&["ed25519"], "ed25519"),
];

#[test]
fn openssl_verifies_a_certificate_of_each_kind_of_key() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    for (kind, signature) in KEYS {
        let identity = with_key(&files, kind);
        // The older form, in which ACME clients write a key: SEC 1 or PKCS #1 in place of PKCS #8.
        let older = Identity { key: files.beside("older.key"), ..identity.clone() };
        let [from, to] = [&identity.key, &older.key].map(|path| path.to_str().unwrap());
        openssl(&["pkey", "-traditional", "-in", from, "-out", to], "");
        // Ed25519 came with PKCS #8.
        let forms = if kind == ["ed25519"] { vec![identity] } else { vec![identity, older] };
        for identity in forms {
            println!("{kind:?}, {}", std::fs::read_to_string(&identity.key).unwrap().lines().next().unwrap());
            let certificate = identity.certificate.to_str().unwrap();
            let server = tls::start(&files, &[&identity], &["--arch=sped"]);
            for version in ["-tls1_2", "-tls1_3"] {
                let said = s_client(&server, &[version, "-CAfile", certificate, "-verify_return_error"]);
                assert!(said.contains("Verify return code: 0 (ok)"), "{version}: {said}");
                assert!(said.contains(&format!("Peer signature type: {signature}\n")), "{version}: {said}");
                assert!(said.contains("HTTP/1.1 200 OK"), "{version}: {said}");
            }
            server.stop_well();
        }
    }
}

#[test]
fn openssl_refuses_an_unknown_certificate() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let known = Identity::new(&files, "known", &["localhost"]);
    let server = tls::start(&files, &[&Identity::new(&files, "own", &["localhost"])], &["--arch=sped"]);
    let known = known.certificate.to_str().unwrap();
    let said = s_client(&server, &["-CAfile", known, "-verify_return_error"]);
    assert!(said.contains("verify error") && !said.contains("HTTP/1.1 200 OK"), "{said}");
    server.stop_well();
}
