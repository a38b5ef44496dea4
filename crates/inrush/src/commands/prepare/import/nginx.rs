//! `inrush import nginx`: from an nginx configuration to settings of ours.
//!
//! Owns the choice of hosts. nginx chooses a `server` block by port and name, and ours chooses a host by name alone. So
//! each group of names that has the same block over http and the same block over https becomes a host. A block for http
//! that only redirects becomes a redirect `http:` of its hosts. [`directives`] reads the file, [`content`] turns a block
//! into the settings of a host, and [`equals`] knows which directives need nothing and which have no equal. [`expressions`]
//! reads the regular expressions of locations.

mod content;
mod directives;
mod equals;
mod expressions;
mod rates;

use std::path::Path;

use self::content::Content;
use self::directives::Directive;
use super::{Imported, Settings};

/// Directives of one level. Several levels are in order: `http`, `server`, `location`.
type Level<'a> = &'a [Directive];

/// Reads an nginx configuration.
///
/// # Errors
/// A description of the mistake, with the file and the line.
pub(super) fn import(path: &Path) -> Result<Imported, String> {
    let all = directives::read(path)?;
    let http = all.iter().find(|directive| directive.name() == "http").map(Directive::inside);
    // A file of conf.d or sites-enabled has servers alone.
    let (main, http): (Level<'_>, Level<'_>) = http.map_or((&[], &all), |http| (&all, http));
    let mut imported = Imported::default();
    let mut servers = Vec::new();
    for directive in main.iter().chain(http) {
        match directive.name() {
            "server" if directive.block.is_some() => servers.push(directive),
            "http" => {}
            _ => server_setting(directive, &mut imported),
        }
    }
    if servers.is_empty() {
        return Err(format!(
            "{}: it has no server block; expected an nginx configuration with one",
            path.display()
        ));
    }
    let servers: Vec<Server<'_>> =
        servers.into_iter().filter_map(|block| Server::new(block, http, &mut imported)).collect();
    if servers.is_empty() {
        return Err(format!(
            "{}: no server block listens on a TCP port; expected one that does",
            path.display()
        ));
    }
    listens(&servers, &mut imported.server);
    hosts(&servers, &mut imported);
    Ok(imported)
}

/// Directives that nginx takes in each block, and ours once for the whole server.
const IS_SHARED: &[&str] = &[
    "client_body_timeout",
    "client_header_timeout",
    "client_max_body_size",
    "keepalive_timeout",
    "send_timeout",
];

/// A setting of the whole server.
fn server_setting(directive: &Directive, imported: &mut Imported) {
    let (values, settings) = (directive.parameters(), &mut imported.server);
    let setting: (_, toml::Value) = match (directive.name(), &values[..]) {
        ("user", [user, group @ ..]) => ("user", [&[*user], group].concat().join(":").into()),
        ("worker_processes", [count]) if count.parse::<i64>().is_ok() => {
            ("workers", count.parse::<i64>().unwrap_or_default().into())
        }
        (name, [value, ..])
            if IS_SHARED.contains(&name)
                && name.ends_with("_timeout")
                && equals::seconds(value) == Some(0) =>
        {
            let reason = "a time is longer than 0 here";
            return imported.notes.push(equals::note_because(directive, reason));
        }
        ("keepalive_timeout", [value, ..]) => ("idle-timeout", equals::time(value).into()),
        ("client_header_timeout", [value]) => ("header-timeout", equals::time(value).into()),
        ("client_body_timeout", [value]) => ("body-timeout", equals::time(value).into()),
        ("send_timeout", [value]) => ("write-timeout", equals::time(value).into()),
        ("client_max_body_size", [size]) => ("max-body", equals::size(size).into()),
        ("access_log", ["off", ..]) => return,
        ("access_log", [file, ..]) => ("access-log", (*file).into()),
        _ if content::is_handled(directive) || equals::needs_nothing(directive) => return,
        _ => return imported.notes.push(equals::note(directive)),
    };
    if !settings.set(setting.0, setting.1) {
        let reason = "all hosts share this setting, which an earlier line has set";
        imported.notes.push(equals::note_because(directive, reason));
    }
}

