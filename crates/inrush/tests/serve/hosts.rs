//! Several hosts end to end: each has its files, rules and certificates, on every architecture, over HTTP/1.1 and HTTP/2,
//! changed while the server runs, and checked without a server.

use std::fs;

use assert_cmd::Command;
use rustix::process::Signal;

use super::architectures::on_every_architecture;
use super::sites::check;
use super::tls::{Identity, installed};
use crate::common::{Client, Files, PATIENCE, Response, Server, eventually, pattern, send};

/// A folder for each of two hosts, each in a place of its own beside the default host's, as confinement sees it.
pub struct Hosts {
    pub default: Files,
    one: Files,
    two: Files,
}

impl Hosts {
    pub fn new() -> Hosts {
        let hosts = Hosts { default: Files::new(), one: Files::new(), two: Files::new() };
        for (files, name) in [(&hosts.default, "default"), (&hosts.one, "one"), (&hosts.two, "two")] {
            files.write("/name", name);
        }
        fs::remove_file(hosts.two.path(Files::SMALL.0)).unwrap();
        hosts
    }

    /// Writes the config file, with further lines for each host. Returns the flag that names it.
    pub fn config(&self, one: &str, two: &str) -> String {
        self.config_with("", "'two.test'", one, two)
    }

    /// Writes the config file, with lines outside the hosts, and other names for the second host.
    fn config_with(&self, outside: &str, names_of_two: &str, one: &str, two: &str) -> String {
        let host = |names: &str, files: &Files, lines: &str| {
            format!("[[host]]\nnames = [{names}]\nroot = {:?}\n{lines}\n", files.root())
        };
        let hosts = host("'one.test', '*.one.test'", &self.one, one) + &host(names_of_two, &self.two, two);
        let text = format!("{outside}\n{hosts}");
        let (path, newest) = (self.default.beside("inrush.toml"), self.default.beside("newest.toml"));
        fs::write(&newest, text).unwrap();
        fs::rename(newest, &path).unwrap();
        format!("--config={}", path.display())
    }

    pub fn start(&self, flags: &[&str], one: &str, two: &str) -> Server {
        let config = self.config(one, two);
        Server::start(&self.default.root(), &[flags, &[&config]].concat())
    }
}

fn ask(client: &mut Client, host: &str, path: &str) -> Response {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response()
}

pub fn get(server: &Server, host: &str, path: &str) -> Response {
    ask(&mut server.client(), host, path)
}

#[test]
fn hosts_have_their_files_on_every_architecture() {
    on_every_architecture(|flags| {
        let hosts = Hosts::new();
        let one = "redirect = '/old /new 301'\nheader = '/* X-Host: one'\nerror-page = '404 /name'";
        let server = hosts.start(flags, one, "fallback = '/name'");
        let said = &server.said;
        assert!(
            said.contains("\nhost one.test *.one.test: /") && said.contains("\nhost two.test: /"),
            "{said}"
        );
        // Twice: from the disk and from the caches.
        for _ in 0..2 {
            // One connection may ask for all hosts.
            let mut client = server.client();
            for (host, name) in [
                ("one.test", "one"),
                ("a.b.ONE.test.:80", "one"),
                ("two.test", "two"),
                ("unknown", "default"),
                ("", "default"),
            ] {
                let answer = ask(&mut client, host, "/name");
                assert_eq!((answer.status, answer.text()), (200, name), "{host}");
                assert_eq!(answer.field("X-Host"), (name == "one").then_some("one"), "{host}");
                assert!(ask(&mut client, host, Files::LARGE.0).body == pattern(Files::LARGE.1), "{host}");
            }
            assert_eq!(ask(&mut client, "one.test", "/old").field("Location"), Some("/new"));
            let absent = ask(&mut client, "one.test", "/nothing");
            assert_eq!((absent.status, absent.text()), (404, "one"));
            let fallback = ask(&mut client, "two.test", Files::SMALL.0);
            assert_eq!((fallback.status, fallback.text()), (200, "two"));
            assert_eq!(ask(&mut client, "unknown", "/old").status, 404);
            // The target's own authority overrules Host.
            assert_eq!(ask(&mut client, "one.test", "http://two.test/name").text(), "two");
        }
        server.stop_well();
    });
}

