//! OCSP responses that are stapled to handshakes, made and read by openssl. Without it the tests print a skip.

use std::fs;
use std::path::PathBuf;

use assert_cmd::Command;
use rustix::process::Signal;

use super::architectures::on_every_architecture;
use super::sites::check;
use super::tls::{Identity, installed, s_client, start};
use super::upgrade::Upgrading;
use crate::common::{Files, PATIENCE, Server};

/// A certificate that is its own authority, with an OCSP response.
struct Stapled {
    identity: Identity,
    response: PathBuf,
    /// The authority's list of certificates.
    index: PathBuf,
}

impl Stapled {
    /// For some names, beside the files that are served.
    fn new(files: &Files, stem: &str, names: &[&str]) -> Stapled {
        let identity = Identity::new(files, stem, names);
        let beside = |ending: &str| files.beside(&format!("{stem}.{ending}"));
        let stapled = Stapled { identity, response: beside("ocsp"), index: beside("index") };
        stapled.respond("good");
        stapled
    }

    /// Makes a new response with a status: good or revoked.
    fn respond(&self, status: &str) {
        let certificate = &self.identity.certificate;
        let serial =
            Command::new("openssl").args(["x509", "-noout", "-serial", "-in"]).arg(certificate).unwrap();
        let serial = String::from_utf8(serial.stdout).unwrap().trim().replace("serial=", "");
        let (mark, revoked) = if status == "good" { ("V", "") } else { ("R", "251124000000Z") };
        let line = format!("{mark}\t491231235959Z\t{revoked}\t{serial}\tunknown\t/CN=own\n");
        fs::write(&self.index, line).unwrap();
        let newest = self.response.with_extension("newest");
        let mut command = Command::new("openssl");
        command.args(["ocsp", "-ndays", "7", "-index"]).arg(&self.index).arg("-rsigner").arg(certificate);
        command.arg("-rkey").arg(&self.identity.key).arg("-CA").arg(certificate);
        command.arg("-issuer").arg(certificate).arg("-cert").arg(certificate).arg("-respout").arg(&newest);
        command.timeout(PATIENCE).assert().success();
        fs::rename(newest, &self.response).unwrap();
    }

    fn flag(&self) -> String {
        format!("--tls-ocsp={}", self.response.display())
    }

    /// Lines for a host in a config file.
    fn lines(&self) -> String {
        let [certificate, key] = self.identity.flags();
        [certificate, key, self.flag()]
            .map(|flag| flag.trim_start_matches("--").replacen('=', " = '", 1) + "'\n")
            .concat()
    }
}

/// Returns the status in the response that a client gets; `None` without a response.
fn stapled(server: &Server, name: &str, version: &str) -> Option<String> {
    let said = s_client(server, &["-status", "-servername", name, version]);
    if said.contains("OCSP response: no response sent") {
        return None;
    }
    assert!(said.contains("OCSP Response Status: successful (0x0)"), "{said}");
    let status = said.lines().find_map(|line| line.trim().strip_prefix("Cert Status: "));
    Some(status.unwrap_or_else(|| panic!("{said}")).to_owned())
}

#[test]
fn a_response_is_stapled_on_every_architecture() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let one = Stapled::new(&files, "one", &["one.test"]);
    let two = Identity::new(&files, "two", &["two.test"]);
    let flag = one.flag();
    on_every_architecture(|flags| {
        let flags = [flags, &[&flag, "--tls-ocsp=-"]].concat();
        let server = start(&files, &[&one.identity, &two], &flags);
        for version in ["-tls1_2", "-tls1_3"] {
            assert_eq!(stapled(&server, "one.test", version).as_deref(), Some("good"));
            assert_eq!(stapled(&server, "two.test", version), None);
        }
        server.stop_well();
    });
}