/// An address that a server listens on.
struct Listen {
    address: String,
    has_tls: bool,
    is_default: bool,
}

/// A `server` block.
struct Server<'a> {
    place: &'a str,
    listens: Vec<Listen>,
    names: Vec<String>,
    content: Content,
}

impl<'a> Server<'a> {
    /// Reads a block; `None` if Inrush can listen on none of its addresses.
    fn new(block: &'a Directive, http: Level<'a>, imported: &mut Imported) -> Option<Server<'a>> {
        let inside = block.inside();
        let mut listens = Vec::new();
        let given = || inside.iter().filter(|directive| directive.name() == "listen");
        for listen in given() {
            let parameters = listen.parameters();
            if parameters.contains(&"proxy_protocol") {
                let reason = "see --proxy-protocol-from, which names the load balancers";
                imported.notes.push(equals::note_because(listen, reason));
            }
            match Listen::parse(&parameters) {
                Some(listen) => listens.push(listen),
                None => imported.notes.push(equals::note(listen)),
            }
        }
        if given().next().is_none() {
            listens.extend(Listen::parse(&["80"]));
        }
        if listens.is_empty() {
            let reason = "it listens on no TCP port, and is left out";
            imported.notes.push(equals::note_because(block, reason));
            return None;
        }
        let mut names = Vec::new();
        for directive in inside.iter().filter(|directive| directive.name() == "server_name") {
            for name in directive.parameters() {
                match name {
                    "_" | "" => {}
                    dotted if dotted.starts_with('.') => {
                        names.extend([dotted[1..].to_owned(), format!("*{dotted}")])
                    }
                    name if name.parse::<site::HostName>().is_ok() => names.push(name.to_owned()),
                    name => imported
                        .notes
                        .push(format!("{}: the name {name}: expected a name, or *.NAME", directive.place)),
                }
            }
        }
        for directive in inside.iter().filter(|directive| IS_SHARED.contains(&directive.name())) {
            server_setting(directive, imported);
        }
        let content = Content::of(http, inside, &mut imported.notes);
        Some(Server { place: &block.place, listens, names, content })
    }

    fn listens_to(&self, has_tls: bool) -> bool {
        self.listens.iter().any(|listen| listen.has_tls == has_tls)
    }
}

impl Listen {
    /// Parses the parameters of `listen`; `None` for a socket file, and for QUIC.
    fn parse(parameters: &[&str]) -> Option<Listen> {
        let (address, options) = parameters.split_first()?;
        if address.starts_with("unix:") || options.contains(&"quic") {
            return None;
        }
        let address = match address.strip_prefix("*:") {
            Some(port) => format!(":{port}"),
            None if address.bytes().all(|byte| byte.is_ascii_digit()) => format!(":{address}"),
            None if address.ends_with(']') || !address.contains(':') => format!("{address}:80"),
            None => (*address).to_owned(),
        };
        let has = |option: &str| options.contains(&option);
        Some(Listen { address, has_tls: has("ssl"), is_default: has("default_server") || has("default") })
    }
}

