//! An nginx configuration moved by `inrush import nginx`: both servers run, and give the same answers to a list of
//! requests. Where they differ, both answers are asserted, and the page about the move has them in its table.
//!
//! Without nginx or curl, the tests are a printed skip.

mod differences;

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use assert_cmd::Command;
use sys::process::{Child, Program};

use super::listening::listening;
use super::sites::check;
use super::tls::{Identity, installed};
use crate::common::{Files, Server};

/// The configuration of an ordinary server, as its owner wrote it.
const CONF: &str = include_str!("nginx_move/nginx.conf");

/// Further lines for the host example.test.
const MORE: &str = "
        rewrite ^/blog/(.*)$ /docs/$1 permanent;
        location /gone/ { return 410; }
        location /local/ { allow 127.0.0.0/8; deny all; }
        location = /zone { add_header X-Zone here; return 403; }
";

/// The file of types, with folders that nginx may write to.
const TYPES: &str = "
types {
    text/html html;
    text/css css;
    text/plain txt;
    image/svg+xml svg;
    application/json json;
    application/javascript js;
    application/octet-stream bin;
}
client_body_temp_path body;
proxy_temp_path proxy;
fastcgi_temp_path fastcgi;
uwsgi_temp_path uwsgi;
scgi_temp_path scgi;
";

/// The hash of "secret", by htpasswd -m.
const PASSWORDS: &str = "ann:$apr1$6yjdwluf$ybtkxADVNQQ4uW6oepliW.\n";

/// The two addresses of a server.
#[derive(Clone, Copy)]
struct Addresses {
    http: SocketAddr,
    https: SocketAddr,
}

