//! Request targets and authorities (RFC 9112, 3.2; RFC 3986, 3.2).

use std::net::Ipv6Addr;

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
    // Beyond controls, space and non-ASCII, only '#' is refused. User agents do send some characters that RFC
    // 3986 would have them encode, and no reader finds those ambiguous.
    if !text.iter().all(|byte| matches!(byte, b'!'..=b'~') && *byte != b'#') {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    match text.as_bytes() {
        [b'/', ..] => Some(Target { path: text, authority: None }),
        b"*" if options => Some(Target { path: text, authority: None }),
        _ => absolute(text, options, spare),
    }
}

/// Parses a target in origin form, or `*` where `options` allows it. Returns `None` for every other text.
pub fn origin_form(text: &[u8], options: bool) -> Option<&str> {
    let mut spare = String::new();
    parse(text, options, &mut spare).filter(|target| target.authority.is_none())?;
    std::str::from_utf8(text).ok()
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

/// True if the text is `uri-host [ ":" port ]`, a valid value of `Host`. The empty host is valid.
pub fn is_authority(text: &[u8]) -> bool {
    let (host_is_valid, rest) = match text {
        [b'[', inner @ ..] => {
            let Some(end) = inner.iter().position(|byte| *byte == b']') else { return false };
            (is_ip_literal(&inner[..end]), &inner[end + 1..])
        }
        _ => {
            let end = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
            (is_registered_name(&text[..end]), &text[end..])
        }
    };
    host_is_valid && (rest.is_empty() || rest.strip_prefix(b":").is_some_and(is_port))
}

fn is_port(digits: &[u8]) -> bool {
    digits
        .iter()
        .try_fold(0_u16, |port, byte| {
            let digit = byte.is_ascii_digit().then(|| u16::from(byte - b'0'))?;
            port.checked_mul(10)?.checked_add(digit)
        })
        .is_some()
}

/// True if the text is an IPv6 address (RFC 3986, 3.2.2). Zone identifiers and literals of later address
/// families are refused, as the RFC allows: no connection to this server needs them.
fn is_ip_literal(inner: &[u8]) -> bool {
    std::str::from_utf8(inner).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

fn is_registered_name(mut name: &[u8]) -> bool {
    while let [first, rest @ ..] = name {
        name = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => rest,
            b'-' | b'.' | b'_' | b'~' => rest,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => rest,
            b'%' => match rest {
                [high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
                _ => return false,
            },
            _ => return false,
        };
    }
    true
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

    #[test]
    fn rfc3986_3_2_2_ip_literals_are_ipv6_addresses() {
        for valid in ["[::]", "[2001:db8::1]:80", "[::ffff:192.0.2.1]", "[1:2:3:4:5:6:7:8]", "[fe80::A]"] {
            assert!(is_authority(valid.as_bytes()), "{valid}");
        }
        let invalid = "[:] [:::] [1] [::1::2] [1:2:3:4:5:6:7] [1:2:3:4:5:6:7:8:9] [12345::] [.] [::1.2.3] \
                       [::1.2.3.256] [192.0.2.1] [fe80::1%25lo] [fe80::1%lo] [v1.a] [::g] [[::1]] [::1]]";
        for invalid in invalid.split(' ') {
            assert!(!is_authority(invalid.as_bytes()), "{invalid}");
        }
    }

    #[test]
    fn rfc3986_3_2_authority() {
        for valid in ["", "a", "a.b-c_d", "1.2.3.4:80", "[::1]", "[::1]:8080", "a:", "a%2Fb", "a:65535"] {
            assert!(is_authority(valid.as_bytes()), "{valid}");
        }
        for invalid in
            ["a b", "a/b", "u@a", "a:b", "a:65536", "[::1", "[]", "[::1]x", "a:1:2", "a%2", "a\"", "a,b c"]
        {
            assert!(!is_authority(invalid.as_bytes()), "{invalid}");
        }
        assert!(!is_authority(b"a\xff"));
    }
}