#[test]
fn changed_staple_is_reread_and_broken_one_ignored() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let one = Stapled::new(&files, "one", &["one.test"]);
    let flag = one.flag();
    for flags in [&["--arch=sped"][..], &["--arch=mp", "--workers=2"], &["--arch=mt", "--workers=3"]] {
        println!("{flags:?}");
        one.respond("good");
        let mut server = start(&files, &[&one.identity], &[flags, &[&flag, "--confine=on"]].concat());
        assert_eq!(stapled(&server, "one.test", "-tls1_3").as_deref(), Some("good"));
        one.respond("revoked");
        assert_eq!(server.says(), "inrush: new certificates in force\n", "by itself");
        // Any worker may answer, and each reads the response in its own time.
        let is_new = |server: &Server| stapled(server, "one.test", "-tls1_3").as_deref() == Some("revoked");
        server.eventually_of("the new response", |server| is_new(server));
        for broken in ["", "half a respo"] {
            let newest = one.response.with_extension("newest");
            fs::write(&newest, broken).unwrap();
            fs::rename(newest, &one.response).unwrap();
            server.signal(Signal::HUP);
            let (path, said) = (one.response.display(), server.says());
            let why = "it is not an OCSP response; expected an OCSP response in DER";
            let expected = format!("inrush: the certificate stays as it was: --tls-ocsp {path}: {why}\n");
            assert_eq!(said, expected);
        }
        server.eventually_of("still the new response", |server| is_new(server));
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn a_late_response_is_not_stapled() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let one = Stapled::new(&files, "one", &["one.test"]);
    // The end of the response is the only time with this tag around it. No signature is checked here.
    let mut response = fs::read(&one.response).unwrap();
    let tag = b"\xa0\x11\x18\x0f";
    let end = response.windows(tag.len()).position(|bytes| bytes == tag).unwrap() + tag.len();
    response[end..end + 4].copy_from_slice(b"2020");
    fs::write(&one.response, response).unwrap();
    let mut server = start(&files, &[&one.identity], &["--arch=sped", &one.flag()]);
    assert_eq!(stapled(&server, "one.test", "-tls1_3"), None);
    one.respond("good");
    server.eventually_of("the new response", |server| {
        stapled(server, "one.test", "-tls1_3").as_deref() == Some("good")
    });
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_successor_staples_the_newest_response() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let one = Stapled::new(&files, "one", &["one.test"]);
    let flag = one.flag();
    for flags in [&["--arch=sped"][..], &["--arch=smped", "--smped=initial=2,p-min=2,p-max=2"]] {
        println!("{flags:?}");
        one.respond("good");
        let flags = [flags, &[&flag, "--upgrade=on"]].concat();
        let mut server = Upgrading::new(start(&files, &[&one.identity], &flags));
        assert_eq!(stapled(&server.server, "one.test", "-tls1_3").as_deref(), Some("good"));
        one.respond("revoked");
        server.upgrade();
        assert_eq!(stapled(&server.server, "one.test", "-tls1_3").as_deref(), Some("revoked"));
    }
}

#[test]
fn a_host_staples_its_own_response() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let one = Stapled::new(&files, "one", &["one.test"]);
    let two = Stapled::new(&files, "two", &["two.test"]);
    two.respond("revoked");
    let host = |name: &str, stapled: &Stapled| {
        format!("[[host]]\nnames = '{name}'\nroot = {:?}\n{}", files.root(), stapled.lines())
    };
    let config = files.beside("inrush.toml");
    fs::write(&config, [host("one.test", &one), host("two.test", &two)].concat()).unwrap();
    let config = format!("--config={}", config.display());
    let server = Server::start(&files.root(), &["--arch=smped", &config]);
    assert_eq!(stapled(&server, "one.test", "-tls1_3").as_deref(), Some("good"));
    assert_eq!(stapled(&server, "two.test", "-tls1_3").as_deref(), Some("revoked"));
    server.stop_well();
}

#[test]
fn mistakes_with_responses_are_one_line() {
    if !installed("openssl") {
        return;
    }
    let files = Files::new();
    let one = Stapled::new(&files, "one", &["one.test"]);
    let two = Identity::new(&files, "two", &["two.test"]);
    let (one_flags, two_flags, response) = (one.identity.flags(), two.flags(), one.flag());
    for (flags, expected) in [
        (vec![&response], "--tls-cert <FILE>".to_owned()),
        (
            [&one_flags[..], &two_flags].concat().iter().chain([&response]).collect(),
            "--tls-cert is given 2 times and --tls-ocsp 1 times; expected one response for each certificate"
                .to_owned(),
        ),
        (
            two_flags.iter().chain([&response]).collect(),
            format!(
                "{}: it is not about the certificate in {}; each --tls-ocsp goes with",
                response.replacen('=', " ", 1),
                two.certificate.display()
            ),
        ),
        (
            one_flags.iter().chain([&"--tls-ocsp=/no/such/file".to_owned()]).collect(),
            "--tls-ocsp /no/such/file: cannot read it".to_owned(),
        ),
    ] {
        let root = files.root().display().to_string();
        let flags: Vec<&str> = flags.into_iter().map(String::as_str).chain([&*root]).collect();
        let (code, _, said) = check(&flags);
        assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(&expected), "{said}\ninstead of\n{expected}");
    }
}