/// nginx, killed when dropped.
struct Nginx(#[expect(dead_code, reason = "it is killed when it is dropped")] Child);

/// A request of the list.
#[derive(Clone, Debug)]
struct Ask {
    scheme: &'static str,
    host: &'static str,
    path: String,
    arguments: Vec<String>,
}

/// An answer, as far as it matters.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

/// The fields that matter. `Expires` does not: every client that knows it knows `Cache-Control`.
const FIELDS: [&str; 8] = [
    "location",
    "content-type",
    "content-encoding",
    "content-range",
    "content-length",
    "cache-control",
    "strict-transport-security",
    "www-authenticate",
];

/// A port that nobody had a moment ago, for programs that do not say which one the kernel chose.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes both sites, certificates and passwords, readable for the user of nginx.
fn place() -> Files {
    let files = Files::new();
    let write = |path: &str, content: &str| {
        let path = files.beside(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let css = "body { color: #123456; margin: 0 auto; }\n".repeat(60);
    for (path, content) in [
        ("example/index.html", "<h1>example</h1>"),
        ("example/404.html", "<h1>nothing here</h1>"),
        ("example/about.html", "<h1>about</h1>"),
        ("example/docs/index.html", "<h1>docs</h1>"),
        ("example/docs/page.html", "<h1>page</h1>"),
        ("example/docs/notes.txt", "notes"),
        ("example/a b.txt", "a name with a space"),
        ("example/assets/app.css", &css),
        ("example/assets/logo.svg", "<svg/>"),
        ("example/data.json", "{}"),
        ("example/style.css", &css),
        ("example/fresh.css", &css),
        ("example/.hidden.txt", "hidden"),
        ("example/file.unknown", "of no known type"),
        ("example/private/index.html", "<h1>staff</h1>"),
        ("example/private/list.txt", "names"),
        ("example/intranet/page.html", "inside"),
        ("example/local/page.html", "local"),
        ("app/index.html", "<h1>app</h1>"),
        ("app/main.css", "a {}"),
        ("app/main.js", "f()"),
        ("app/downloads/file.bin", "0123456789"),
        ("htpasswd", PASSWORDS),
        ("mime.types", TYPES),
    ] {
        write(path, content);
    }
    Identity::new(&files, "example", &["example.test", "www.example.test"]);
    Identity::new(&files, "app", &["app.example.test"]);
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(files.beside("").as_path());
    for folder in ["example", "app", "example/docs", "example/assets", "example/private", "app/downloads"] {
        open(&files.beside(folder));
    }
    files
}

/// The configuration with other addresses and places.
fn configuration(here: &Path, (http, https): (u16, u16)) -> String {
    let here = here.to_str().unwrap().trim_end_matches('/');
    let changes = [
        ("listen 80;", format!("listen 127.0.0.1:{http};")),
        ("listen 443 ssl", format!("listen 127.0.0.1:{https} ssl")),
        ("/etc/ssl/", format!("{here}/")),
        ("/etc/nginx/", format!("{here}/")),
        ("/var/log/nginx/", format!("{here}/")),
        ("/srv/", format!("{here}/")),
        (".pem", ".crt".to_owned()),
        ("        location /api/", format!("{MORE}        location /api/")),
    ];
    changes.iter().fold(CONF.to_owned(), |conf, (from, to)| {
        assert!(conf.contains(from), "{from}");
        conf.replace(from, to)
    })
}

/// Writes the configuration, and starts nginx with it.
fn nginx(files: &Files) -> (Nginx, Addresses) {
    let (http, https) = (free_port(), free_port());
    let here = files.beside("");
    let conf = files.beside("nginx.conf");
    fs::write(&conf, configuration(&here, (http, https))).unwrap();
    let globals = format!("daemon off; pid {0}/pid; error_log {0}/error.log;", here.display());
    let program = Program::new("nginx").arguments([
        "-p".into(),
        here.into_os_string(),
        "-c".into(),
        conf.into_os_string(),
        "-g".into(),
        globals.into(),
    ]);
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let addresses = Addresses { http: address(http), https: address(https) };
    (Nginx(listening("nginx", program, || TcpStream::connect(addresses.https))), addresses)
}

/// Imports the configuration, and starts our server with the printed file.
fn moved(files: &Files) -> (Server, Addresses, String) {
    let conf = files.beside("nginx.conf");
    let run = Command::cargo_bin("inrush").unwrap().args(["import", "nginx"]).arg(&conf).assert().success();
    let printed = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    let config = files.beside("inrush.toml");
    fs::write(&config, &printed).unwrap();
    let config = format!("--config={}", config.display());
    let (code, _, said) = check(&[&config]);
    assert_eq!(code, Some(0), "{said}");
    let server = Server::start_without_root(&["--listen-http=127.0.0.1:0", &config]);
    let listening = server.said.lines().filter_map(|line| line.strip_prefix("listening on "));
    let all: Vec<SocketAddr> = listening.map(|address| address.parse().unwrap()).collect();
    let [https, http] = all[..] else { panic!("{}", server.said) };
    (server, Addresses { http, https }, printed)
}

/// An answer as it came.
struct Raw {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Raw {
    /// Asks one of the servers.
    fn of(addresses: Addresses, ask: &Ask) -> Raw {
        let port = addresses.of(ask.scheme).port();
        let url = format!("{}://{}:{port}{}", ask.scheme, ask.host, ask.path);
        let resolve = format!("{}:{port}:127.0.0.1", ask.host);
        let fixed = ["-sik", "--http1.1", "--path-as-is", "--max-time", "20", "--resolve", &resolve];
        let run = Command::new("curl").args(fixed).args(&ask.arguments).arg(&url).assert().success();
        let output = &run.get_output().stdout;
        let end = output.windows(4).position(|four| four == b"\r\n\r\n").expect("there is a head");
        let head = String::from_utf8(output[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Raw { status, head, body: output[end + 4..].to_vec() }
    }

    /// The values of a field, without the port of the server.
    fn value(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let values = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let values: Vec<&str> = values.collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

impl Addresses {
    fn of(&self, scheme: &str) -> SocketAddr {
        if scheme == "https" { self.https } else { self.http }
    }
}

fn ask(addresses: Addresses, ask: &Ask) -> Answer {
    let raw = Raw::of(addresses, ask);
    let has_page = raw.status == 404 && ask.host == "example.test";
    let of_its_own = !matches!(raw.status, 200 | 206) && !has_page;
    let mut fields = Vec::new();
    for name in FIELDS {
        // The page of an error is the server's own.
        if of_its_own && ["content-type", "content-length", "content-encoding"].contains(&name) {
            continue;
        }
        let port = addresses.of(ask.scheme).port();
        fields.extend(raw.value(name).map(|value| (name, comparable(name, &value, ask, port))));
    }
    let is_coded = fields.iter().any(|(name, _)| *name == "content-encoding");
    if is_coded {
        fields.retain(|(name, _)| *name != "content-length");
    }
    let has_body = !of_its_own && !is_coded && !ask.path.ends_with("/downloads/");
    Answer { status: raw.status, fields, body: has_body.then_some(raw.body) }
}

/// A value without what may differ: the order of a list, the parameters of a type, the port of a relative URL.
fn comparable(name: &str, value: &str, ask: &Ask, port: u16) -> String {
    match name {
        "content-type" => value.split(';').next().unwrap().to_owned(),
        "cache-control" => {
            value.split(", ").collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
        }
        "location" => {
            let own = if value.starts_with('/') {
                format!("{}://{}{value}", ask.scheme, ask.host)
            } else {
                value.to_owned()
            };
            own.replace(&format!(":{port}"), "")
        }
        _ => value.to_owned(),
    }
}

fn arguments(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Paths whose spelling is not canonical. Over http they are among the differences.
const SPELLINGS: [&str; 3] = ["/%61bout", "/docs/../about", "/docs//page"];

/// Paths of the host example.test.
const PATHS: &[&str] = &[
    "/",
    "/index.html",
    "/about",
    "/about.html",
    "/about?x=1",
    "/about/",
    "/docs",
    "/docs/",
    "/docs/page",
    "/docs/page.html",
    "/docs/notes.txt",
    "/docs/none",
    "/none",
    "/none/",
    "/old",
    "/old?x=1",
    "/old/",
    "/new",
    "/blog/page",
    "/blog/page?x=1",
    "/gone/",
    "/gone/x",
    "/healthz",
    "/healthz?x=1",
    "/assets",
    "/assets/app.css",
    "/assets/logo.svg",
    "/assets/none.css",
    "/data.json",
    "/style.css",
    "/a%20b.txt",
    "/%61bout",
    "/docs/../about",
    "/docs//page",
    "/private",
    "/private/",
    "/private/list.txt",
    "/private/none",
    "/intranet",
    "/intranet/page.html",
    "/intranet/none",
    "/local/page.html",
    "/local/none",
    "/404.html",
];

/// The requests that both servers answer alike.
fn requests() -> Vec<Ask> {
    let mut all = Vec::new();
    let mut add = |scheme, host, path: &str, words: &[&str]| {
        all.push(Ask { scheme, host, path: path.to_owned(), arguments: arguments(words) });
    };
    for &path in PATHS {
        add("https", "example.test", path, &[]);
        add("https", "example.test", path, &["-I"]);
        add("https", "example.test", path, &["-H", "If-None-Match: \"another\""]);
        if !SPELLINGS.contains(&path) {
            add("http", "example.test", path, &[]);
        }
    }
    for path in ["/about", "/assets/app.css", "/docs/notes.txt", "/style.css"] {
        for range in ["0-3", "2-", "-2", "99999-"] {
            add("https", "example.test", path, &["-r", range]);
        }
    }
    for path in ["/private/", "/private/list.txt", "/private/none", "/private"] {
        add("https", "example.test", path, &["-u", "ann:secret"]);
    }
    for wrong in ["ann:wrong", "bob:secret", "ann:"] {
        add("https", "example.test", "/private/list.txt", &["-u", wrong]);
    }
    for path in ["/style.css", "/assets/app.css", "/about", "/data.json"] {
        add("https", "example.test", path, &["-H", "Accept-Encoding: gzip"]);
    }
    for path in ["/", "/about", "/a/b?c=d", "/healthz"] {
        for (scheme, host) in [
            ("https", "www.example.test"),
            ("http", "www.example.test"),
            ("http", "app.example.test"),
            ("http", "unknown.test"),
            ("https", "unknown.test"),
        ] {
            add(scheme, host, path, &[]);
        }
    }
    for path in
        ["/", "/any/route", "/main.css", "/downloads/", "/downloads/file.bin", "/downloads/none", "/any?x=1"]
    {
        add("https", "app.example.test", path, &[]);
        add("https", "app.example.test", path, &["-I"]);
    }
    add("https", "example.test", "/about", &["-d", "x=1"]);
    add("https", "example.test", "/about", &["-X", "DELETE"]);
    all
}

/// Takes differences that many answers have out of both. Each must be there; the page about the move explains it.
fn explain(ask: &Ask, their: &mut Answer, our: &mut Answer) {
    let is_main = ask.scheme == "https" && ask.host == "example.test";
    let take = |answer: &mut Answer, name: &str| {
        let place = answer.fields.iter().position(|(found, _)| *found == name);
        place.map(|place| answer.fields.remove(place).1)
    };
    let is_in = |folders: &[&str]| folders.iter().any(|folder| ask.path.starts_with(folder));
    let hsts = "strict-transport-security";
    if is_main && our.status == 416 {
        // nginx sends the fields of a file, and those of the server twice.
        take(their, "cache-control");
        let (theirs, ours) = (take(their, hsts), take(our, hsts).unwrap());
        assert!(theirs.is_none_or(|twice| twice == format!("{ours}, {ours}")));
    } else if is_main && our.status == 405 {
        assert!(take(their, hsts).is_some() && take(our, hsts).is_none(), "a refused method has no fields");
    } else if is_main && is_in(&["/assets/"]) && our.status < 400 {
        assert!(take(their, hsts).is_none() && take(our, hsts).is_some(), "a location loses fields in nginx");
    } else if ask.host == "app.example.test" && ask.scheme == "https" && ask.path == "/downloads/" {
        assert!(take(their, "content-length").is_none() && take(our, "content-length").is_some());
    }
}

/// Asks until a file has a compressed form, which takes a thread some time.
fn wait_until_coded(addresses: Addresses, path: &str, coding: &str) {
    let words = arguments(&["-H", &format!("Accept-Encoding: {coding}")]);
    let request = Ask { scheme: "https", host: "example.test", path: path.to_owned(), arguments: words };
    let is_coded = || Raw::of(addresses, &request).value("content-encoding").is_some();
    assert!((0..1000).any(|_| is_coded()), "{path} is never compressed");
}

#[test]
fn moved_configuration_gives_the_answers_of_nginx() {
    if !installed("nginx") || !installed("curl") {
        return;
    }
    let files = place();
    let (_nginx, theirs) = nginx(&files);
    let (server, ours, printed) = moved(&files);
    for path in ["/style.css", "/assets/app.css"] {
        wait_until_coded(ours, path, "gzip");
    }
    let requests = requests();
    assert!(requests.len() >= 200, "{}", requests.len());
    let mut differ = Vec::new();
    for request in &requests {
        let (mut their, mut our) = (ask(theirs, request), ask(ours, request));
        explain(request, &mut their, &mut our);
        if their != our {
            differ.push(format!("{request:?}\n  nginx: {their:?}\n  ours:  {our:?}"));
        }
    }
    assert!(
        differ.is_empty(),
        "{} of {} differ:\n{}\n{printed}",
        differ.len(),
        requests.len(),
        differ.join("\n")
    );
    server.stop_well();
}

#[test]
fn imported_file_names_what_has_no_equal() {
    let files = Files::new();
    let conf = files.beside("nginx.conf");
    fs::write(&conf, CONF).unwrap();
    fs::write(files.beside("mime.types"), TYPES).unwrap();
    let run = Command::cargo_bin("inrush").unwrap().args(["import", "nginx"]).arg(&conf).assert().success();
    let printed = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    let notes: Vec<&str> = printed.lines().filter(|line| line.contains("nginx.conf:")).collect();
    let named: Vec<&str> = notes.iter().filter_map(|note| note.split(": ").nth(1)).collect();
    assert_eq!(named, ["proxy_pass"], "{printed}");
}
