//! The page about the move from Caddy: the config file on it serves what the Caddyfile beside it describes.

use std::fs;

use assert_cmd::Command;

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

/// Returns the status, and the value of a field or an empty one.
fn ask(port: u16, url: &str, flags: &[&str], field: &str) -> (String, String) {
    let connect = format!("::127.0.0.1:{port}");
    let format = format!("%{{http_code}} %header{{{field}}}");
    let fixed = ["-sko", "/dev/null", "--connect-to", &connect, "-w", &format];
    let run = Command::new("curl").args(fixed).args(flags).arg(url).assert().success();
    let output = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    let (status, value) = output.split_once(' ').unwrap();
    (status.to_owned(), value.to_owned())
}

#[test]
fn config_of_the_caddy_page_serves_its_site() {
    if !installed("curl") {
        return;
    }
    let files = Files::new();
    Identity::new(&files, "example.org", &["example.org", "www.example.org"]);
    let password =
        Command::cargo_bin("inrush").unwrap().args(["password", "ann"]).write_stdin("secret\n").assert();
    fs::write(files.beside("passwords"), &password.success().get_output().stdout).unwrap();
    for folder in ["assets", "private"] {
        fs::create_dir(files.path(folder)).unwrap();
    }
    files.write("about.html", "about");
    files.write("assets/app.css", "a {}");
    files.write("private/index.html", "staff");
    let path = files.beside("serve.toml");
    fs::write(&path, config(&files)).unwrap();
    let server = Server::start_without_root(&[&format!("--config={}", path.display())]);
    let listening = server.said.lines().filter_map(|line| line.strip_prefix("listening on 127.0.0.1:"));
    let ports: Vec<u16> = listening.map(|port| port.parse().unwrap()).collect();
    let [https, http] = ports[..] else { panic!("{}", server.said) };
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
        assert_eq!(ask(port, url, flags, field), (status.to_owned(), value.to_owned()), "{url}");
    }
    server.stop_well();
}
