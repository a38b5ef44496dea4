//! The rules of a small server: they admit the operator, but no web page that the operator's browser has open.
//!
//! A web page may make its browser send requests to any address that the browser reaches. Two fields reveal such
//! requests. Under DNS rebinding the page's own name leads to this machine, so `Host` has that name. The guard
//! accepts only addresses, which need no DNS, and configured names. Without rebinding the browser names the page's
//! origin in `Origin` or `Sec-Fetch-Site`. The guard accepts only pages of this server. Programs that are no browsers
//! send neither field.
//!
//! If a bearer token (RFC 6750) is configured, every client must show it. Without one, programs may change settings,
//! but web pages may only read, including this server's own. A socket file has its mode instead of these rules: no
//! browser connects to one.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::Nanos;
use connection::SocketService;
use http_semantics::{Method, Request, Responder, Response, Service, Status};

use crate::access::Token;
use crate::service::{SmallService, answer, with_fields};
use crate::streams::STREAMS;
use crate::totals::Totals;

/// The names by which clients may address a server.
#[derive(Clone, Debug)]
enum Names {
    /// Any name: no browser reaches the server, or there is nothing to protect.
    Any,
    /// Addresses, `localhost` and these names.
    These { names: Vec<String>, flag: Option<&'static str> },
}

/// The rules of one server.
#[derive(Clone, Debug)]
pub struct Guard {
    names: Names,
    /// Checks the fields in which browsers name other pages.
    pages: bool,
    token: Option<Token>,
}

impl Guard {
    /// Guards controls behind an internet address; `flag` adds to the `names`.
    pub fn of_controls(names: Vec<String>, flag: &'static str, token: Option<Token>) -> Guard {
        Guard { names: Names::These { names, flag: Some(flag) }, pages: true, token }
    }

    /// Guards a socket file.
    pub fn of_file(token: Option<Token>) -> Guard {
        Guard { names: Names::Any, pages: false, token }
    }

    /// Guards a page that is only read. A page on a network address may be read under any name, because Prometheus
    /// servers know this machine by its name.
    pub fn of_page(is_local: bool) -> Guard {
        let names = if is_local { Names::These { names: Vec::new(), flag: None } } else { Names::Any };
        Guard { names, pages: true, token: None }
    }

    /// Refuses a request from elsewhere with one line that names the accepted ones.
    pub fn refusal(&self, request: &Request<'_>) -> Option<Response<Arc<OwnedFd>>> {
        let refused = |line: String| Some(answer(Status::FORBIDDEN, "text/plain; charset=utf-8", line));
        if let Names::These { names, flag } = &self.names
            && !is_accepted(request.host, names)
        {
            let names = match flag {
                Some(flag) => format!(", localhost or a name given with {flag}"),
                None => " or localhost".to_owned(),
            };
            let host = request.host;
            return refused(format!("Host {host}: expected an IP address{names}\n"));
        }
        if self.pages && !is_from_here(request) {
            return refused(
                "a request of another web page: expected one of this server or of a program\n".to_owned(),
            );
        }
        if self.pages && self.token.is_none() && changes(request) && is_of_a_page(request) {
            return refused(
                "a change by a web page needs a token: start the server with --admin-token-file, or change it by \
                 another program\n"
                    .to_owned(),
            );
        }
        None
    }

