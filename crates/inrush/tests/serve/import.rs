//! `inrush import nginx` on ordinary configurations: what it prints is in a file beside each, and the server takes it.
//!
//! The configurations follow the examples of nginx's documentation. nginx accepts each of them. Two are left out of
//! that: Debian's nginx-light has no module for a stream, and is older than QUIC.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;

use super::sites::check;
use super::tls::{Identity, installed};
use crate::common::{Files, Server};

fn configurations() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/import");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "conf")).collect();
    all.sort();
    all
}

/// The printed file. The notes in it name the configuration without its folder.
fn import(conf: &Path) -> String {
    let mut command = Command::cargo_bin("inrush").unwrap();
    command.current_dir(conf.parent().unwrap()).args(["import", "nginx"]).arg(conf.file_name().unwrap());
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

/// The text with the folders and files of a test in place of those of a machine. The folders and files of the test exist.
fn placed(files: &Files, text: &str) -> String {
    let here = files.beside("machine");
    let is_end = |letter: char| letter.is_whitespace() || "\";$".contains(letter);
    let mut paths = BTreeSet::new();
    for start in ["/srv/", "/etc/", "/var/"] {
        for (at, _) in text.match_indices(start) {
            let rest = &text[at..];
            paths.insert(&rest[..rest.find(is_end).unwrap_or(rest.len())]);
        }
    }
    for path in paths {
        let path = here.join(&path[1..]);
        let is_file = path.extension().is_some() || path.starts_with(here.join("etc"));
        let folder = if is_file { path.parent().unwrap() } else { &path };
        fs::create_dir_all(folder).unwrap();
        let stem = path.with_extension("");
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("crt") => {
                let name = stem.strip_prefix(files.beside("")).unwrap().to_str().unwrap().to_owned();
                drop(Identity::new(files, &name, &["localhost"]));
            }
            Some("key") => {}
            _ if is_file => fs::write(&path, "").unwrap(),
            _ => {}
        }
    }
    let replace = |text: String, start: &str| text.replace(start, &format!("{}{start}", here.display()));
    ["/srv/", "/etc/", "/var/"].into_iter().fold(text.to_owned(), replace)
}

#[test]
fn printed_files_are_those_beside_the_configurations() {
    let mut differ = Vec::new();
    let all = configurations();
    assert!(all.len() >= 15, "{all:?}");
    for conf in all {
        let expected = fs::read_to_string(conf.with_extension("toml")).unwrap_or_default();
        let printed = import(&conf);
        if printed != expected {
            differ.push(format!("{}:\n{printed}", conf.display()));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn server_takes_each_printed_file() {
    for conf in configurations() {
        let files = Files::new();
        let path = files.beside("serve.toml");
        fs::write(&path, placed(&files, &import(&conf))).unwrap();
        let (code, _, said) = check(&[&format!("--config={}", path.display())]);
        assert_eq!(code, Some(0), "{}: {said}", conf.display());
    }
}

#[test]
fn nginx_takes_each_configuration() {
    if !installed("nginx") {
        return;
    }
    let is_known = |conf: &PathBuf| !conf.ends_with("stream.conf") && !conf.ends_with("quic.conf");
    for conf in configurations().into_iter().filter(is_known) {
        let files = Files::new();
        let text = placed(&files, &fs::read_to_string(&conf).unwrap());
        let path = files.beside("nginx.conf");
        fs::write(&path, text).unwrap();
        let globals = format!("pid {}; error_log stderr;", files.beside("pid").display());
        let mut command = Command::new("nginx");
        let output =
            command.args(["-t", "-p"]).arg(files.beside("")).arg("-c").arg(&path).args(["-g", &globals]);
        let output = output.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", conf.display());
    }
}

/// Serves an imported configuration, with a program and a page in each of these folders of `/srv`.
fn serving(conf: &str, folders: &[&str]) -> (Files, Server) {
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/import").join(conf);
    let files = Files::new();
    let path = files.beside("serve.toml");
    fs::write(&path, placed(&files, &import(&conf))).unwrap();
    for folder in folders {
        let folder = files.beside("machine/srv").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("index.php"), "<?php $password = 'secret';").unwrap();
        fs::write(folder.join("page.html"), "a page").unwrap();
    }
    let server = Server::start_without_root(&[&format!("--config={}", path.display())]);
    (files, server)
}

#[test]
fn source_of_a_program_is_never_sent() {
    let (_files, server) = serving("fastcgi.conf", &["www"]);
    let mut client = server.client();
    for (path, status) in [
        ("/page.html", 200),
        ("/", 404),
        ("/none", 404),
        ("/index.php", 403),
        ("/index%2Ephp", 403),
        ("/index.php/more", 404),
    ] {
        assert_eq!(client.get(path).status, status, "{path}");
    }
    drop(client);
    server.stop_well();
}

#[test]
fn locations_without_an_equal_stay_closed() {
    let folders = [
        "www",
        "www/news",
        "www/private",
        "www/config",
        "www/silent",
        "www/limited",
        "two",
        "three",
        "four",
        "four/static",
        "five",
        "five/Db",
        "five/.well-known",
        "five/.well-known/db",
    ];
    let (_files, server) = serving("closed-locations.conf", &folders);
    let mut client = server.client();
    for (host, path, status) in [
        ("one.test", "/page.html", 200),
        ("one.test", "/index.php", 403),
        ("one.test", "/news/page.html", 200),
        ("one.test", "/news/index.php", 403),
        ("one.test", "/private/page.html", 403),
        ("one.test", "/config/page.html", 403),
        ("one.test", "/silent/page.html", 403),
        ("one.test", "/limited/page.html", 403),
        ("two.test", "/page.html", 200),
        ("two.test", "/index.php", 403),
        ("three.test", "/page.html", 200),
        ("three.test", "/index.php", 403),
        ("four.test", "/page.html", 403),
        ("four.test", "/static/page.html", 200),
        ("four.test", "/static/index.php", 403),
        ("five.test", "/page.html", 200),
        ("five.test", "/Db/page.html", 403),
        ("five.test", "/.well-known/page.html", 200),
        ("five.test", "/.well-known/db/page.html", 403),
        ("unknown.test", "/page.html", 403),
    ] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().status, status, "{host} {path}");
    }
    drop(client);
    server.stop_well();
}
