//! Redirects: from a pattern to a path of this site, or to a URL.

use std::str::FromStr;

use http_semantics::Status;

use super::pattern::{LONGEST, Pattern};
use crate::path::push_escaped;

const STATUSES: [Status; 5] = [
    Status::MOVED_PERMANENTLY,
    Status::FOUND,
    Status::SEE_OTHER,
    Status::TEMPORARY_REDIRECT,
    Status::PERMANENT_REDIRECT,
];

/// The name of the request's host in a target.
const HOST: &str = "$host";

/// A redirect, as text `PATTERN TARGET [STATUS]`. The status is 302 if there is none. The target `-` excepts
/// the paths from later redirects. `http:` before the pattern leaves out requests over TLS, and `https` alone stands
/// for `http:/* https://$host/* 301`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    from: Pattern,
    /// Requests over TLS are left alone.
    is_for_plain: bool,
    /// `None` for an exception.
    to: Option<Target>,
}

/// The target of a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// The URL up to its `*`.
    beginning: String,
    /// The URL behind its `*`, if it has one.
    end: Option<String>,
    /// The query of the request is dropped.
    drops_query: bool,
    status: Status,
}

/// The parts of a request that a redirect may depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The request's target, with its query.
    pub target: &'a str,
    /// The request's host, with its port if the client named one; empty if the client named none.
    pub authority: &'a str,
    /// The host without the port.
    pub host: &'a str,
    /// True under TLS.
    pub is_secure: bool,
}

impl Redirect {
    /// Returns the status and the URL for a canonical path. Returns `Some(None)` for an exception and for a
    /// path that would be redirected to itself. `None` if the redirect is not about the request. The query of the
    /// request's target is kept, unless the redirect has a query or a fragment.
    pub(super) fn decide(&self, path: &str, asked: Asked<'_>) -> Option<Option<(Status, String)>> {
        let rest = self.from.rest(path).filter(|_| !(self.is_for_plain && asked.is_secure))?;
        let Some(to) = &self.to else { return Some(None) };
        let location = to.location(rest, asked)?;
        let scheme = if asked.is_secure { "https" } else { "http" };
        let own = location.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"));
        let hosts = [asked.authority, asked.host];
        let leads_back = match own {
            Some(rest) => {
                hosts.into_iter().any(|host| after_host(rest, host).and_then(own_path) == Some(path))
            }
            None => own_path(&location) == Some(path),
        };
        Some((!leads_back).then_some((to.status, location)))
    }

    /// Tells whether the decision on a canonical path depends on more of the request: on TLS, or on the host and the scheme
    /// that a URL may lead back to. `is_secure` tells whether the request came over TLS.
    pub(super) fn is_about_requests(&self, path: &str, is_secure: bool) -> bool {
        let is_left_alone = self.is_for_plain && is_secure;
        let depends = self.is_for_plain || self.to.as_ref().is_some_and(Target::is_url);
        depends && !is_left_alone && self.from.matches(path)
    }

    /// Returns a path that the pattern matches.
    pub(super) fn example(&self) -> String {
        self.from.with_rest("x")
    }
}

/// The path of a URL without a host.
pub(super) fn own_path(location: &str) -> Option<&str> {
    location.split(['?', '#']).next().filter(|path| path.starts_with('/'))
}

/// The rest of an authority and its path behind a host, which may be spelt in any case.
fn after_host<'a>(authority: &'a str, host: &str) -> Option<&'a str> {
    let (beginning, rest) = authority.split_at_checked(host.len())?;
    beginning.eq_ignore_ascii_case(host).then_some(rest)
}

impl Target {
    /// True if the target names a scheme and a host.
    fn is_url(&self) -> bool {
        !self.beginning.starts_with('/')
    }

    /// Returns the URL; `None` if it needs a host, and the request names none.
    fn location(&self, rest: &str, asked: Asked<'_>) -> Option<String> {
        let mut location = match self.beginning.split_once(HOST) {
            None => self.beginning.clone(),
            Some(_) if !is_plain_host(asked.host) => return None,
            Some((before, after)) => [before, &asked.host.to_ascii_lowercase(), after].concat(),
        };
        if let Some(end) = &self.end {
            location.extend([rest, end]);
            // Two slashes at the start would name another host.
            while location.starts_with("//") {
                location.remove(0);
            }
        }
        if !self.drops_query && !location.contains(['?', '#']) {
            push_query(asked.target, &mut location);
        }
        Some(location)
    }
}

/// True if a client's text is a name or an address, and nothing that would change the meaning of a URL.
fn is_plain_host(host: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    !host.is_empty() && host.bytes().all(is_letter)
}

/// Appends the query of a request's target, with its `?`, in the characters of a URL.
pub(crate) fn push_query(target: &str, location: &mut String) {
    if let Some(at) = memchr::memchr(b'?', target.as_bytes()) {
        push_url(&target[at..], location);
    }
}

