//! TLS with the clients that people use: curl, openssl, and our own load generator; certificates that change.
//!
//! A client that is not installed is a printed skip.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use rcgen::{CertificateParams, KeyPair};
use rustix::process::Signal;

use super::architectures::on_every_architecture;
use crate::common::{Client, Files, PATIENCE, Server, Status, pattern};

/// A certificate and its key, in files.
#[derive(Clone)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Identity {
    /// For some names, beside the files that are served.
    pub fn new(files: &Files, stem: &str, names: &[&str]) -> Identity {
        let (certificate, key) = (files.beside(&format!("{stem}.crt")), files.beside(&format!("{stem}.key")));
        let identity = Identity { certificate, key };
        identity.renew(names);
        identity
    }

    /// Writes another one into the same files, the certificate first, as an ACME client does.
    pub fn renew(&self, names: &[&str]) {
        let pair = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = CertificateParams::new(names).unwrap().self_signed(&pair).unwrap();
        fs::write(&self.certificate, made.pem()).unwrap();
        fs::write(&self.key, pair.serialize_pem()).unwrap();
    }

    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    pub fn flags(&self) -> [String; 2] {
        [format!("--tls-cert={}", self.certificate.display()), format!("--tls-key={}", self.key.display())]
    }
}

pub fn start(files: &Files, identities: &[&Identity], flags: &[&str]) -> Server {
    let own: Vec<String> = identities.iter().flat_map(|identity| identity.flags()).collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    Server::start(&files.root(), &[flags, &own].concat())
}

pub fn installed(program: &str) -> bool {
    let there = sys::process::find_program(program).is_some();
    if !there {
        println!("skipped: {program} is not installed");
    }
    there
}

/// Returns curl's output for a host that it trusts by this certificate.
fn curl(server: &Server, host: &str, identity: &Identity, path: &str, flags: &[&str]) -> Vec<u8> {
    let port = server.address.port();
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--http1.1", "--cacert"]).arg(&identity.certificate);
    command.arg("--resolve").arg(format!("{host}:{port}:127.0.0.1")).args(flags);
    command.arg(format!("https://{host}:{port}{path}"));
    command.timeout(PATIENCE).assert().success().get_output().stdout.clone()
}

/// Returns the output of `openssl s_client` for a connection on which it asks for a file.
pub fn s_client(server: &Server, flags: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command
        .args(["s_client", "-servername", "localhost", "-connect", &server.address.to_string()])
        .args(flags);
    let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", Files::SMALL.0);
    let output = command.arg("-ign_eof").write_stdin(request).timeout(PATIENCE).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn curl_gets_what_there_is_on_every_architecture() {
    if !installed("curl") {
        return;
    }
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    on_every_architecture(|flags| {
        let server = start(&files, &[&identity], flags);
        let get = |path: &str, flags: &[&str]| curl(&server, "localhost", &identity, path, flags);
        for (name, length) in [Files::SMALL, Files::MEDIUM, Files::LARGE] {
            assert!(get(name, &[]) == pattern(length), "{name}");
        }
        let head = String::from_utf8(get(Files::LARGE.0, &["--head"])).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("Content-Length: 3000000\r\n"), "{head}");
        let tag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap();
        let condition = format!("If-None-Match: {tag}");
        let head = String::from_utf8(get(Files::LARGE.0, &["--include", "--header", &condition])).unwrap();
        assert!(head.starts_with("HTTP/1.1 304 ") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(
            get(Files::LARGE.0, &["--range", "1000000-2000000"]) == pattern(3_000_000)[1_000_000..=2_000_000]
        );
        let mut plain = Client::connect(server.address);
        plain.stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        let refused = plain.response();
        assert_eq!(refused.status, 400);
        assert_eq!(refused.text(), "This port speaks TLS: use https:// in place of http://\n");
        // The server waits for the end of a client that it has refused.
        drop(plain);
        server.stop_well();
    });
}

#[test]
fn every_process_resumes_what_another_began() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    for flags in [
        &["--arch=mp", "--workers=3"][..],
        &["--arch=smped", "--smped=initial=3,p-min=3,p-max=3", "--schedule=round-robin"],
        &["--arch=per-core", "--workers=2"],
    ] {
        println!("{flags:?}");
        let mut server = start(&files, &[&identity], flags);
        for version in ["-tls1_2", "-tls1_3"] {
            let ticket = files.beside(&format!("ticket{version}"));
            let ticket = ticket.to_str().unwrap();
            let first = s_client(&server, &[version, "-sess_out", ticket]);
            assert!(first.contains("New, TLSv1") && first.contains("HTTP/1.1 200 OK"), "{first}");
            for _ in 0..6 {
                let again = s_client(&server, &[version, "-sess_in", ticket]);
                assert!(again.contains("Reused, TLSv1") && again.contains("HTTP/1.1 200 OK"), "{again}");
            }
        }
        let counts = |status: &Status| {
            ["tls_handshakes_full", "tls_handshakes_resumed"].map(|name| status.count(name))
        };
        let status = server.eventually("all counted", |status| counts(status).iter().sum::<u64>() == 14);
        assert_eq!(counts(&status), [2, 12]);
        server.stop_well();
    }
}