/// The addresses of all servers. `[::]` listens for IPv4 too.
fn listens(servers: &[Server<'_>], settings: &mut Settings) {
    let all: Vec<&Listen> = servers.iter().flat_map(|server| &server.listens).collect();
    let has_tls = all.iter().any(|listen| listen.has_tls);
    for listen in &all {
        let both = format!("[::]{}", listen.address);
        if listen.address.starts_with(':') && all.iter().any(|other| other.address == both) {
            continue;
        }
        settings
            .add(if listen.has_tls || !has_tls { "listen" } else { "listen-http" }, listen.address.clone());
    }
}

/// The name of a default host without a folder. RFC 6761 reserves it.
const OF_NO_NAME: &str = "default.invalid";

/// The blocks that answer for a name: over http, and over https.
type Pair = [Option<usize>; 2];

fn hosts(servers: &[Server<'_>], imported: &mut Imported) {
    let default_of = |has_tls: bool| {
        let is_default = |server: &Server<'_>| {
            server.listens.iter().any(|listen| listen.has_tls == has_tls && listen.is_default)
        };
        let first = servers.iter().position(|server| server.listens_to(has_tls));
        servers.iter().position(is_default).or(first)
    };
    let defaults: Pair = [default_of(false), default_of(true)];
    let mut groups: Vec<(Pair, Vec<&str>)> = Vec::new();
    for name in servers.iter().flat_map(|server| &server.names) {
        let of = |has_tls: bool| {
            let is_it = |server: &Server<'_>| server.listens_to(has_tls) && server.names.contains(name);
            servers.iter().position(is_it)
        };
        // Over http, a name that only https knows gets the default block, as every unknown name does.
        let pair = [of(false).or(defaults[0]), of(true)];
        match groups.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, names)) if names.contains(&name.as_str()) => {}
            Some((_, names)) => names.push(name),
            None => groups.push((pair, vec![name])),
        }
    }
    // The first host is the default, unless there is one outside of all.
    match groups.iter().position(|(pair, _)| *pair == defaults) {
        Some(place) => groups[..=place].rotate_right(1),
        None => {
            let settings = host(servers, defaults, &mut imported.notes);
            let answers_alone = settings.has("redirect") || settings.has("respond");
            if answers_alone && !settings.has("root") && !groups.is_empty() {
                // The settings outside of all hosts are those of a folder.
                let mut named = Settings::default();
                named.add("names", OF_NO_NAME);
                named.extend(&settings);
                imported.hosts.push(named);
            } else {
                imported.server.extend(&settings);
            }
        }
    }
    for (pair, names) in groups {
        let mut settings = Settings::default();
        names.into_iter().for_each(|name| settings.add("names", name));
        settings.extend(&host(servers, pair, &mut imported.notes));
        imported.hosts.push(settings);
    }
}