fn push_url(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' => out.push(char::from(byte)),
            _ => push_escaped(byte, out),
        }
    }
}

impl FromStr for Redirect {
    type Err = String;

    fn from_str(text: &str) -> Result<Redirect, String> {
        const ACCEPTED: &str =
            "expected PATH TARGET [STATUS], such as '/old/* /new/* 301' or '/a https://example.org/b'";
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (from, to, status) = match words[..] {
            ["https"] => return "http:/* https://$host/* 301".parse(),
            ["https", status] => return format!("http:/* https://$host/* {status}").parse(),
            [from, "-"] => {
                let (is_for_plain, from) = plain_part(from);
                return Ok(Redirect { from: from.parse()?, is_for_plain, to: None });
            }
            [from, to] => (from, to, Status::FOUND),
            [from, to, status] => (from, to, parse_status(status)?),
            _ => return Err(format!("'{text}' is not a redirect; {ACCEPTED}")),
        };
        let (is_for_plain, from) = plain_part(from);
        let from: Pattern = from.parse()?;
        check_target(to)?;
        if to.contains('*') && !from.has_rest() {
            return Err(format!("the target '{to}' has a *, but the path has none to fill it; {ACCEPTED}"));
        }
        let mut spelt = String::new();
        push_url(to.strip_suffix('?').unwrap_or(to), &mut spelt);
        let drops_query = to.ends_with('?');
        let (beginning, end) = match spelt.split_once('*') {
            Some((beginning, end)) => (beginning.to_owned(), Some(end.to_owned())),
            None => (spelt, None),
        };
        Ok(Redirect { from, is_for_plain, to: Some(Target { beginning, end, drops_query, status }) })
    }
}

/// Splits `http:` from a pattern.
fn plain_part(from: &str) -> (bool, &str) {
    from.strip_prefix("http:").map_or((false, from), |from| (true, from))
}

fn parse_status(text: &str) -> Result<Status, String> {
    let known = STATUSES.into_iter().find(|status| status.0.to_string() == text);
    known.ok_or_else(|| format!("'{text}' is not a status of a redirect; expected 301, 302, 303, 307 or 308"))
}