#[test]
fn weak_and_other_protocols_are_refused_with_an_alert() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    let server = start(&files, &[&identity], &["--arch=sped"]);
    for (flags, alert) in [
        (&["-tls1_2", "-cipher", "AES128-SHA:ECDHE-ECDSA-AES128-SHA"][..], "alert handshake failure"),
        (&["-tls1_2", "-cipher", "AES128-GCM-SHA256"], "alert handshake failure"),
        (&["-alpn", "spdy/1"], "alert no application protocol"),
    ] {
        let said = s_client(&server, flags);
        assert!(said.contains(alert), "{flags:?}: {said}");
    }
    let said = s_client(&server, &["-alpn", "http/1.1"]);
    assert!(said.contains("ALPN protocol: http/1.1"), "{said}");
    assert!(said.contains("HTTP/1.1 200 OK"), "{said}");
    let said = s_client(&server, &["-alpn", "http/1.1,h2"]);
    assert!(said.contains("ALPN protocol: h2"), "{said}");
    server.stop_well();
}

#[test]
fn tls_load_and_server_agree_on_every_architecture() {
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    let certificate = identity.certificate.display().to_string();
    on_every_architecture(|flags| {
        let mut server = start(&files, &[&identity], flags);
        let url = format!("https://localhost:{}{}", server.address.port(), Files::MEDIUM.0);
        let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
        command.args(["load", &url, "--ca", &certificate, "--rate=50", "--duration=1s", "--warmup=0s"]);
        command.args(["--requests-per-connection=2", "--connect-timeout=5s", "--output=json"]);
        let output = command.timeout(PATIENCE).output().unwrap();
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let ok = result["outcomes"]["ok"].as_u64().unwrap();
        // On a busy machine some handshakes outlast the run, and seda refuses some.
        let in_flight = result["in_flight_at_end"].as_u64().unwrap();
        let unserved = ["shed", "no_time"].map(|outcome| result["outcomes"][outcome].as_u64().unwrap());
        let all = ok + unserved.iter().sum::<u64>() + in_flight;
        assert!(ok > 0 && result["offered"] == all, "{}", result["outcomes"]);
        let handshakes = &result["handshakes"];
        let [full, resumed] = ["full", "resumed"].map(|kind| handshakes[kind].as_u64().unwrap());
        assert!(resumed > 0, "{handshakes}");
        assert_eq!(handshakes["groups"], serde_json::json!({ "X25519MLKEM768": full + resumed }));
        let counted = |status: &Status| {
            ["tls_handshakes_full", "tls_handshakes_resumed"].map(|name| status.count(name))
        };
        // The run's end may interrupt a handshake that the client has counted and the server has not completed.
        let is_counted = |status: &Status| {
            let [of_full, of_resumed] = counted(status);
            of_full + in_flight >= full && of_resumed + in_flight >= resumed
        };
        let status =
            server.eventually("all counted", |status| status.connections() == 0 && is_counted(status));
        if in_flight == 0 {
            assert_eq!(counted(&status), [full, resumed]);
        }
        assert_eq!(status.count("tls_broken") + status.count("tls_plain_http"), 0);
        server.stop_well();
    });
}

#[test]
fn load_offers_the_key_exchange_it_is_told() {
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    let server = start(&files, &[&identity], &[]);
    let url = format!("https://localhost:{}{}", server.address.port(), Files::MEDIUM.0);
    for (flags, told) in [
        (&["--key-exchange=classical"][..], "; key exchange: X25519 "),
        (&[], "; key exchange: X25519MLKEM768 "),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
        command.args(["load", &url, "--insecure", "--rate=20", "--duration=1s", "--warmup=0s"]).args(flags);
        // On a busy machine the generator is late, which changes the exit code.
        let run = command.args(["--connect-timeout=5s"]).timeout(PATIENCE).assert().code(&[0, 5][..]);
        let text = String::from_utf8_lossy(&run.get_output().stdout).into_owned();
        assert!(text.contains(told), "{text}");
    }
    server.stop_well();
}