/// The settings of a host with these blocks.
fn host(servers: &[Server<'_>], pair: Pair, notes: &mut Vec<String>) -> Settings {
    let (plain, secure) = match pair {
        [Some(plain), Some(secure)] if plain != secure => (&servers[plain], &servers[secure]),
        [one, other] => {
            let only = other.or(one).expect("a pair has a block");
            return servers[only].content.settings.clone();
        }
    };
    let mut settings = Settings::default();
    match &plain.content.redirects_to {
        // Over https there is the same redirect.
        Some(target) if secure.content.redirects_to.as_ref() == Some(target) => {}
        Some(target) => settings.add("redirect", format!("http:/* {target}")),
        None => notes.push(format!(
            "{}: server: over http it has another content than over https, which alone is imported; a host has one",
            plain.place
        )),
    }
    settings.extend(&secure.content.settings);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The printed file, without the comment at its head.
    fn imported(text: &str) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, text).unwrap();
        let imported = import(&path).unwrap();
        let here = format!("{}:", path.display());
        let notes = imported.notes.iter().map(|note| note.replace(&here, "")).collect();
        (imported.text("x").split_once("\n\n").unwrap().1.to_owned(), notes)
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let (printed, notes) = imported(text);
        let lines = |text: &str| {
            text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(lines(&printed), lines(expected), "{notes:?}");
        assert_eq!(notes, Vec::<String>::new());
    }

    #[test]
    fn one_static_site_is_a_root_and_an_address() {
        check(
            "server { listen 8080; root /srv/www; index a.html b.html; keepalive_timeout 75 80; }",
            "idle-timeout = \"75s\"
             listen = \":8080\"
             root = \"/srv/www\"
             index = [
                 \"a.html\",
                 \"b.html\",
             ]",
        );
    }

    #[test]
    fn http_redirect_becomes_a_rule_of_its_hosts() {
        check(
            "server { listen 80; listen [::]:80; server_name a.test www.a.test; return 301 https://a.test$request_uri; }
             server { listen 443 ssl; server_name www.a.test; ssl_certificate c; ssl_certificate_key k;
                      return 301 https://a.test$request_uri; }
             server { listen 443 ssl; server_name a.test; root /a; ssl_certificate c; ssl_certificate_key k; }",
            "listen-http = \"[::]:80\"
             listen = \":443\"
             [[host]]
             names = \"www.a.test\"
             tls-cert = \"c\"
             tls-key = \"k\"
             redirect = \"/* https://a.test/* 301\"
             [[host]]
             names = \"a.test\"
             redirect = \"http:/* https://a.test/* 301\"
             root = \"/a\"
             tls-cert = \"c\"
             tls-key = \"k\"",
        );
    }

    #[test]
    fn default_block_without_a_name_is_the_first_host() {
        check(
            "server { listen 80 default_server; server_name _; return 404; }
             server { listen 80; server_name .a.test; root /a; }",
            "listen = \":80\"
             [[host]]
             names = \"default.invalid\"
             respond = \"/* 404\"
             [[host]]
             names = [
                 \"a.test\",
                 \"*.a.test\",
             ]
             root = \"/a\"",
        );
    }

    #[test]
    fn each_directive_without_an_equal_is_named_once() {
        let (_, notes) = imported(
            "http {
                 upstream app { server 127.0.0.1:3000; }
                 server { listen unix:/x; listen 80; server_name ~^a; root /a;
                     location /api/ { proxy_pass http://app; proxy_set_header Host $host; }
                     location ~ ^/(a|b)/c { expires 1d; } } }",
        );
        let starts = [
            "2: upstream:",
            "3: listen:",
            "3: the name ~^a:",
            "4: proxy_pass:",
            "4: proxy_set_header:",
            "5: location:",
        ];
        for start in starts {
            assert_eq!(notes.iter().filter(|note| note.starts_with(start)).count(), 1, "{start} {notes:#?}");
        }
        assert_eq!(notes.len(), starts.len(), "{notes:#?}");
        assert!(notes.iter().any(|note| note.contains("inrush guard")), "{notes:?}");
    }

    #[test]
    fn block_without_a_tcp_port_is_left_out() {
        for listen in ["listen 443 quic reuseport;", "listen unix:/x;"] {
            let (printed, notes) = imported(&format!(
                "server {{ {listen} server_name a.test; root /a; }}
                 server {{ listen 443 ssl; server_name b.test; root /b; }}"
            ));
            assert!(printed.starts_with("listen = \":443\"\n"), "{printed}");
            assert!(!printed.contains("80") && !printed.contains("a.test"), "{printed}");
            assert_eq!(notes.len(), 2, "{notes:?}");
            assert!(notes[1].contains("it listens on no TCP port, and is left out"), "{notes:?}");
        }
    }

    #[test]
    fn setting_that_hosts_share_is_taken_once() {
        let (printed, notes) = imported(
            "send_timeout 5; server { listen 80; send_timeout 5; root /a; }
             server { listen 80; server_name b.test; root /b; send_timeout 7; }",
        );
        assert!(printed.starts_with("write-timeout = \"5s\"\n"), "{printed}");
        assert_eq!(
            notes,
            ["2: send_timeout: 7: all hosts share this setting, which an earlier line has set"]
        );
    }

    #[test]
    fn file_without_a_server_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, "events {}").unwrap();
        assert!(import(&path).unwrap_err().contains("it has no server block"));
        std::fs::write(&path, "server { listen 443 quic; }").unwrap();
        assert!(import(&path).unwrap_err().contains("no server block listens on a TCP port"));
        assert!(import(&folder.path().join("none")).unwrap_err().contains("cannot read it"));
    }
}