#[test]
fn no_host_leads_out_of_a_root() {
    let hosts = Hosts::new();
    hosts.default.write("/../secret", "secret");
    let server = hosts.start(&["--arch=sped"], "", "");
    for host in ["..", "../two", "%2e%2e", "two.test%2f..", "[::1]", "*.one.test", "one.test.two.test", "-"] {
        for path in ["/../secret", "/%2e%2e/secret", "/secret"] {
            let answer = get(&server, host, path);
            assert!(matches!(answer.status, 400 | 404), "{host} {path}: {answer:?}");
        }
    }
    let mut client = server.client();
    client.send("GET /name HTTP/1.1\r\nHost: one.test\r\nHost: two.test\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let mut client = server.client();
    client.send("GET /name HTTP/1.0\r\n\r\n");
    assert!(client.rest().ends_with(b"\r\n\r\ndefault"));
    server.stop_well();
}

#[test]
fn renewed_host_folder_is_found_behind_confinement() {
    let hosts = Hosts::new();
    for flags in [&["--arch=sped"][..], &["--arch=mp", "--workers=3"], &["--arch=amped"]] {
        let server = hosts.start(flags, "", "");
        assert_eq!(get(&server, "two.test", "/name").text(), "two");
        fs::rename(hosts.two.root(), hosts.two.beside("old")).unwrap();
        fs::create_dir(hosts.two.root()).unwrap();
        hosts.two.write("/name", "newer");
        let mut server = server;
        server.eventually_of("the new folder", |server| get(server, "two.test", "/name").body == b"newer");
        fs::remove_dir_all(hosts.two.root()).unwrap();
        fs::rename(hosts.two.beside("old"), hosts.two.root()).unwrap();
        server.stop_well();
    }
}

#[test]
fn worker_started_during_a_replacement_serves_the_new() {
    let hosts = Hosts::new();
    let mut server = hosts.start(&["--arch=mp", "--workers=1"], "", "");
    assert_eq!(get(&server, "two.test", "/name").text(), "two");
    fs::remove_dir_all(hosts.two.root()).unwrap();
    send(server.children()[0], Signal::KILL);
    // As every worker says of a folder that vanished.
    assert_eq!(get(&server, "two.test", "/name").status, 503);
    assert_eq!(get(&server, "one.test", "/name").text(), "one");
    fs::create_dir(hosts.two.root()).unwrap();
    hosts.two.write("/name", "newer");
    server.eventually_of("the new folder", |server| get(server, "two.test", "/name").body == b"newer");
    let (code, said) = server.stop();
    assert_eq!((code, said.lines().count()), (Some(0), 1), "{said}");
}

/// Returns the status and the content that curl gets over TLS for a URL of `name`, with flags.
fn curl(server: &Server, name: &str, flags: &[&str]) -> (String, String) {
    let port = server.address.port();
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--insecure", "--write-out", "\n%{http_code}"]).args(flags);
    command.arg("--resolve").arg(format!("{name}:{port}:127.0.0.1"));
    command.arg(format!("https://{name}:{port}/name"));
    let said = command.timeout(PATIENCE).assert().success().get_output().stdout.clone();
    let said = String::from_utf8(said).unwrap();
    let (content, status) = said.rsplit_once('\n').unwrap();
    (status.to_owned(), content.to_owned())
}

/// Lines for the certificate of a host.
fn lines_of(identity: &Identity) -> String {
    identity.flags().map(|flag| flag.trim_start_matches("--").replacen('=', " = '", 1) + "'\n").concat()
}

#[test]
fn hosts_have_their_certificate_on_every_architecture() {
    if !installed("curl") {
        return;
    }
    let hosts = Hosts::new();
    let one = Identity::new(&hosts.default, "one", &["one.test", "*.one.test"]);
    let two = Identity::new(&hosts.default, "two", &["two.test", "one.test"]);
    on_every_architecture(|flags| {
        let mut server = hosts.start(flags, &lines_of(&one), &lines_of(&two));
        assert!(!server.said.contains("no certificate is for"), "{}", server.said);
        for version in ["--http1.1", "--http2"] {
            let curl = |name: &str, flags: &[&str]| curl(&server, name, &[&[version], flags].concat());
            let answer = |status: &str, text: &str| (status.to_owned(), text.to_owned());
            for (name, text, identity) in
                [("one.test", "one", &one), ("a.one.test", "one", &one), ("two.test", "two", &two)]
            {
                let trusted = identity.certificate().display().to_string();
                let verified = Command::new("curl")
                    .args(["--silent", "--show-error", version, "--cacert", &trusted, "--resolve"])
                    .arg(format!("{name}:{}:127.0.0.1", server.address.port()))
                    .arg(format!("https://{name}:{}/name", server.address.port()))
                    .timeout(PATIENCE)
                    .assert()
                    .success();
                assert_eq!(verified.get_output().stdout, text.as_bytes(), "{name}");
            }
            // A host that no name belongs to gets the first certificate, and the default host's files.
            assert_eq!(curl("unknown.test", &[]), answer("200", "default"));
            let misdirected = answer("421", "421 Misdirected Request\n");
            assert_eq!(curl("one.test", &["-HHost: two.test"]), misdirected);
            // Its certificate names the other host as well.
            assert_eq!(curl("two.test", &["-HHost: one.test"]), answer("200", "one"));
            assert_eq!(curl("two.test", &["-HHost: a.one.test"]), misdirected);
            assert_eq!(curl("one.test", &["-HHost: unknown.test"]), answer("200", "default"));
            // A client without SNI has no host of its own.
            assert_eq!(curl("127.0.0.1", &["-HHost: two.test"]), answer("200", "two"));
        }
        server.eventually("counted", |status| status.count("misdirected") == 4);
        server.stop_well();
    });
}

#[test]
fn host_certificate_is_renewed_in_a_running_server() {
    if !installed("curl") {
        return;
    }
    let hosts = Hosts::new();
    let one = Identity::new(&hosts.default, "one", &["one.test"]);
    let two = Identity::new(&hosts.default, "two", &["two.test"]);
    for flags in [&["--arch=sped"][..], &["--arch=mp", "--workers=3"]] {
        let mut server = hosts.start(flags, &lines_of(&one), &lines_of(&two));
        let two_asks_for_one =
            |server: &Server| curl(server, "two.test", &["--http1.1", "-HHost: one.test"]).0;
        assert_eq!(two_asks_for_one(&server), "421");
        two.renew(&["two.test", "one.test"]);
        server.signal(Signal::HUP);
        server.eventually_of("the new certificate", |server| two_asks_for_one(server) == "200");
        two.renew(&["two.test"]);
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn names_without_a_certificate_are_named() {
    let hosts = Hosts::new();
    let one = Identity::new(&hosts.default, "one", &["one.test"]);
    let server = hosts.start(&["--arch=sped"], &lines_of(&one), "");
    let warning = "no certificate is for *.one.test, two.test, so browsers warn visitors of these hosts";
    assert!(server.said.contains(&format!("\ninrush: {warning}\n")), "{}", server.said);
    server.stop_well();
    let config = hosts.config(&lines_of(&one), "");
    let (code, shown, _) = check(&[&config]);
    assert_eq!(code, Some(0));
    assert!(shown.contains(&format!("\nwarning: {warning}\n")), "{shown}");
}

/// Replaces the folder of one.test, and waits until it is served on a connection. Its host has looked at its rules at the same
/// time.
fn await_next_look(client: &mut Client, one: &Files) {
    fs::rename(one.root(), one.beside("old")).unwrap();
    fs::create_dir_all(one.path("/folder")).unwrap();
    one.write("/name", "newer");
    eventually("the new folder", || ask(client, "one.test", "/name").body == b"newer");
}

#[test]
fn signal_changes_rules_of_a_host_and_not_its_names() {
    for flags in [&["--arch=per-core", "--workers=2"][..], &["--arch=mp", "--workers=3"], &["--arch=amped"]] {
        println!("{flags:?}");
        let hosts = Hosts::new();
        let mut server = hosts.start(flags, "redirect = '/old /first'", "");
        let location =
            |server: &Server, host: &str| get(server, host, "/old").field("Location").map(str::to_owned);
        assert_eq!(location(&server, "one.test").as_deref(), Some("/first"));
        hosts.config("redirect = '/old'", "");
        server.signal(Signal::HUP);
        let said = server.says();
        assert!(
            said.starts_with(
                "inrush: the configuration stays as it was: host one.test: invalid value '/old'"
            ),
            "{said}"
        );
        hosts.config("redirect = '/old /second'", "redirect = '/old /other'");
        server.signal(Signal::HUP);
        assert_eq!(server.says(), "inrush: changed: host one.test, host two.test\n");
        for (host, expected) in
            [("one.test", Some("/second")), ("two.test", Some("/other")), ("unknown", None)]
        {
            server.eventually_of("the new rules", |server| location(server, host).as_deref() == expected);
        }
        hosts.config("redirect = '/old /third'\ncache-memory = '1MiB'", "redirect = '/old /other'");
        server.signal(Signal::HUP);
        assert_eq!(server.says(), "inrush: needs a restart: host one.test\n");
        // A change of other rules shows when the configuration has been read.
        hosts.config_with(
            "redirect = '/old /default'",
            "'two.test', 'new.test'",
            "redirect = '/old /third'\ncache-memory = '1MiB'",
            "redirect = '/old /third'",
        );
        server.signal(Signal::HUP);
        assert_eq!(server.says(), "inrush: changed: redirect\n");
        assert_eq!(server.says(), "inrush: needs a restart: host one.test, host two.test\n");
        let mut client = server.client();
        // A worker reads the configuration between two connections.
        server.eventually_of("the new rules", |server| {
            client = server.client();
            ask(&mut client, "unknown", "/old").field("Location") == Some("/default")
        });
        await_next_look(&mut client, &hosts.one);
        assert_eq!(ask(&mut client, "one.test", "/old").field("Location"), Some("/second"));
        assert_ne!(ask(&mut client, "two.test", "/old").field("Location"), Some("/third"));
        assert_eq!(ask(&mut client, "new.test", "/name").text(), "default");
        drop(client);
        server.stop_well();
    }
}

#[test]
fn change_that_needs_a_restart_changes_nothing() {
    let files = Files::new();
    let path = files.beside("serve.toml");
    let host = format!("[[host]]\nnames = [\"one.test\"]\nroot = \"{}\"\n", files.root().display());
    std::fs::write(&path, &host).unwrap();
    let mut server = Server::start_without_root(&[&format!("--config={}", path.display())]);
    let mut client = server.client();
    for host in ["one.test", "unknown"] {
        assert_eq!(ask(&mut client, host, "/folder/").status, 404, "{host}");
    }
    let other = Files::new();
    other.write("/name", "other");
    let own_root = format!("root = \"{}\"\nlisting = true\n{host}", other.root().display());
    let newest = files.beside("newest.toml");
    std::fs::write(&newest, own_root).unwrap();
    std::fs::rename(&newest, &path).unwrap();
    // The second answer shows that the first reading is over.
    for _ in 0..2 {
        server.signal(Signal::HUP);
        let said = server.says();
        assert!(said.starts_with("inrush: the configuration stays as it was: "), "{said}");
    }
    await_next_look(&mut client, &files);
    for host in ["one.test", "unknown"] {
        assert_eq!(ask(&mut client, host, "/folder/").status, 404, "{host}");
        assert_eq!(ask(&mut client, host, "/name").text(), "newer", "{host}");
    }
    drop(client);
    server.stop_well();
}

#[test]
fn first_host_is_the_default_without_another() {
    let hosts = Hosts::new();
    let config = hosts.config("", "");
    let server = Server::start_without_root(&[&config, "--arch=sped"]);
    for (host, name) in [("one.test", "one"), ("two.test", "two"), ("unknown", "one"), ("127.0.0.1", "one")] {
        assert_eq!(get(&server, host, "/name").text(), name);
    }
    server.stop_well();
}

#[test]
fn a_check_shows_all_hosts() {
    let hosts = Hosts::new();
    let config = hosts.config("listing = true", "index = 'start.html'\nfallback = '/absent'");
    let (code, shown, said) = check(&[&config, "--listen=:8080", hosts.default.root().to_str().unwrap()]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let root = |files: &Files| fs::canonicalize(files.root()).unwrap().display().to_string();
    let (default, one, two) = (root(&hosts.default), root(&hosts.one), root(&hosts.two));
    assert_eq!(
        shown,
        format!(
            "would serve {default} at http://127.0.0.1:8080/\n\
             start files: index.html; other folders are not listed\nrules: none\n\
             host one.test *.one.test: {one}\n\
             start files: index.html; other folders are listed\nrules: none\n\
             host two.test: {two}\n\
             start files: start.html; other folders are not listed\nrules: fallback /absent\n\
             warning: host two.test: there is no start.html in {two}, so / is answered 404: ask for files by name, list \
             folders with --listing, or choose another start file with --index NAME\n\
             warning: host two.test: --fallback: there is no file /absent in the folder\n\
             the configuration has no mistakes\n"
        )
    );
}

#[test]
fn mistakes_in_a_host_are_one_line() {
    let hosts = Hosts::new();
    let identity = Identity::new(&hosts.default, "own", &["a.test"]);
    let [certificate, _] = identity.flags();
    let certificate = certificate.trim_start_matches("--").replacen('=', " = '", 1) + "'";
    let root = format!("root = {:?}", hosts.one.root());
    let path = hosts.default.beside("inrush.toml");
    let config = format!("--config={}", path.display());
    let of_a_host = |lines: &str| format!("[[host]]\nnames = 'a.test'\n{root}\n{lines}");
    for (text, expected) in [
        (format!("[[host]]\n{root}"), "has no names; expected a list such as names = [\"example.org\""),
        (
            "[[host]]\nnames = 'a.test'".to_owned(),
            "host a.test: root is missing; expected the directory to serve",
        ),
        ("[[host]]\nnames = []".to_owned(), "the host has no names"),
        (of_a_host("rot = 1"), "host a.test: 'rot' is not a setting of host; did you mean 'root'?"),
        (of_a_host("max-body = 1"), "host a.test: 'max-body' is not a setting of host"),
        (of_a_host("redirect = '/* /new/*'"), "host a.test: --redirect: /x would be redirected without end"),
        (of_a_host("cache-memory = 'much'"), "host a.test: invalid value 'much' for '--cache-memory <SIZE>'"),
        (of_a_host(&certificate), "host a.test: --tls-cert is given 1 times and --tls-key 0 times"),
        (
            of_a_host("[[host]]\nnames = ['b.test', 'A.test.']\nroot = '.'"),
            "host a.test: the name is given twice",
        ),
        (of_a_host("[host.rules]\nlisting = true"), "host a.test: 'rules' is not a setting of host"),
        (
            "[[host]]\nnames = 'http://a'".to_owned(),
            "'http://a' is not a name of a host; expected a name without scheme",
        ),
        (
            "[[host]]\nnames = 'a.test'\nroot = '/nothing'".to_owned(),
            "host a.test: cannot open /nothing as a directory",
        ),
        ("host = 'a.test'".to_owned(), "--host a.test: it is not a table; expected a TOML table such as"),
        ("[[host]\nnames".to_owned(), "line 1: "),
        (
            format!("listing = true\n{}", of_a_host("")),
            "rules outside [[host]] are those of ROOT, which is missing",
        ),
    ] {
        fs::write(&path, &text).unwrap();
        let (code, shown, said) = check(&[&config]);
        assert_eq!((code, shown.as_str(), said.lines().count()), (Some(2), "", 1), "{text}: {said}");
        assert!(said.starts_with("inrush: ") && said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn the_printed_settings_are_the_same_settings() {
    let hosts = Hosts::new();
    let config = hosts.config("redirect = '/a /b'", "tls-cert = []");
    let print = |config: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
        let printed = command.args(["serve", "--print-config", config]).timeout(PATIENCE).assert().success();
        String::from_utf8(printed.get_output().stdout.clone()).unwrap()
    };
    let printed = print(&config);
    assert!(printed.contains("\n[[host]]\nnames = [\"one.test\", \"*.one.test\"]\n"), "{printed}");
    let again = hosts.default.beside("again.toml");
    fs::write(&again, &printed).unwrap();
    assert_eq!(print(&format!("--config={}", again.display())), printed);
}