#[test]
fn each_host_has_its_certificate() {
    if !installed("curl") {
        return;
    }
    let files = Files::new();
    let one = Identity::new(&files, "one", &["one.test", "*.wild.test"]);
    let two = Identity::new(&files, "two", &["two.test"]);
    let server = start(&files, &[&one, &two], &["--arch=sped"]);
    assert!(server.said.contains("\nTLS 1.2 and 1.3, with certificates for *.wild.test one.test two.test\n"));
    assert!(server.said.contains(&format!(" at https://{}/", server.address)), "{}", server.said);
    for (host, identity) in [("one.test", &one), ("two.test", &two), ("x.wild.test", &one)] {
        assert!(curl(&server, host, identity, Files::SMALL.0, &[]) == pattern(Files::SMALL.1));
    }
    server.stop_well();
}

#[test]
fn changed_certificate_is_reread_broken_one_ignored() {
    if !installed("curl") {
        return;
    }
    let files = Files::new();
    for flags in [&["--arch=sped"][..], &["--arch=mp", "--workers=2"], &["--arch=mt", "--workers=3"]] {
        println!("{flags:?}");
        let identity = Identity::new(&files, "own", &["localhost"]);
        let mut server = start(&files, &[&identity], flags);
        // Any worker may answer, and each reads the certificate in its own time.
        let believes = |server: &mut Server| {
            server.eventually_of("the new certificate", |server| {
                let port = server.address.port();
                let mut command = Command::new("curl");
                command.args(["--silent", "--output", "/dev/null", "--cacert"]).arg(&identity.certificate);
                command.arg(format!("https://localhost:{port}{}", Files::SMALL.0));
                command.timeout(PATIENCE).output().unwrap().status.success()
            });
        };
        believes(&mut server);
        identity.renew(&["localhost"]);
        assert_eq!(server.says(), "inrush: new certificates in force\n", "by itself");
        believes(&mut server);
        fs::write(&identity.key, "half a ke").unwrap();
        server.signal(Signal::HUP);
        let expected =
            format!("inrush: the certificate stays as it was: --tls-key {}: ", identity.key.display());
        let said = server.says();
        assert!(said.starts_with(&expected), "{said}");
        believes(&mut server);
        identity.renew(&["localhost"]);
        server.signal(Signal::HUP);
        assert_eq!(server.says(), "inrush: new certificates in force\n");
        believes(&mut server);
        // Nothing has changed since then, so nothing is said.
        server.signal(Signal::HUP);
        assert_eq!(server.stop(), (Some(0), String::new()));
    }
}

#[test]
fn mistakes_with_certificates_are_one_line() {
    let files = Files::new();
    let (one, two) = (Identity::new(&files, "one", &["a"]), Identity::new(&files, "two", &["b"]));
    let root = files.root().display().to_string();
    let ([certificate, key], [_, other]) = (one.flags(), two.flags());
    for (flags, code, expected) in [
        (vec![certificate.clone()], 2, "--tls-key"),
        (vec![key.clone()], 2, "--tls-cert"),
        (
            vec![certificate.clone(), certificate.clone(), key.clone()],
            2,
            "--tls-cert is given 2 times and --tls-key 1",
        ),
        (vec![certificate.clone(), other], 2, "it does not belong to the certificate in"),
        (
            vec![certificate.clone(), "--tls-key=/no/such/file".to_owned()],
            2,
            "--tls-key /no/such/file: cannot read it",
        ),
        (
            vec![certificate, key, "--arch=sped".to_owned(), "--kernel-cache=on".to_owned()],
            2,
            "--kernel-cache on: the kernel cannot answer requests under TLS",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
        command.args(["serve", &root, "--listen=127.0.0.1:0"]).args(&flags).timeout(PATIENCE);
        let said = String::from_utf8(command.assert().code(code).get_output().stderr.clone()).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(expected), "{said}\ninstead of\n{expected}");
    }
}

#[test]
fn a_config_file_names_certificates_too() {
    let files = Files::new();
    let identity = Identity::new(&files, "own", &["localhost"]);
    let text = format!(
        "tls-cert = [{:?}]\ntls-key = [{:?}]\n",
        identity.certificate.display().to_string(),
        identity.key.display().to_string()
    );
    fs::write(files.beside("inrush.toml"), text).unwrap();
    let config = format!("--config={}", files.beside("inrush.toml").display());
    let server = Server::start(&files.root(), &["--arch=sped", &config]);
    assert!(server.said.contains(" at https://"), "{}", server.said);
    server.stop_well();
}
