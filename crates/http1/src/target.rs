//! The four forms of a request target, less that of CONNECT (RFC 9112, 3.2).

use http_semantics::{is_authority, uri_text};

/// A request target, reduced to the parts that a service needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// Origin form, or `*`.
    pub(crate) path: &'a str,
    /// The authority of an absolute-form target; it overrules `Host` (RFC 9112, 3.2.2).
    pub(crate) authority: Option<&'a str>,
}

/// Parses a target without spaces. Returns `None` if it is neither origin form, absolute form (`http` or
/// `https`) nor `*`, or has bytes that no URI has. `spare` lends memory to the only form whose path is not a
/// substring of it: `http://host?query`.
pub(crate) fn parse<'a>(text: &'a [u8], options: bool, spare: &'a mut String) -> Option<Target<'a>> {
    let text = uri_text(text)?;
    match text.as_bytes() {
        [b'/', ..] => Some(Target { path: text, authority: None }),
        b"*" if options => Some(Target { path: text, authority: None }),
        _ => absolute(text, options, spare),
    }
}

fn absolute<'a>(text: &'a str, options: bool, spare: &'a mut String) -> Option<Target<'a>> {
    let (scheme, rest) = text.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.is_empty() || authority.starts_with(':') || !is_authority(authority.as_bytes()) {
        return None;
    }
    let path = match path.as_bytes() {
        // OPTIONS for the server as a whole, sent through a proxy (RFC 9112, 3.2.4).
        [] if options => "*",
        [] => "/",
        [b'?', ..] => {
            spare.push('/');
            spare.push_str(path);
            spare.as_str()
        }
        _ => path,
    };
    Some(Target { path, authority: Some(authority) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, options: bool, expect: Option<(&str, Option<&str>)>) {
        let mut spare = String::new();
        let target = parse(text.as_bytes(), options, &mut spare);
        assert_eq!(target.map(|target| (target.path, target.authority)), expect, "{text}");
    }

    #[test]
    fn rfc9112_3_2_1_origin_form() {
        check("/", false, Some(("/", None)));
        check("/a%20b?c=d|e", false, Some(("/a%20b?c=d|e", None)));
        check("//a", false, Some(("//a", None)));
        check("a", false, None);
        check("", false, None);
        check("?a", false, None);
        check("/a#b", false, None);
        check("/\u{e9}", false, None);
        check("/\u{7f}", false, None);
        check("/\u{1}", false, None);
    }

    #[test]
    fn rfc9112_3_2_2_absolute_form() {
        check("http://a/b?c", false, Some(("/b?c", Some("a"))));
        check("HTTP://a:80/b", false, Some(("/b", Some("a:80"))));
        check("https://a", false, Some(("/", Some("a"))));
        check("http://a?b/c", false, Some(("/?b/c", Some("a"))));
        check("http://", false, None);
        check("http:///a", false, None);
        check("http://:80/", false, None);
        check("http://user@a/", false, None);
        check("http://[::1]:80/", false, Some(("/", Some("[::1]:80"))));
        check("http://[::1::]/", false, None);
        check("ftp://a/", false, None);
        check("http:/a", false, None);
    }

    #[test]
    fn rfc9112_3_2_4_asterisk_form() {
        check("*", true, Some(("*", None)));
        check("*", false, None);
        check("http://a", true, Some(("*", Some("a"))));
        check("http://a/", true, Some(("/", Some("a"))));
    }
}