/// Refuses a target that could lead to a host that the rule does not name.
fn check_target(target: &str) -> Result<(), String> {
    let wrong = |what: &str| {
        Err(format!(
            "the target '{target}' {what}; expected a path such as /new/* or a URL such as https://example.org/*"
        ))
    };
    let own_path = target.starts_with('/') && !target.starts_with("//");
    let after_scheme = ["https://", "http://"].into_iter().find_map(|scheme| target.strip_prefix(scheme));
    if target.len() > LONGEST || target.matches('*').count() > 1 {
        return wrong("is too long or has more than one *");
    }
    if target.contains(|letter: char| letter.is_ascii_control() || "\\\"<>".contains(letter)) {
        return wrong("has a character that no URL has");
    }
    match after_scheme {
        None if own_path && target.contains(HOST) => wrong("has no host for $host"),
        None if own_path => Ok(()),
        None => wrong("is neither a path nor a URL"),
        Some(rest) => {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            if authority.is_empty() || authority.contains(['*', '@']) {
                return wrong("has no host, or a * or @ in it");
            }
            if authority.replacen(HOST, "", 1).contains('$') || rest[authority.len()..].contains(HOST) {
                return wrong("has a $ that is not the host's $host");
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(rule: &str, target: &str, location: Option<&str>) {
        let rule: Redirect = rule.parse().unwrap();
        let path = crate::path::normalise(target.split('?').next().unwrap(), false).unwrap();
        let asked = Asked { target, host: "site.test", ..Asked::default() };
        let decided = rule.decide(&path.canonical, asked).flatten().map(|(_, location)| location);
        assert_eq!(decided.as_deref(), location, "{rule:?} {target}");
    }

    #[test]
    fn the_target_takes_the_rest_and_the_query() {
        check("/old /new", "/old", Some("/new"));
        check("/old /new", "/old/", None);
        check("/old /new", "/old?a=%20b", Some("/new?a=%20b"));
        check("/old /new?x", "/old?a", Some("/new?x"));
        check("/old /new#x", "/old?a", Some("/new#x"));
        check("/old /new?", "/old?a", Some("/new"));
        check("/old/* /new/*", "/old/a%20b/", Some("/new/a%20b/"));
        check("/old/* /new", "/old/a", Some("/new"));
        check("/*.htm /*.html", "/a/b.htm", Some("/a/b.html"));
        check("/* https://example.org/*", "/a", Some("https://example.org/a"));
        check("/* https://example.org/?of=*", "/a?b", Some("https://example.org/?of=a"));
        check("/* /index.html", "/a", Some("/index.html"));
        check("/* /index.html", "/index.html?a", None);
        check("/caf\u{e9} /\u{e9}", "/caf%c3%a9", Some("/%C3%A9"));
    }

    #[test]
    fn plain_redirect_leaves_tls_alone() {
        let decide = |rule: &str, host: &str, is_secure: bool| {
            let name = host.strip_suffix(":8443").unwrap_or(host);
            let asked = Asked { target: "/a?b", authority: host, host: name, is_secure };
            rule.parse::<Redirect>().unwrap().decide("/a", asked).flatten().map(|(status, to)| (status.0, to))
        };
        let to = |status, url: &str| Some((status, url.to_owned()));
        assert_eq!(decide("https", "Site.test", false), to(301, "https://site.test/a?b"));
        assert_eq!(decide("https 308", "site.test", false), to(308, "https://site.test/a?b"));
        assert_eq!(decide("https", "site.test", true), None);
        assert_eq!(decide("http:/* https://$host:8443/*", "[::1]", false), to(302, "https://[::1]:8443/a?b"));
        assert_eq!(
            decide("/* https://www.$host/* 301", "site.test", true),
            to(301, "https://www.site.test/a?b")
        );
        assert_eq!(decide("/* http://$host/*", "site.test", false), None, "it would lead to itself");
        assert_eq!(decide("/* http://$host/*", "site.test", true), to(302, "http://site.test/a?b"));
        assert_eq!(decide("/* https://site.test/* 301", "SITE.test", true), None, "it is the same host");
        assert_eq!(decide("/* https://Site.test/*", "site.test", true), None, "it is the same host");
        assert_eq!(decide("/* https://site.test/*", "www.site.test", true), to(302, "https://site.test/a?b"));
        assert_eq!(
            decide("/* https://site.test:8443/*", "site.test:8443", true),
            None,
            "it is the same port"
        );
        assert_eq!(decide("/* https://$host/*", "site.test:8443", false), to(302, "https://site.test/a?b"));
        for host in ["", "a b", "a/b", "a@b", "a%b", "a\\b"] {
            assert_eq!(decide("https", host, false), None, "{host}");
        }
    }

    #[test]
    fn no_request_names_another_host() {
        check("/old* /*", "/old/evil.example", Some("/evil.example"));
        check("/old* /*", "/old//evil.example/%5c", Some("/evil.example/%5C"));
        check("/old/* /*", "/old//evil.example", Some("/evil.example"));
        check("/old/* /*/end", "/old/", Some("/end"));
        check("/old/* /*", "/old/%5Cevil.example", Some("/%5Cevil.example"));
        check("/old* https://example.org/*", "/old@evil.example", Some("https://example.org/@evil.example"));
        check("/old/* /new/*", "/old/a%0d%0aX:%20y", Some("/new/a%0D%0AX:%20y"));
    }

    #[test]
    fn mistakes_name_what_is_accepted() {
        for (text, said) in [
            ("/old", "expected PATH TARGET [STATUS]"),
            ("/old /new 301 x", "expected PATH TARGET [STATUS]"),
            ("old /new", "expected a path such as"),
            ("/old /new 304", "expected 301, 302, 303, 307 or 308"),
            ("/old /new 0301", "expected 301, 302, 303, 307 or 308"),
            ("/old /new/*", "none to fill it"),
            ("/* //evil.example/*", "neither a path nor a URL"),
            ("/* /\\evil.example", "no URL has"),
            ("/* javascript:*", "neither a path nor a URL"),
            ("/* https://*", "no host"),
            ("/* https://example.org*", "no host, or a * or @"),
            ("/* https://user@example.org/", "no host, or a * or @"),
            ("/* /*/*", "more than one *"),
            ("/a - 301", "neither a path nor a URL"),
            ("/a /b\u{7}", "no URL has"),
            ("https 200", "expected 301"),
            ("http: /b", "expected a path such as"),
            ("/a https://$hos/", "a $ that is not"),
            ("/a https://$host$host/", "a $ that is not"),
            ("/a https://a.example/$host", "a $ that is not"),
            ("/a /$host", "no host for $host"),
        ] {
            let error = text.parse::<Redirect>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_location_is_one_printable_word_on_the_named_host(
            raw in "/old(\\PC|[/.%0adA\\\\@]){0,20}",
            query in "(\\?(\\PC|\\r|\\n){0,8})?",
        ) {
            let target = format!("{raw}{query}");
            if let Ok(path) = crate::path::normalise(target.split('?').next().unwrap(), false) {
                for (rule, host) in [("/old* /*", "/"), ("/old* https://a.example/*", "https://a.example/")] {
                    let rule: Redirect = rule.parse().unwrap();
                    let asked = Asked { target: &target, ..Asked::default() };
                    if let Some((_, location)) = rule.decide(&path.canonical, asked).flatten() {
                        prop_assert!(location.starts_with(host) && !location.starts_with("//"));
                        prop_assert!(location.bytes().all(|byte| byte.is_ascii_graphic()));
                        prop_assert!(!location.split('?').next().unwrap().contains('\\'));
                    }
                }
            }
        }
    }
}
