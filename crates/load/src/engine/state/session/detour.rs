//! The redirects that a request follows to the run's server (RFC 9110, 15.4).
//!
//! A redirected request is still one request: it has one outcome, that of the last reply, and its latency from the intended
//! time covers all replies. It goes out on the same connection if that persists.
//!
//! After 303 the request becomes GET, unless it was HEAD; after 301 and 302 a POST does, as in browsers and curl. 307 and 308
//! keep method and content. A redirect to another server, or beyond [`HOPS_MAX`], is not followed: its reply is the last one.

use http1::client::{Part, field};

use crate::plan::terms::target::Url;

/// The most redirects of one request: as in Go's client; browsers allow 20.
const HOPS_MAX: u32 = 10;

/// Fields of a request's content, which goes with it.
const CONTENT_FIELDS: [&str; 3] = ["content-length", "content-type", "content-encoding"];

/// The values of the Cookie field that a session's jar writes; empty without cookies.
#[derive(Clone, Debug)]
pub(crate) struct JarCookies {
    /// The value in the request that is redirected.
    pub before: String,
    /// The value in the request that follows the redirect.
    pub after: String,
}

/// The redirects of the request under way.
#[derive(Debug, Default)]
pub(crate) struct Detour {
    hops: u32,
    /// The target of the reply under way, if that is a redirect.
    location: Option<String>,
    /// The redirected request; empty before the first redirect.
    request: Vec<u8>,
}

impl Detour {
    /// The bytes of the redirected request; `None` before the first redirect.
    pub fn request(&self) -> Option<&[u8]> {
        (!self.request.is_empty()).then_some(&self.request)
    }

    /// Takes a part of a reply.
    pub fn read_part(&mut self, part: Part<'_>) {
        let Part::Head(head) = part else { return };
        self.location = None;
        if head.get(9) == Some(&b'3') {
            let location = field(head, "Location").and_then(|value| String::from_utf8(value).ok());
            self.location = location.map(|text| text.trim().to_owned());
        }
    }

    /// Forgets the redirects of a request that has ended.
    pub fn end(&mut self) {
        *self = Detour::default();
    }

    /// Follows the reply to a request, which was `original` before its first redirect. `cookies` come from the session's jar;
    /// the user's own fields stay. Returns false for a reply that is no redirect, or that is not followed.
    pub fn follow_redirect(
        &mut self,
        status: u16,
        original: &[u8],
        is_secure: bool,
        cookies: Option<&JarCookies>,
    ) -> bool {
        let Some(location) = self.location.take().filter(|_| self.hops < HOPS_MAX) else { return false };
        let request = self.request().unwrap_or(original);
        match redirected(request, status, &location, is_secure, cookies) {
            Some(request) => {
                self.request = request;
                self.hops += 1;
                true
            }
            None => false,
        }
    }
}

/// The request after a redirect; `None` for another status, or a target of another server.
fn redirected(
    request: &[u8],
    status: u16,
    location: &str,
    is_secure: bool,
    cookies: Option<&JarCookies>,
) -> Option<Vec<u8>> {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, content) = (std::str::from_utf8(&request[..end]).ok()?, &request[end + 4..]);
    let (line, head) = head.split_once("\r\n")?;
    let [method, target, version] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    let is = |line: &str, name: &str| {
        line.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(name))
    };
    let host = head.split("\r\n").find(|line| is(line, "Host"))?.split_once(':')?.1.trim();
    let target = resolve(target, location, host, is_secure)?;
    let becomes_get = match status {
        303 => method != "HEAD",
        301 | 302 => method == "POST",
        307 | 308 => false,
        _ => return None,
    };
    let method = if becomes_get { "GET" } else { method };
    let lines: Vec<&str> = head.split("\r\n").collect();
    // The jar's field comes behind the user's fields, which may have the same value.
    let written = cookies.filter(|cookies| !cookies.before.is_empty());
    let written = written.map(|cookies| format!("Cookie: {}", cookies.before));
    let of_jar = written.and_then(|field| lines.iter().rposition(|line| *line == field));
    let mut made = format!("{method} {target} {version}\r\n");
    for (number, line) in lines.into_iter().enumerate() {
        let is_of_content = CONTENT_FIELDS.iter().any(|name| is(line, name));
        if !(becomes_get && is_of_content) && of_jar != Some(number) {
            made += line;
            made += "\r\n";
        }
    }
    if let Some(JarCookies { after, .. }) = cookies.filter(|cookies| !cookies.after.is_empty()) {
        made += &format!("Cookie: {after}\r\n");
    }
    made += "\r\n";
    let mut made = made.into_bytes();
    made.extend_from_slice(if becomes_get { &[] } else { content });
    Some(made)
}

