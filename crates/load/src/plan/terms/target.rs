//! The URLs of the load.
//!
//! Accepts `http` and `https`, drops a fragment, and refuses credentials. `unix:FILE[:/PATH]` names a server at a
//! Unix-domain socket, as nginx spells it; it speaks plain HTTP, and its host is `localhost`. Nothing is percent-encoded:
//! a path is sent as given, and characters that a request line cannot contain are refused. `addressing` resolves hosts.

pub(crate) mod addressing;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::LoadError;

/// A checked `http` or `https` URL, or a path at a Unix-domain socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    secure: bool,
    /// The host without brackets: a name or an address.
    host: String,
    port: u16,
    /// Path and query; begins with `/`.
    path: String,
    /// The file of a Unix-domain socket.
    socket: Option<PathBuf>,
}

impl Url {
    /// Returns true for `https`.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The host without brackets: a name or an address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file of the server's Unix-domain socket; `None` for a server with an address.
    pub fn socket_file(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Returns true if both URLs name one server.
    pub(crate) fn has_server_of(&self, other: &Url) -> bool {
        let of = |url: &Url| (url.secure, url.authority(), url.socket.clone());
        of(self) == of(other)
    }

    /// The path and the query, beginning with `/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value of the `Host` field. The scheme's default port is left out, and an IPv6 address is in
    /// brackets.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.secure) { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(socket) = &self.socket {
            return write!(f, "unix:{}:{}", socket.display(), self.path);
        }
        write!(f, "{}://{}{}", if self.secure { "https" } else { "http" }, self.authority(), self.path)
    }
}

impl FromStr for Url {
    type Err = LoadError;

    fn from_str(given: &str) -> Result<Url, LoadError> {
        let refuse = |why| LoadError::Url { given: given.to_owned(), why };
        if given.bytes().any(|byte| byte <= b' ' || byte >= 0x7f) {
            return Err(refuse("it has a space, control or non-ASCII character; percent-encode it"));
        }
        if let Some(rest) = given.strip_prefix("unix:") {
            return at_socket(rest).map_err(refuse);
        }
        let (scheme, rest) = given.split_once("://").ok_or_else(|| refuse("the scheme is missing"))?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(refuse("the scheme is neither http nor https")),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = host_and_port(authority, default_port(secure)).map_err(refuse)?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Url { secure, host, port, path, socket: None })
    }
}

/// Parses `FILE[:/PATH]`.
fn at_socket(text: &str) -> Result<Url, &'static str> {
    let (file, path) = text.split_once(":/").map_or((text, ""), |(file, path)| (file, path));
    if file.is_empty() {
        return Err("the socket's file is missing");
    }
    let (host, path) = ("localhost".to_owned(), format!("/{path}"));
    Ok(Url { secure: false, host, port: default_port(false), path, socket: Some(PathBuf::from(file)) })
}

fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

/// Splits `name:port`, `address:port` or `[address]:port`; the port may be left out.
fn host_and_port(authority: &str, default: u16) -> Result<(String, u16), &'static str> {
    if authority.contains('@') {
        return Err("it has credentials");
    }
    let (host, port) = if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or("the bracket is not closed")?;
        host.parse::<Ipv6Addr>().map_err(|_| "no IPv6 address in the brackets")?;
        (host, rest)
    } else {
        authority.split_at(authority.find(':').unwrap_or(authority.len()))
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    let port = match port.strip_prefix(':') {
        Some(digits) => digits.parse().ok().filter(|port| *port != 0).ok_or("the port is not 1..65535")?,
        None if port.is_empty() => default,
        None => return Err("something stands behind the bracket"),
    };
    Ok((host.to_owned(), port))
}

/// Returns true for an address range that is not public: loopback, private, link-local, carrier-grade (RFC
/// 6598), the benchmarking network (RFC 2544), and their IPv6 equivalents.
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || (first == 100 && second & 0xc0 == 64)
                || (first == 198 && second & 0xfe == 18)
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, authority: &str, path: &str) {
        let url: Url = given.parse().unwrap();
        assert_eq!((url.authority().as_str(), url.path()), (authority, path));
        assert_eq!(url.to_string().parse::<Url>().unwrap(), url);
    }

    #[test]
    fn urls_are_taken_apart() {
        check("http://localhost", "localhost", "/");
        check("HTTP://localhost:80/", "localhost", "/");
        check("http://127.0.0.1:8080/a/b?c=d#e", "127.0.0.1:8080", "/a/b?c=d");
        check("http://example.test?q", "example.test", "/?q");
        check("http://[::1]:8080/x", "[::1]:8080", "/x");
        check("http://[fe80::1]", "[fe80::1]", "/");
        check("https://localhost:443/", "localhost", "/");
        check("https://localhost:80/", "localhost:80", "/");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (given, why) in [
            ("ftp://localhost/", "the scheme is neither http nor https"),
            ("localhost:8080", "the scheme is missing"),
            ("http://", "the host is missing"),
            ("http://:80/", "the host is missing"),
            ("http://host:0/", "the port is not 1..65535"),
            ("http://host:65536/", "the port is not 1..65535"),
            ("http://[::1/", "the bracket is not closed"),
            ("http://[::1]x/", "something stands behind the bracket"),
            ("http://user@host/", "it has credentials"),
            ("http://host/a b", "it has a space, control or non-ASCII character; percent-encode it"),
        ] {
            let error = given.parse::<Url>().unwrap_err().to_string();
            let expected =
                format!("URL '{given}': {why}; expected http[s]://HOST[:PORT][/PATH] or unix:FILE[:/PATH]");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn socket_files_have_paths_behind_a_colon() {
        for (given, file, path) in
            [("unix:/run/a.sock", "/run/a.sock", "/"), ("unix:a.sock:/b?c", "a.sock", "/b?c")]
        {
            check(given, "localhost", path);
            assert_eq!(given.parse::<Url>().unwrap().socket_file(), Some(Path::new(file)));
        }
        assert!("unix:".parse::<Url>().is_err() && "unix::/a".parse::<Url>().is_err());
        let [one, other] = ["unix:a", "unix:b"].map(|given| given.parse::<Url>().unwrap());
        assert!(!one.has_server_of(&other));
    }

    #[test]
    fn private_addresses_are_known() {
        for own in ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "100.64.0.1", "198.19.0.1", "::1"] {
            assert!(is_private(own.parse().unwrap()), "{own}");
        }
        for foreign in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "198.20.0.1", "2606:4700::1"] {
            assert!(!is_private(foreign.parse().unwrap()), "{foreign}");
        }
    }
}
