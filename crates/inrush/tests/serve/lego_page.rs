//! The page about lego: its commands get a certificate from Pebble and renew it, and the server takes both.
//!
//! Without lego, pebble, pebble-challtestsrv or curl, the test is a printed skip.

use std::fs;
use std::net::{SocketAddr, TcpStream};

use assert_cmd::Command;
use sys::process::{Child, Program};

use super::listening::listening;
use super::nginx_move::free_port;
use super::sites::check;
use super::tls::{Identity, installed};
use crate::common::{Files, PATIENCE, Server};

const PAGE: &str = include_str!("../../../../docs/tasks/lego.md");

/// An ACME server, and the DNS server that it asks. Both are killed when they are dropped.
struct Authority {
    /// Its own certificate, which clients must trust.
    identity: Identity,
    /// The port of the challenges, in place of 80.
    http: u16,
    directory: String,
    #[expect(dead_code, reason = "they are killed when they are dropped")]
    programs: [Child; 2],
}

impl Authority {
    /// Its certificates are valid for five days, so a renewal is always due.
    fn start(files: &Files) -> Authority {
        let identity = Identity::new(files, "authority", &["localhost"]);
        let [http, tls, acme, management, names, dns] = std::array::from_fn(|_| free_port());
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let config = serde_json::json!({"pebble": {
            "listenAddress": local(acme),
            "managementListenAddress": local(management),
            "certificate": identity.certificate,
            "privateKey": identity.key,
            "httpPort": http,
            "tlsPort": tls,
            "profiles": {"default": {"description": "short", "validityPeriod": 5 * 86400}},
        }});
        let path = files.beside("pebble.json");
        fs::write(&path, config.to_string()).unwrap();
        let off = ["-http01", "-https01", "-tlsalpn01", "-doh"].map(|flag| format!("{flag}="));
        let dns = local(dns).to_string();
        let names = local(names);
        let flags = [format!("-dnsserver={dns}"), format!("-management={names}"), "-defaultIPv6=".to_owned()];
        let program = Program::new("pebble-challtestsrv").arguments(off.into_iter().chain(flags));
        let resolver = listening("pebble-challtestsrv", program, || TcpStream::connect(names));
        let flags = [format!("-config={}", path.display()), format!("-dnsserver={dns}")];
        // Otherwise it waits some seconds before each validation, and refuses some requests for the client to repeat.
        let program = Program::new("pebble").arguments(flags).environment("PEBBLE_VA_NOSLEEP", "1");
        let program = program.environment("PEBBLE_WFE_NONCEREJECT", "0");
        let pebble = listening("pebble", program, || TcpStream::connect(local(acme)));
        let directory = format!("https://localhost:{acme}/dir");
        Authority { identity, http, directory, programs: [resolver, pebble] }
    }

    /// Runs a command of lego.
    fn lego(&self, words: &str) -> String {
        let words = words.strip_prefix("runuser -u inrush -- lego ").expect("it is a command of lego");
        let mut command = Command::new("lego");
        command.args(["--server", &self.directory]).args(words.split(' '));
        // In place of minutes.
        command.args(words.contains(" renew ").then_some("--no-random-sleep"));
        command.env("LEGO_CA_CERTIFICATES", &self.identity.certificate);
        let run = command.timeout(PATIENCE).assert().success();
        String::from_utf8_lossy(&[&run.get_output().stdout[..], &run.get_output().stderr].concat())
            .into_owned()
    }
}

/// The blocks of a language on the page, in its order, with other folders and ports.
fn blocks(language: &str, files: &Files, http: u16) -> Vec<String> {
    let start = format!("```{language}\n");
    let all = PAGE.split(&start).skip(1).map(|rest| rest.split_once("\n```").expect("it ends").0);
    let here = files.beside("");
    let changes = [
        ("/srv/example.org", files.root().display().to_string()),
        ("/etc/lego", here.join("lego").display().to_string()),
        ("\":80\"", format!("\"127.0.0.1:{http}\"")),
        ("\":443\"", "\"127.0.0.1:0\"".to_owned()),
    ];
    let replaced =
        |block: &str| changes.iter().fold(block.to_owned(), |block, (from, to)| block.replace(from, to));
    all.map(replaced).collect()
}

/// The serial number of the certificate that the server shows to a client that trusts nobody yet.
fn serial(server: &Server) -> String {
    let connect = server.address.to_string();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &connect, "-servername", "www.example.org"]).write_stdin("");
    let shown = command.timeout(PATIENCE).output().unwrap().stdout;
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-serial"]).write_stdin(shown);
    String::from_utf8(command.timeout(PATIENCE).assert().success().get_output().stdout.clone()).unwrap()
}

#[test]
fn lego_gets_and_renews_what_the_server_serves() {
    if !["lego", "pebble", "pebble-challtestsrv", "openssl", "curl"].into_iter().all(installed) {
        return;
    }
    let files = Files::new();
    let authority = Authority::start(&files);
    let commands = blocks("sh", &files, authority.http);
    let [_, plain, run, start, renew] = &commands[..] else { panic!("{commands:#?}") };
    let root = files.root().display().to_string();
    assert_eq!(*plain, format!("inrush serve {root} --listen :80"));
    let first = Server::start_without_root(&[&root, &format!("--listen=127.0.0.1:{}", authority.http)]);
    let said = authority.lego(run);
    assert!(said.contains("Server responded with a certificate"), "{said}");
    first.stop_well();

    let config = files.beside("site.toml");
    fs::write(&config, &blocks("toml", &files, authority.http)[0]).unwrap();
    assert!(start.starts_with("inrush serve --check --config /etc/inrush/site.toml\n"), "{start}");
    let config = format!("--config={}", config.display());
    assert_eq!(check(&[&config]).0, Some(0));
    let mut server = Server::start_without_root(&[&config]);
    let before = serial(&server);
    let said = authority.lego(renew);
    assert!(said.contains("Trying renewal"), "{said}");
    assert_eq!(server.says(), "inrush: new certificates in force\n");
    assert_ne!(serial(&server), before);
    let url = format!("http://www.example.org:{}/x?y", authority.http);
    let resolve = format!("www.example.org:{}:127.0.0.1", authority.http);
    let mut command = Command::new("curl");
    command.args(["-s", "-o", "/dev/null", "-w", "%{redirect_url}", "--resolve", &resolve, &url]);
    command.timeout(PATIENCE).assert().stdout("https://www.example.org/x?y");
    server.stop_well();
    let scheduled = &blocks("text", &files, authority.http)[0];
    let (_, command) = scheduled.split_once(" inrush lego ").unwrap();
    assert_eq!(renew.strip_prefix("runuser -u inrush -- lego "), Some(command), "cron runs the same");
}
