//! The page about the move from Caddy: the config file on it serves what the Caddyfile beside it describes.
//!
//! Without curl the tests are a printed skip, and without caddy the comparison with it.

use std::fs;
use std::net::TcpStream;

use assert_cmd::Command;
use sys::process::{Child, Program};

use super::listening::listening;
use super::nginx_move::free_port;
use super::tls::{Identity, installed};
use crate::common::{Files, Server};

const PAGE: &str = include_str!("../../../../docs/tasks/from-caddy.md");

/// The config file of the page, with other addresses and places.
fn config(files: &Files) -> String {
    let (_, config) = PAGE.split_once("```toml\n").expect("the page has a config file");
    let (config, _) = config.split_once("```").expect("it ends");
    let here = files.beside("").display().to_string();
    let changes = [
        ("\":443\"", "\"127.0.0.1:0\""),
        ("\":80\"", "\"127.0.0.1:0\""),
        ("/srv/example", &files.root().display().to_string()),
        ("/etc/lego/certificates/", &here),
        ("/etc/inrush/", &here),
    ];
    changes.iter().fold(config.to_owned(), |config, (from, to)| {
        assert!(config.contains(from), "{from}");
        config.replace(from, to)
    })
}

/// Returns the status, and the values of fields or empty ones.
fn ask(port: u16, url: &str, flags: &[&str], fields: &[&str]) -> Vec<String> {
    let connect = format!("::127.0.0.1:{port}");
    let values: String = fields.iter().map(|field| format!("\n%header{{{field}}}")).collect();
    let format = format!("%{{stderr}}%{{http_code}}{values}");
    // A password that comes soon after another one gets 503 with Retry-After.
    let fixed = ["-sk", "--retry", "5", "--connect-to", &connect, "-w", &format];
    let run = Command::new("curl").args(fixed).args(flags).arg(url).assert().success();
    let output = String::from_utf8(run.get_output().stderr.clone()).unwrap();
    output.split('\n').map(str::to_owned).collect()
}

/// The files of the page's site, with the password "secret" of ann. Returns the line of the password.
fn place(files: &Files) -> String {
    Identity::new(files, "example.org", &["example.org", "www.example.org"]);
    let password =
        Command::cargo_bin("inrush").unwrap().args(["password", "ann"]).write_stdin("secret\n").assert();
    let line = String::from_utf8(password.success().get_output().stdout.clone()).unwrap();
    fs::write(files.beside("passwords"), &line).unwrap();
    for folder in ["assets", "private", "docs"] {
        fs::create_dir(files.path(folder)).unwrap();
    }
    files.write("about.html", "about");
    files.write("assets/app.css", "a {}");
    files.write("private/index.html", "staff");
    files.write("docs/index.html", "docs");
    line
}

/// The server with the page's config file, and its ports for http and https.
fn start(files: &Files) -> (Server, u16, u16) {
    let path = files.beside("serve.toml");
    fs::write(&path, config(files)).unwrap();
    let server = Server::start_without_root(&[&format!("--config={}", path.display())]);
    let listening = server.said.lines().filter_map(|line| line.strip_prefix("listening on 127.0.0.1:"));
    let ports: Vec<u16> = listening.map(|port| port.parse().unwrap()).collect();
    let [https, http] = ports[..] else { panic!("{}", server.said) };
    (server, http, https)
}

