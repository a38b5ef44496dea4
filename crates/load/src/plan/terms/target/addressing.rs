//! The addresses that connections go to, from the URL's server and the flags that redirect it.
//!
//! As in curl, `--connect-to` replaces host and port first, and `--resolve` then answers in place of the resolver. Neither
//! changes a request or its server name in TLS.
//!
//! A name is resolved when the run starts and never again. All addresses of one family are the target, and each connect
//! goes to the next of them. With addresses of both families, the target is the first family, in the resolver's order,
//! that accepts a connect: many servers named `localhost` have no IPv6.

use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use base::Nanos;
use serde::{Deserialize, Serialize};

use crate::error::LoadError;
use crate::plan::terms::target::{Url, is_private};

/// The most addresses that a description of the target names.
const SHOWN_MAX: usize = 3;

/// The settings that decide about the addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addressing {
    /// Other hosts and ports to connect to; the first that matches the URL counts.
    pub connect_to: Vec<ConnectTo>,
    /// Addresses of hosts; the first that matches counts.
    pub resolve: Vec<Resolve>,
    /// The family of the addresses; `None` accepts both.
    pub family: Option<Family>,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// `HOST:PORT:HOST2:PORT2`: connections to the first go to the second. Empty parts stand for any, or for no change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectTo {
    given: String,
    from: (String, Option<u16>),
    to: (String, Option<u16>),
}

/// `HOST:PORT:ADDRESS[,ADDRESS]`: the addresses of a host; `*` stands for every host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    given: String,
    host: String,
    port: u16,
    addresses: Vec<IpAddr>,
}

/// The text is not a setting of the addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not a redirection: expected {expected}")]
pub struct NotARedirection {
    given: String,
    expected: &'static str,
}

/// The destination of the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Addresses of one family, at least one. Connects go to each in turn.
    Internet(Vec<SocketAddr>),
    /// The file of a Unix-domain socket.
    File(PathBuf),
}

impl Target {
    /// The first address; `None` for a socket file.
    pub fn first(&self) -> Option<SocketAddr> {
        self.addresses().first().copied()
    }