/// The target of a redirect in origin form (RFC 3986, 5.2); `None` for one of another server.
fn resolve(target: &str, location: &str, host: &str, is_secure: bool) -> Option<String> {
    let location = location.split('#').next().unwrap_or_default();
    let scheme = if is_secure { "https" } else { "http" };
    let has_scheme = location.find([':', '/', '?']).is_some_and(|at| location[at..].starts_with(':'));
    if location.starts_with("//") || has_scheme {
        let whole =
            if location.starts_with("//") { format!("{scheme}:{location}") } else { location.to_owned() };
        let (to, from): (Url, Url) = (whole.parse().ok()?, format!("{scheme}://{host}/").parse().ok()?);
        let is_same = to.is_secure() == is_secure && to.authority().eq_ignore_ascii_case(&from.authority());
        return is_same.then(|| to.path().to_owned());
    }
    if !location.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let (path, _) = target.split_once('?').unwrap_or((target, ""));
    match location.as_bytes().first() {
        None => Some(target.to_owned()),
        Some(b'/') => Some(without_dots(location)),
        Some(b'?') => Some(format!("{path}{location}")),
        Some(_) => {
            let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
            Some(without_dots(&format!("{folder}{location}")))
        }
    }
}

/// Removes the dot segments of a path, and leaves its query (RFC 3986, 5.2.4).
fn without_dots(target: &str) -> String {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    segments.pop();
                }
                segments.extend(is_last.then_some(""));
            }
            other => segments.push(other),
        }
    }
    let path = format!("/{}", segments.join("/"));
    query.map_or(path.clone(), |query| format!("{path}?{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: &[u8] =
        b"POST /a/b?c HTTP/1.1\r\nHost: h:80\r\nContent-Type: x/y\r\nCookie: a=1\r\nContent-Length: 2\r\n\r\nhi";

    fn after(status: u16, location: &str, cookies: Option<&JarCookies>) -> Option<String> {
        let mut detour = Detour::default();
        detour
            .read_part(Part::Head(format!("HTTP/1.1 {status} X\r\nlocation: {location}\r\n\r\n").as_bytes()));
        detour
            .follow_redirect(status, POST, false, cookies)
            .then(|| String::from_utf8(detour.request.clone()).unwrap())
    }

    fn jar(before: &str, after: &str) -> JarCookies {
        JarCookies { before: before.to_owned(), after: after.to_owned() }
    }

    #[test]
    fn status_decides_about_method_and_content() {
        let as_get = "GET /d HTTP/1.1\r\nHost: h:80\r\nCookie: a=1\r\n\r\n";
        for status in [301, 302, 303] {
            assert_eq!(after(status, "/d", None).unwrap(), as_get);
        }
        let kept = "POST /d HTTP/1.1\r\nHost: h:80\r\nContent-Type: x/y\r\nCookie: a=1\r\nContent-Length: 2\r\n\r\nhi";
        for status in [307, 308] {
            assert_eq!(after(status, "/d", None).unwrap(), kept);
        }
        assert_eq!(after(304, "/d", None), None);
        let renewed = after(303, "/d", Some(&jar("a=1", "b=2; c=3"))).unwrap();
        assert!(renewed.ends_with("Host: h:80\r\nCookie: b=2; c=3\r\n\r\n"), "{renewed}");
    }

    #[test]
    fn only_the_cookies_of_the_jar_are_replaced() {
        let own = "GET /d HTTP/1.1\r\nHost: h:80\r\nCookie: a=1\r\n";
        for (before, now, jars) in
            [("", "", ""), ("", "b=2", "Cookie: b=2\r\n"), ("c=3", "b=2", "Cookie: b=2\r\n")]
        {
            assert_eq!(after(303, "/d", Some(&jar(before, now))).unwrap(), format!("{own}{jars}\r\n"));
        }
        let both = b"GET / HTTP/1.1\r\nHost: h:80\r\nCookie: a=1\r\nCookie: a=1\r\n\r\n";
        let made = redirected(both, 302, "/d", false, Some(&jar("a=1", "b=2"))).unwrap();
        assert_eq!(String::from_utf8(made).unwrap(), format!("{own}Cookie: b=2\r\n\r\n"));
    }

    #[test]
    fn targets_of_the_same_server_are_resolved() {
        for (location, target) in [
            ("http://H/x?y#z", "/x?y"),
            ("//h:80/x", "/x"),
            ("d", "/a/d"),
            ("../d/./e", "/d/e"),
            ("/x/../../y/.", "/y/"),
            ("?q", "/a/b?q"),
            ("/x?to=http://other/", "/x?to=http://other/"),
            ("", "/a/b?c"),
        ] {
            let found = resolve("/a/b?c", location, "h", false);
            assert_eq!(found.as_deref(), Some(target), "{location}");
        }
        for other in
            ["https://h/x", "http://other/x", "//other/", "http://h:81/", "ftp://h/", "mailto:h", "/\u{e4}"]
        {
            assert_eq!(resolve("/a", other, "h", false), None, "{other}");
        }
    }

    #[test]
    fn redirects_of_a_request_are_bounded() {
        let mut detour = Detour::default();
        let mut hop = || {
            detour.read_part(Part::Head(b"HTTP/1.1 302 X\r\nLocation: /a/b?c\r\n\r\n"));
            detour.follow_redirect(302, POST, false, None)
        };
        assert_eq!((0..20).filter(|_| hop()).count(), HOPS_MAX as usize);
    }
}
