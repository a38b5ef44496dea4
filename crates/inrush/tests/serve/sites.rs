//! The rules of a site end to end: redirects, header fields, pages, listings; on every architecture, over HTTP/1.1 and
//! HTTP/2, changed while the server runs, and checked without a server.

use assert_cmd::Command;
use rustix::process::Signal;

use super::architectures::on_every_architecture;
use super::tls::{Identity, installed};
use crate::common::{Files, PATIENCE, Server};

/// Rules in a config file, with answers that show them.
const RULES: &str = r#"
listing = true
redirect = ["/old/* /new/* 301", "/away/* https://example.org/*"]
header = [
    "/* X-Frame-Options: DENY",
    "/small.bin Cache-Control: max-age=31536000, immutable",
    "/small.bin Access-Control-Allow-Origin: *",
]
error-page = "404 /errors/404.html"
"#;

fn with_config(text: &str) -> (Files, String) {
    let files = Files::new();
    std::fs::create_dir_all(files.path("/errors")).unwrap();
    files.write("/errors/404.html", "<p>Nothing here.");
    std::fs::write(files.beside("inrush.toml"), text).unwrap();
    let config = format!("--config={}", files.beside("inrush.toml").display());
    (files, config)
}

#[test]
fn the_rules_hold_on_every_architecture() {
    on_every_architecture(|flags| {
        let (files, config) = with_config(RULES);
        let server = Server::start(&files.root(), &[flags, &[&config]].concat());
        // Twice: from the disk and from the cache.
        for _ in 0..2 {
            let get = |path: &str| server.client().get(path);
            let moved = get("/old/a%20b?c=d");
            assert_eq!((moved.status, moved.field("Location")), (301, Some("/new/a%20b?c=d")));
            assert_eq!(
                get("/away//evil.example").field("Location"),
                Some("https://example.org/evil.example")
            );
            let file = get(Files::SMALL.0);
            assert_eq!((file.status, file.field("X-Frame-Options")), (200, Some("DENY")));
            assert_eq!(file.field("Cache-Control"), Some("max-age=31536000, immutable"));
            assert_eq!(file.field("Access-Control-Allow-Origin"), Some("*"));
            let absent = get("/nothing");
            assert_eq!((absent.status, absent.text()), (404, "<p>Nothing here."));
            assert_eq!((absent.field("X-Frame-Options"), absent.field("ETag")), (Some("DENY"), None));
            let listed = get("/folder/");
            assert_eq!(listed.status, 200);
            assert!(listed.text().contains("<a href=\"./large.bin\">large.bin</a>"), "{}", listed.text());
            assert_eq!(get("/folder").status, 301);
        }
        server.stop_well();
    });
}

#[test]
fn the_fallback_answers_on_every_architecture() {
    on_every_architecture(|flags| {
        let files = Files::new();
        let server = Server::start(&files.root(), &[flags, &["--fallback=/index.html"]].concat());
        let own = server.client().get("/index.html");
        for path in ["/app/7", "/app/", "/folder/"] {
            let answer = server.client().get(path);
            assert_eq!((answer.status, answer.text()), (200, own.text()), "{path}");
            assert_eq!(answer.field("ETag"), own.field("ETag"), "{path}");
        }
        assert_eq!(server.client().get("/.git/config").status, 404);
        server.stop_well();
    });
}

#[test]
fn both_versions_of_http_give_the_same_answers() {
    if !installed("curl") {
        return;
    }
    let (files, config) = with_config(RULES);
    let server = Server::start(&files.root(), &[&config]);
    let ask = |version: &str, method: &str, path: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--include", version, "--path-as-is"]);
        curl.args(if method == "HEAD" { vec!["--head"] } else { vec!["--request", method] });
        curl.arg(format!("http://{}{path}", server.address));
        let said = curl.timeout(PATIENCE).assert().success().get_output().stdout.clone();
        let said = String::from_utf8(said).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().to_owned();
        let fields = head.lines().skip(1).map(str::to_ascii_lowercase);
        let mut fields: Vec<String> = fields.filter(|field| !field.starts_with("date:")).collect();
        fields.sort();
        (status, fields, body.to_owned())
    };
    for (method, path) in [
        ("GET", "/old/a/../b?c"),
        ("GET", "/away/x"),
        ("GET", "/nothing"),
        ("HEAD", "/nothing"),
        ("GET", "/folder/"),
        ("HEAD", "/folder/"),
        ("OPTIONS", "/empty.txt"),
        ("POST", "/old/a"),
        ("GET", "/empty.txt"),
    ] {
        let first = ask("--http1.1", method, path);
        assert_eq!(first, ask("--http2-prior-knowledge", method, path), "{method} {path}");
    }
    server.stop_well();
}