    /// All addresses; none for a socket file.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        match self {
            Target::Internet(addresses) => addresses,
            Target::File(_) => &[],
        }
    }

    /// Returns true if every address is on this machine.
    pub fn is_local(&self) -> bool {
        self.addresses().iter().all(|address| address.ip().is_loopback())
    }

    /// The first address that is public.
    pub(crate) fn first_public(&self) -> Option<IpAddr> {
        self.addresses().iter().map(SocketAddr::ip).find(|address| !is_private(*address))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = match self {
            Target::Internet(addresses) => addresses,
            Target::File(path) => return write!(f, "unix:{}", path.display()),
        };
        let shown: Vec<String> = addresses.iter().take(SHOWN_MAX).map(SocketAddr::to_string).collect();
        f.write_str(&shown.join(", "))?;
        match addresses.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl Addressing {
    /// The target of a URL. May block on the resolver; makes up to two connects of at most `timeout` for a host with
    /// addresses of both families.
    ///
    /// # Errors
    /// [`LoadError::Resolve`]; [`LoadError::Redirection`] for a setting that does not match the URL.
    pub(crate) fn target(&self, url: &Url, timeout: Nanos) -> Result<Target, LoadError> {
        if let Some(path) = url.socket_file() {
            return match self.first_setting() {
                None => Ok(Target::File(path.to_owned())),
                Some(setting) => {
                    Err(LoadError::Redirection { setting, why: "a socket file has no address".to_owned() })
                }
            };
        }
        let (host, port) = self.redirected(url)?;
        let mut addresses = self.addresses(&host, port)?;
        if let Some(family) = self.family {
            addresses.retain(|address| address.is_ipv4() == (family == Family::V4));
            if addresses.is_empty() {
                let missing = std::io::Error::other(format!("it has no {family} address"));
                return Err(LoadError::Resolve { host, source: missing });
            }
        }
        Ok(Target::Internet(of_one_family(addresses, timeout)))
    }

    /// The first setting that is given.
    fn first_setting(&self) -> Option<String> {
        let connect_to = self.connect_to.first().map(|setting| format!("--connect-to {setting}"));
        let resolve = || self.resolve.first().map(|setting| format!("--resolve {setting}"));
        let family = || self.family.map(|family| if family == Family::V4 { "-4" } else { "-6" }.to_owned());
        connect_to.or_else(resolve).or_else(family)
    }

    /// The host and the port to connect to. A run has one server, so a setting for another one is a mistake.
    fn redirected(&self, url: &Url) -> Result<(String, u16), LoadError> {
        let asked = (url.host(), url.port());
        let Some(first) = self.connect_to.first() else { return Ok((asked.0.to_owned(), asked.1)) };
        let matching = self.connect_to.iter().find(|setting| setting.applies_to(asked.0, asked.1));
        let found = matching.ok_or_else(|| LoadError::Redirection {
            setting: format!("--connect-to {first}"),
            why: format!("the run's server is {}:{}", asked.0, asked.1),
        })?;
        let (host, port) = (&found.to.0, found.to.1);
        let host = if host.is_empty() { asked.0 } else { host };
        Ok((host.to_owned(), port.unwrap_or(asked.1)))
    }

    /// The addresses of a host, each once, at least one.
    fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, LoadError> {
        if let Some(found) = self.resolve.iter().find(|setting| setting.applies_to(host, port)) {
            return Ok(found.addresses.iter().map(|address| SocketAddr::new(*address, port)).collect());
        }
        if let Some(first) = self.resolve.first() {
            let (setting, why) = (format!("--resolve {first}"), format!("the run connects to {host}:{port}"));
            return Err(LoadError::Redirection { setting, why });
        }
        let failed = |source| LoadError::Resolve { host: host.to_owned(), source };
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in (host, port).to_socket_addrs().map_err(failed)? {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() { Err(failed(std::io::ErrorKind::NotFound.into())) } else { Ok(addresses) }
    }
}

/// The addresses of the first family with an address that accepts a connect; of the first family if none does.
fn of_one_family(mut addresses: Vec<SocketAddr>, timeout: Nanos) -> Vec<SocketAddr> {
    let first = addresses[0].is_ipv4();
    if addresses.iter().any(|address| address.is_ipv4() != first) {
        let timeout = Duration::from(timeout);
        let firsts = [first, !first].map(|family| addresses.iter().find(|found| found.is_ipv4() == family));
        let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, timeout).is_ok();
        let family = firsts.into_iter().flatten().find(answers).map_or(first, SocketAddr::is_ipv4);
        addresses.retain(|address| address.is_ipv4() == family);
    }
    addresses
}

impl ConnectTo {
    fn applies_to(&self, host: &str, port: u16) -> bool {
        let (own_host, own_port) = &self.from;
        let host_fits = own_host.is_empty() || own_host.eq_ignore_ascii_case(host);
        host_fits && own_port.is_none_or(|own| own == port)
    }
}

impl Resolve {
    fn applies_to(&self, host: &str, port: u16) -> bool {
        self.port == port && (self.host == "*" || self.host.eq_ignore_ascii_case(host))
    }
}

/// Takes a host, without its brackets, and the colon behind it off a text.
fn take_host(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").filter(|(host, _)| host.parse::<std::net::Ipv6Addr>().is_ok()),
        None => text.split_once(':'),
    }
}

/// A port, or nothing for an empty text.
fn port(text: &str) -> Option<Option<u16>> {
    match text {
        "" => Some(None),
        _ => text.parse().ok().filter(|port| *port != 0).map(Some),
    }
}

fn connect_to(text: &str) -> Option<ConnectTo> {
    let (from, rest) = take_host(text)?;
    let (from_port, rest) = rest.split_once(':')?;
    let (to, to_port) = take_host(rest)?;
    let (from, to) = ((from.to_owned(), port(from_port)?), (to.to_owned(), port(to_port)?));
    Some(ConnectTo { given: text.to_owned(), from, to })
}

fn resolve(text: &str) -> Option<Resolve> {
    let (host, rest) = take_host(text)?;
    let (own_port, addresses) = rest.split_once(':')?;
    let address = |text: &str| text.trim_start_matches('[').trim_end_matches(']').parse().ok();
    let addresses: Option<Vec<IpAddr>> = addresses.split(',').map(address).collect();
    let (host, port) = (host.to_owned(), port(own_port)??);
    (!host.is_empty()).then_some(Resolve { given: text.to_owned(), host, port, addresses: addresses? })
}

impl FromStr for ConnectTo {
    type Err = NotARedirection;

    fn from_str(text: &str) -> Result<ConnectTo, NotARedirection> {
        let expected =
            "HOST:PORT:HOST2:PORT2 such as example.org:443:127.0.0.1:8443, or ::127.0.0.1:8080 for any host";
        connect_to(text).ok_or_else(|| NotARedirection { given: text.to_owned(), expected })
    }
}

impl FromStr for Resolve {
    type Err = NotARedirection;

    fn from_str(text: &str) -> Result<Resolve, NotARedirection> {
        let expected = "HOST:PORT:ADDRESS[,ADDRESS] such as example.org:443:127.0.0.1";
        resolve(text).ok_or_else(|| NotARedirection { given: text.to_owned(), expected })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Family::V4 { "IPv4" } else { "IPv6" })
    }
}

