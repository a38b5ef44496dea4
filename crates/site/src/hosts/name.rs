//! The name of a host, as the owner of a server writes it and as clients do.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Most bytes of a name (RFC 1035, 2.3.4, without the length of the first label and the root's).
pub(super) const MOST_BYTES: usize = 253;

/// A name of a host, without a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostName {
    /// A whole name, in lower case, or an IPv4 address.
    Full(String),
    /// All names that end with this text, which begins with a dot.
    Under(String),
    /// An IPv6 address.
    Address(Ipv6Addr),
}

/// The host of an authority: without the port, and without a dot at the end.
pub(crate) fn bare(authority: &str) -> &str {
    // Only digits and colons follow the bracket of an address.
    let end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let host = match authority[end..].find(':') {
        Some(colon) => &authority[..end + colon],
        None => authority,
    };
    host.strip_suffix('.').unwrap_or(host)
}

fn is_label(label: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=63).contains(&label.len()) && label.bytes().all(is_known)
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<HostName, String> {
        let address = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        if let Some(Ok(address)) = address.map(str::parse) {
            return Ok(HostName::Address(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let (is_wildcard, full) = match name.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, name.as_str()),
        };
        if name.len() > MOST_BYTES || !full.split('.').all(is_label) {
            return Err(format!(
                "'{text}' is not a name of a host; expected a name without scheme and port, such as example.org, *.example.org \
                 and [2001:db8::1]"
            ));
        }
        Ok(if is_wildcard { HostName::Under(name[1..].to_owned()) } else { HostName::Full(name) })
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostName::Full(name) => f.write_str(name),
            HostName::Under(rest) => write!(f, "*{rest}"),
            HostName::Address(address) => write!(f, "[{address}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_spelling() {
        for (text, shown) in [
            ("Example.ORG.", "example.org"),
            ("*.Example.org", "*.example.org"),
            ("localhost", "localhost"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("[2001:DB8:0::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(text.parse::<HostName>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn mistakes_name_what_is_accepted() {
        let long = "x".repeat(64);
        for text in [
            "",
            ".",
            "*",
            "*.",
            "*.*.a",
            "a.*.b",
            "a*.b",
            "a:80",
            "http://a",
            "a/b",
            "a b",
            "::1",
            "[::1]:80",
            "[::g]",
            "b\u{fc}cher.example",
            "a..b",
            ".a",
            "../a",
            &long,
        ] {
            let error = text.parse::<HostName>().unwrap_err();
            assert!(error.contains("is not a name of a host; expected"), "{text}: {error}");
        }
    }

    #[test]
    fn an_authority_is_reduced_to_its_host() {
        for (authority, host) in [
            ("a:80", "a"),
            ("a", "a"),
            ("a.", "a"),
            ("a.:80", "a"),
            ("", ""),
            (":", ""),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("]:", "]"),
        ] {
            assert_eq!(bare(authority), host);
        }
    }
}