    /// Refuses a request without its token.
    pub fn refusal_without_token(&self, request: &Request<'_>) -> Option<Response<Arc<OwnedFd>>> {
        self.token.as_ref().filter(|token| !shows(request, token)).map(|_| {
            let line = "expected Authorization: Bearer with the token of this server\n".to_owned();
            let response = answer(Status::UNAUTHORIZED, "text/plain; charset=utf-8", line);
            with_fields(response, "WWW-Authenticate: Bearer realm=\"inrush\"\r\n")
        })
    }
}

fn changes(request: &Request<'_>) -> bool {
    !matches!(request.method, Method::Get | Method::Head)
}

/// Tells whether a browser marks the request as a web page's, including this server's own page.
fn is_of_a_page(request: &Request<'_>) -> bool {
    request.value("origin").is_some() || request.value("sec-fetch-site").is_some()
}

/// Tells whether a value of `Host` is an address, `localhost` or one of these names. HTTP/1.0 may omit it, but
/// browsers do not speak HTTP/1.0.
fn is_accepted(host: &str, names: &[String]) -> bool {
    if let Some(literal) = host.strip_prefix('[') {
        let address = literal.split(']').next().unwrap_or_default();
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let name = host.split(':').next().unwrap_or_default();
    host.is_empty()
        || name.parse::<Ipv4Addr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Tells whether no field marks the request as that of another server's page.
fn is_from_here(request: &Request<'_>) -> bool {
    let sites = request.values("sec-fetch-site").all(|site| matches!(site, b"same-origin" | b"none"));
    let origins = request.values("origin").all(|origin| {
        // Either scheme is accepted, because TLS may end before this server.
        let rest = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        rest.is_some_and(|authority| authority.eq_ignore_ascii_case(request.host.as_bytes()))
    });
    sites && origins
}

fn shows(request: &Request<'_>, token: &Token) -> bool {
    let given = request.value("authorization").and_then(|value| value.split_at_checked("Bearer ".len()));
    given.is_some_and(|(scheme, given)| {
        scheme.eq_ignore_ascii_case(b"Bearer ") && token.matches(given.trim_ascii())
    })
}

/// A service behind a guard.
pub struct Guarded<S> {
    /// Answers the requests that the guard admits.
    pub service: S,
    /// Decides about each request before its content is read.
    pub guard: Guard,
    /// Counts refusals.
    pub totals: Arc<Totals>,
    /// The streams of events that may still begin.
    pub room: usize,
}

impl<S: SmallService> Guarded<S> {
    fn refusal(&self, request: &Request<'_>) -> Option<Response<Arc<OwnedFd>>> {
        let is_closed = |_: &Response<_>| self.service.without_token(request).is_none();
        let without_token = || self.guard.refusal_without_token(request).filter(is_closed);
        let refusal = self.guard.refusal(request).or_else(without_token);
        if refusal.is_some() {
            self.totals.count_refusal();
        }
        refusal
    }
}

impl<S: SmallService> Responder for Guarded<S> {
    type File = Arc<OwnedFd>;

    /// Returns `None` for a request for events, because the loop takes its connection over.
    fn respond_or_wait(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<Arc<OwnedFd>>> {
        if let Some(refusal) = self.refusal(request) {
            return Some(refusal);
        }
        if self.guard.refusal_without_token(request).is_some() {
            return self.service.without_token(request);
        }
        if !self.service.asks_for_events(request) {
            return Some(self.service.respond(request, now));
        }
        match self.room.checked_sub(1) {
            Some(room) => {
                self.room = room;
                None
            }
            None => {
                self.totals.count_refused_stream();
                let line = format!(
                    "{STREAMS} streams of events are open, the most allowed; close one and try again\n"
                );
                let response = answer(Status::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", line);
                Some(with_fields(response, "Retry-After: 10\r\n"))
            }
        }
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<Arc<OwnedFd>>> {
        self.refusal(request).or_else(|| Service::refuse_early(&self.service, request))
    }
}

impl<S: SmallService> SocketService for Guarded<S> {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use http_semantics::Header;

    use super::*;

    fn asked(guard: &Guard, method: Method<'_>, host: &str, fields: &[(&str, &str)]) -> u16 {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        let request = Request { method, host, fields: &fields, ..Request::get("/accept-limit") };
        let refusal = guard.refusal(&request).or_else(|| guard.refusal_without_token(&request));
        refusal.map_or(200, |refusal| refusal.status.0)
    }

    fn status(guard: &Guard, host: &str, fields: &[(&str, &str)]) -> u16 {
        asked(guard, Method::Get, host, fields)
    }

    #[test]
    fn a_web_page_changes_nothing_without_a_token() {
        let host = "127.0.0.1:9090";
        let own = [("Origin", "http://127.0.0.1:9090"), ("Sec-Fetch-Site", "same-origin")];
        for page in [&own[..], &own[..1], &own[1..]] {
            assert_eq!(asked(&controls(&[]), Method::Put, host, page), 403);
            assert_eq!(asked(&controls(&[]), Method::Get, host, page), 200);
            assert_eq!(asked(&Guard::of_file(None), Method::Put, host, page), 200);
            let guard = Guard::of_controls(Vec::new(), "--admin-host", Some(Token::parse("s3cret").unwrap()));
            assert_eq!(asked(&guard, Method::Put, host, page), 401);
            let shown = [page, &[("Authorization", "Bearer s3cret")]].concat();
            assert_eq!(asked(&guard, Method::Put, host, &shown), 200);
        }
        assert_eq!(asked(&controls(&[]), Method::Put, host, &[]), 200, "curl");
    }

    fn controls(names: &[&str]) -> Guard {
        Guard::of_controls(names.iter().map(|name| (*name).to_owned()).collect(), "--admin-host", None)
    }

    #[test]
    fn hosts_are_addresses_localhost_and_configured_names() {
        let guard = controls(&["admin.example"]);
        for host in [
            "127.0.0.1:9090",
            "127.0.0.1",
            "192.0.2.7:80",
            "[::1]:9090",
            "[2001:db8::1]",
            "localhost:9090",
            "LocalHost",
            "admin.example",
            "Admin.Example:9090",
            "",
        ] {
            assert_eq!(status(&guard, host, &[]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9090",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "admin.example.",
            "x.admin.example",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "localhost.",
            "[v1.a]",
            "inrush",
        ] {
            assert_eq!(status(&guard, host, &[]), 403, "{host}");
        }
        assert_eq!(status(&Guard::of_file(None), "evil.example", &[]), 200);
        assert_eq!(status(&Guard::of_page(true), "evil.example", &[]), 403);
        assert_eq!(status(&Guard::of_page(false), "load7.example:9100", &[]), 200);
    }

    #[test]
    fn what_browsers_say_of_other_pages_is_believed() {
        let host = "127.0.0.1:9090";
        for (field, value, expected) in [
            ("Origin", "http://127.0.0.1:9090", 200),
            ("origin", "https://127.0.0.1:9090", 200),
            ("Origin", "http://127.0.0.1:8080", 403),
            ("Origin", "http://127.0.0.1", 403),
            ("Origin", "http://evil.example", 403),
            ("Origin", "http://127.0.0.1:9090.evil.example", 403),
            ("Origin", "null", 403),
            ("Origin", "", 403),
            ("Sec-Fetch-Site", "same-origin", 200),
            ("Sec-Fetch-Site", "none", 200),
            ("Sec-Fetch-Site", "same-site", 403),
            ("Sec-Fetch-Site", "cross-site", 403),
            ("Sec-Fetch-Site", "", 403),
            ("Sec-Fetch-Mode", "navigate", 200),
        ] {
            for guard in [controls(&[]), Guard::of_page(true), Guard::of_page(false)] {
                assert_eq!(status(&guard, host, &[(field, value)]), expected, "{field}: {value}");
            }
        }
        let twice = [("Origin", "http://127.0.0.1:9090"), ("Origin", "http://evil.example")];
        assert_eq!(status(&controls(&[]), host, &twice), 403);
        assert_eq!(status(&Guard::of_file(None), "", &[("Origin", "null")]), 200);
    }

    #[test]
    fn a_token_is_asked_of_everybody() {
        let token = Some(Token::parse(" s3cret-token\n").unwrap());
        for guard in [Guard::of_controls(Vec::new(), "--admin-host", token.clone()), Guard::of_file(token)] {
            for (value, expected) in [
                ("Bearer s3cret-token", 200),
                ("bearer  s3cret-token ", 200),
                ("Bearer s3cret-toke", 401),
                ("Bearer s3cret-token2", 401),
                ("Bearer s3cret-tokeN", 401),
                ("Bearer ", 401),
                ("Basic s3cret-token", 401),
                ("s3cret-token", 401),
                ("", 401),
            ] {
                assert_eq!(status(&guard, "localhost", &[("Authorization", value)]), expected, "{value}");
            }
            assert_eq!(status(&guard, "localhost", &[]), 401);
            let twice = [("Authorization", "Bearer s3cret-token"), ("Authorization", "Bearer x")];
            assert_eq!(status(&guard, "localhost", &twice), 401);
        }
        for wrong in ["", " \n", "two words", "two\nlines", "caf\u{e9}"] {
            assert!(Token::parse(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(format!("{:?}", Token::parse("s3cret").unwrap()), "Token(..)");
    }
}