#[test]
fn rules_change_at_a_signal_and_broken_ones_do_not() {
    for flags in [&["--arch=per-core", "--workers=2"][..], &["--arch=mp", "--workers=3"], &["--arch=amped"]] {
        println!("{flags:?}");
        let (files, config) = with_config("redirect = '/old /first'\n");
        let mut server = Server::start(&files.root(), &[flags, &[&config]].concat());
        assert_eq!(server.client().get("/old").field("Location"), Some("/first"));
        let hang_up_with = |server: &Server, text: &str| {
            std::fs::write(files.beside("newest.toml"), text).unwrap();
            std::fs::rename(files.beside("newest.toml"), files.beside("inrush.toml")).unwrap();
            server.signal(Signal::HUP);
        };
        hang_up_with(&server, "redirect = ['/old /second', '/old']\n");
        let said = server.says();
        assert!(said.starts_with("inrush: the configuration stays as it was: "), "{said}");
        assert!(said.contains("expected PATH TARGET [STATUS]") && said.lines().count() == 1, "{said}");
        assert_eq!(server.client().get("/old").field("Location"), Some("/first"));
        hang_up_with(&server, "redirect = ['/old /new', '/new /old']\n");
        let said = server.says();
        assert!(said.contains("stays as it was: --redirect: /old would be redirected without end"), "{said}");
        hang_up_with(&server, "redirect = '/old /third'\nlisting = true\n");
        assert_eq!(server.says(), "inrush: changed: listing, redirect\n");
        for path in ["/old", "/folder/"] {
            server.eventually_of("the new rules", |server| {
                let answer = server.client().get(path);
                answer.status == 200 || answer.field("Location") == Some("/third")
            });
        }
        server.stop_well();
    }
}

/// Runs `serve --check`. Returns the exit code, stdout and stderr.
pub fn check(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
    let output = command.args(["serve", "--check"]).args(arguments).timeout(PATIENCE).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn check_shows_the_site_beside_a_running_server() {
    let (files, config) = with_config(RULES);
    let identity = Identity::new(&files, "site", &["example.org"]);
    let server = Server::start(&files.root(), &[]);
    let root = files.root();
    let root = root.to_str().unwrap();
    let log = files.beside("access.log");
    let [certificate, key] = identity.flags();
    let listen = format!("--listen={}", server.address);
    let access_log = format!("--access-log={}", log.display());
    let (code, shown, said) =
        check(&[&config, &certificate, &key, &listen, &access_log, "--fallback=/app.html", root]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert_eq!(
        shown,
        format!(
            "would serve {root} at https://{}/\nTLS 1.2 and 1.3, with certificates for example.org\n\
             start files: index.html; other folders are listed\n\
             rules: 2 redirects, 3 header fields, 1 error pages, fallback /app.html\n\
             access log: {}\n\
             warning: --fallback: there is no file /app.html in the folder\nthe configuration has no mistakes\n",
            server.address,
            log.display()
        )
    );
    assert!(!log.exists());
    server.stop_well();
}

#[test]
fn check_ends_with_the_line_of_the_server() {
    let (files, config) = with_config("header = '/* Content-Length: 5'\n");
    let root = files.root();
    let root = root.to_str().unwrap();
    std::fs::write(files.beside("text"), "text").unwrap();
    let text = files.beside("text").display().to_string();
    let key = format!("--tls-key={text}");
    let certificate = format!("--tls-cert={text}");
    let log = format!("--access-log={text}/log");
    for (arguments, expected) in [
        (&[config.as_str(), root][..], "the server itself sets Content-Length"),
        (&["--redirect=/a //b", root], "neither a path nor a URL"),
        (&["--redirect=/a /b 200", root], "expected 301, 302, 303, 307 or 308"),
        (&["--redirect=/* /new/*", root], "/x would be redirected without end"),
        (&["--error-page=404 /../x", root], "expected a path below the root"),
        (&["--fallback=x", root], "expected a path below the root"),
        (&["--index=a/b", root], "without a slash"),
        (&["--header=/* X", root], "expected PATH NAME: VALUE"),
        (&["--config=/nothing", root], "--config /nothing: cannot read it"),
        (&["/nothing"], "cannot open /nothing as a directory"),
        (&[&certificate, &key, root], &text),
        (&[&log, root], &text),
        (&["--arch=mp", "--dispatch=epoll", root], "mp waits for one descriptor"),
        (&["--user=nobody-of-this-name", root], "--user nobody-of-this-name"),
    ] {
        let (code, shown, said) = check(arguments);
        assert_eq!((code, shown.as_str(), said.lines().count()), (Some(2), "", 1), "{arguments:?}: {said}");
        assert!(said.starts_with("inrush: ") && said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn start_page_hint_names_a_working_url() {
    let files = Files::new();
    std::fs::remove_file(files.path("/index.html")).unwrap();
    files.write("/.hidden", "x");
    files.write("/a b.txt", "x");
    let server = Server::start(&files.root(), &[]);
    let hint = server.said.lines().find(|line| line.starts_with("inrush: ")).unwrap();
    let url = format!("http://{}/a%20b.txt", server.address);
    assert!(hint.contains(&url) && hint.contains("--listing") && hint.contains("--index NAME"), "{hint}");
    assert_eq!(server.client().get("/a%20b.txt").status, 200);
    server.stop_well();
    for flag in ["--listing", "--redirect=/ /a", "--fallback=/small.bin", "--index=small.bin"] {
        let server = Server::start(&files.root(), &[flag]);
        assert!(!server.said.contains("inrush: "), "{flag}: {}", server.said);
        assert_ne!(server.client().get("/").status, 404, "{flag}");
        server.stop_well();
    }
}