impl fmt::Display for ConnectTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given)
    }
}

impl fmt::Display for Resolve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn target(url: &str, settings: &[(&str, &str)], family: Option<Family>) -> Result<Target, LoadError> {
        let mut addressing = Addressing { family, ..Addressing::default() };
        for (flag, text) in settings {
            match *flag {
                "connect-to" => addressing.connect_to.push(text.parse().unwrap()),
                _ => addressing.resolve.push(text.parse().unwrap()),
            }
        }
        addressing.target(&url.parse().unwrap(), Nanos::SECOND)
    }

    #[track_caller]
    fn check(url: &str, settings: &[(&str, &str)], expected: &str) {
        assert_eq!(target(url, settings, None).unwrap().to_string(), expected);
    }

    #[test]
    fn connect_to_replaces_host_and_port() {
        check("http://a.test/", &[("connect-to", "a.test:80:127.0.0.1:8080")], "127.0.0.1:8080");
        check("http://a.test:81/", &[("connect-to", "::127.0.0.1:")], "127.0.0.1:81");
        check("http://127.0.0.1/", &[("connect-to", "127.0.0.1:80::82")], "127.0.0.1:82");
        let two = [("connect-to", "b.test::127.0.0.9:"), ("connect-to", "A.test::[::1]:1")];
        check("https://a.test/", &two, "[::1]:1");
    }

    #[test]
    fn resolve_answers_for_host_and_port() {
        check(
            "http://a.test/",
            &[("resolve", "a.test:80:127.0.0.3,127.0.0.4")],
            "127.0.0.3:80, 127.0.0.4:80",
        );
        check("https://a.test/", &[("resolve", "*:443:[::1]")], "[::1]:443");
        let both = [("connect-to", "a.test:80:b.test:81"), ("resolve", "b.test:81:127.0.0.5")];
        check("http://a.test/", &both, "127.0.0.5:81");
    }

    #[test]
    fn redirection_of_another_server_is_refused() {
        let told = |settings: &[_]| target("http://a.test/", settings, None).unwrap_err().to_string();
        assert_eq!(
            told(&[("connect-to", "b.test:80:127.0.0.1:80")]),
            "--connect-to b.test:80:127.0.0.1:80 has no effect: the run's server is a.test:80"
        );
        assert_eq!(
            told(&[("resolve", "a.test:81:127.0.0.1")]),
            "--resolve a.test:81:127.0.0.1 has no effect: the run connects to a.test:80"
        );
        let file = target("unix:/run/a.sock", &[], Some(Family::V4)).unwrap_err().to_string();
        assert_eq!(file, "-4 has no effect: a socket file has no address");
    }

    #[test]
    fn family_without_address_is_unresolved() {
        let told = target("http://127.0.0.1/", &[], Some(Family::V6)).unwrap_err().to_string();
        assert_eq!(told, "host '127.0.0.1' cannot be resolved: it has no IPv6 address");
        let both = [("resolve", "a.test:80:127.0.0.1,::1")];
        assert_eq!(target("http://a.test/", &both, Some(Family::V6)).unwrap().to_string(), "[::1]:80");
    }

    #[test]
    fn family_that_answers_is_the_target() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("http://a.test:{port}/");
        let both = format!("a.test:{port}:::1,127.0.0.1");
        check(&url, &[("resolve", &both)], &format!("127.0.0.1:{port}"));
        // A child that another test is starting may hold a copy of the listener until its exec.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        check(&url, &[("resolve", &both)], &format!("[::1]:{port}"));
    }

    #[test]
    fn redirections_parse_back_and_nonsense_is_refused() {
        for text in ["a:1:b:2", ":::", "[::1]:80:[::2]:", "a::b:"] {
            assert_eq!(text.parse::<ConnectTo>().unwrap().to_string(), text);
        }
        for text in ["", "a:1", "a:1:b", "a:x:b:1", "a:0:b:1", "[::1:80:b:1", "a:1:b:2:3"] {
            assert!(text.parse::<ConnectTo>().is_err(), "{text}");
        }
        for text in ["a:80:127.0.0.1", "*:1:::1", "a:1:127.0.0.1,[::1]", "[::1]:1:127.0.0.1"] {
            assert_eq!(text.parse::<Resolve>().unwrap().to_string(), text);
        }
        for text in ["", "a:80", "a::127.0.0.1", ":80:127.0.0.1", "a:80:b", "a:80:"] {
            assert!(text.parse::<Resolve>().is_err(), "{text}");
        }
    }
}