/// Starts Caddy with the Caddyfile of the page: with a certificate of ours in place of its own, and other ports.
fn caddy(files: &Files, password: &str) -> (Child, u16) {
    let (_, caddyfile) = PAGE.split_once("```text\n").expect("the page has a Caddyfile");
    let (caddyfile, _) = caddyfile.split_once("```").expect("it ends");
    let (http, https) = (free_port(), free_port());
    let here = files.beside("").display().to_string();
    let certificate = format!("{{\n    tls {here}example.org.crt {here}example.org.key\n    root");
    let changes = [
        ("{\n    root", certificate.as_str()),
        ("/srv/example", &files.root().display().to_string()),
        ("ann $2a$14$...", &password.trim_end().replacen(':', " ", 1)),
    ];
    let caddyfile = changes.iter().fold(caddyfile.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    let global =
        format!("{{\n admin off\n http_port {http}\n https_port {https}\n default_bind 127.0.0.1\n}}\n");
    let path = files.beside("Caddyfile");
    fs::write(&path, global + &caddyfile).unwrap();
    let flags = ["run", "--adapter", "caddyfile", "--config", path.to_str().unwrap()];
    let program = Program::new("caddy").arguments(flags).environment("HOME", &here);
    let program = program.environment("XDG_DATA_HOME", &here).environment("XDG_CONFIG_HOME", &here);
    (listening("caddy", program, || TcpStream::connect(("127.0.0.1", https))), https)
}

/// Asks both servers, and returns what they say about the same fields.
fn both(ports: [u16; 2], path: &str, flags: &[&str]) -> [Vec<String>; 2] {
    let fields = ["location", "cache-control", "content-range", "www-authenticate", "content-type"];
    ports.map(|port| {
        let mut answer = ask(port, &format!("https://example.org{path}"), flags, &fields);
        // The text of an error or a redirect is the server's own.
        if !["200", "206"].contains(&&*answer[0]) {
            answer.pop();
        }
        answer
    })
}

#[test]
fn config_of_the_caddy_page_answers_as_caddy_does() {
    if !installed("curl") || !installed("caddy") {
        return;
    }
    let files = Files::new();
    let password = place(&files);
    let (_caddy, theirs) = caddy(&files, &password);
    let (server, _, ours) = start(&files);
    let ports = [theirs, ours];
    for path in [
        "/",
        "/about",
        "/about.html",
        "/about?x=1",
        "/none",
        "/old",
        "/healthz",
        "/assets/app.css",
        "/private/",
        "/private/index.html",
        "/small.bin",
        "/folder/large.bin",
    ] {
        for flags in [&[][..], &["--head"], &["-r", "1-3"]] {
            let [their, our] = both(ports, path, flags);
            assert_eq!(their, our, "{path} {flags:?}");
        }
    }
    for user in ["ann:secret", "ann:wrong"] {
        let [their, our] = both(ports, "/private/", &["-u", user]);
        assert_eq!(their, our, "{user}");
    }
    // The rows of the page's table.
    for (path, at, theirs, ours) in [
        ("/old?x=1", 1, "/new", "/new?x=1"),
        ("/assets/none.css", 2, "public, max-age=31536000, immutable", ""),
        ("/folder", 0, "404", "301"),
        ("/docs", 0, "308", "301"),
    ] {
        let [their, our] = both(ports, path, &[]);
        assert_eq!((&*their[at], &*our[at]), (theirs, ours), "{path}");
    }
    server.stop_well();
}

#[test]
fn config_of_the_caddy_page_serves_its_site() {
    if !installed("curl") {
        return;
    }
    let files = Files::new();
    place(&files);
    let (server, http, https) = start(&files);
    for (port, url, flags, field, status, value) in [
        (http, "http://www.example.org/about", &[][..], "location", "301", "https://www.example.org/about"),
        (http, "http://example.org/.well-known/acme-challenge/x", &[], "location", "404", ""),
        (https, "https://example.org/about", &[], "content-type", "200", "text/html; charset=utf-8"),
        (https, "https://example.org/old", &[], "location", "301", "/new"),
        (https, "https://example.org/healthz", &[], "content-length", "200", "2"),
        (
            https,
            "https://example.org/assets/app.css",
            &[],
            "cache-control",
            "200",
            "public, max-age=31536000, immutable",
        ),
        (https, "https://example.org/private/", &[], "www-authenticate", "401", "Basic realm=\"Staff\""),
        (https, "https://example.org/private/", &["-u", "ann:secret"], "content-length", "200", "5"),
    ] {
        assert_eq!(ask(port, url, flags, &[field]), [status, value], "{url}");
    }
    server.stop_well();
}
