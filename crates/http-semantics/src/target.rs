//! Request targets and authorities (RFC 9110, 7.1; RFC 3986, 3.2).

use std::net::Ipv6Addr;

/// The text, if it has only bytes that a request target may have.
///
/// Beyond controls, space and non-ASCII, only '#' is refused. User agents do send some characters that RFC
/// 3986 would have them encode, and no reader finds those ambiguous.
#[inline]
pub fn uri_text(text: &[u8]) -> Option<&str> {
    if !text.iter().all(|byte| matches!(byte, b'!'..=b'~') && *byte != b'#') {
        return None;
    }
    std::str::from_utf8(text).ok()
}

/// Parses a target in origin form, or `*` where `options` allows it. Returns `None` for every other text.
#[inline]
pub fn origin_form(text: &[u8], options: bool) -> Option<&str> {
    let has_form = text.starts_with(b"/") || (options && text == b"*");
    uri_text(text).filter(|_| has_form)
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

    #[test]
    fn origin_form_is_a_path_or_an_allowed_asterisk() {
        for (text, options, expect) in [
            ("/", false, true),
            ("/a%20b?c=d|e", true, true),
            ("*", true, true),
            ("*", false, false),
            ("**", true, false),
            ("", true, false),
            ("a", false, false),
            ("http://a/", true, false),
            ("/a#b", false, false),
            ("/a b", false, false),
            ("/\u{7f}", false, false),
            ("/\u{e9}", false, false),
        ] {
            assert_eq!(origin_form(text.as_bytes(), options), expect.then_some(text), "{text}");
        }
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
