//! Header lines by path pattern.

use std::str::FromStr;

use http_semantics::{Transport, is_token_byte};

use super::pattern::{LONGEST, Pattern};

/// The fields that the server decides about: framing, the connection, and the description of the content.
const OWN: [&str; 20] = [
    "accept-ranges",
    "allow",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "location",
    "proxy-connection",
    "retry-after",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "www-authenticate",
];

/// The fields that tell caches how long they may keep the content.
const CACHING: [&str; 2] = ["cache-control", "expires"];

/// The field that browsers obey over TLS alone, and that must not be sent without it (RFC 6797, 7.2).
const SECURE: &str = "strict-transport-security";

/// A header line for some paths, as text `PATTERN NAME: VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    paths: Pattern,
    name: String,
    /// The whole line, with its end.
    line: String,
}

impl FromStr for HeaderRule {
    type Err = String;

    fn from_str(text: &str) -> Result<HeaderRule, String> {
        let accepted = "expected PATH NAME: VALUE, such as '/assets/* Cache-Control: max-age=3600'";
        let (paths, line) = text.trim().split_once([' ', '\t']).unwrap_or((text, ""));
        let Some((name, value)) = line.trim().split_once(':') else {
            return Err(format!("'{text}' is not a header line; {accepted}"));
        };
        let value = value.trim_matches([' ', '\t']);
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            return Err(format!("'{name}' is not a name of a header field; {accepted}"));
        }
        if OWN.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return Err(format!(
                "the server itself sets {name}; expected another field, such as Cache-Control"
            ));
        }
        if value.is_empty() || !value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            return Err(format!(
                "the value of {name} is empty or has a character that is not printable ASCII; {accepted}"
            ));
        }
        if text.len() > LONGEST {
            return Err(format!("the line of {name} is too long; expected {LONGEST} bytes"));
        }
        Ok(HeaderRule { paths: paths.parse()?, name: name.to_owned(), line: format!("{name}: {value}\r\n") })
    }
}

/// The header lines of a path, each with its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    /// The lines about caches, for the content of the path alone. An error that a cache kept for a year
    /// would outlive its cause.
    pub(crate) caching: String,
    /// The lines for every answer.
    pub(crate) always: String,
    /// The line for every answer over TLS.
    pub(crate) secure: String,
}

impl Lines {
    /// The lines for an answer without a file.
    pub(crate) fn without_file(mut self, transport: Transport) -> String {
        if transport.is_secure() {
            self.always.push_str(&self.secure);
        }
        self.always
    }

    pub(super) fn of(rules: &[HeaderRule], path: &str) -> Lines {
        let mut lines = Lines::default();
        let matching = |rule: &&HeaderRule| rule.paths.matches(path);
        for (place, rule) in rules.iter().enumerate().filter(|(_, rule)| matching(rule)) {
            let later = &rules[place + 1..];
            if later.iter().filter(matching).any(|other| other.name.eq_ignore_ascii_case(&rule.name)) {
                continue;
            }
            let is_caching = CACHING.iter().any(|name| rule.name.eq_ignore_ascii_case(name));
            let kind = if is_caching {
                &mut lines.caching
            } else if rule.name.eq_ignore_ascii_case(SECURE) {
                &mut lines.secure
            } else {
                &mut lines.always
            };
            kind.push_str(&rule.line);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_for_a_name_decides() {
        let rules = [
            "/* X-Frame-Options: DENY",
            "/* Cache-Control: no-cache",
            "/assets/* cache-control:  public, max-age=31536000 ",
            "/*.json Access-Control-Allow-Origin: *",
        ]
        .map(|text| text.parse().unwrap());
        let lines = |path: &str| Lines::of(&rules, path);
        assert_eq!(lines("/a").always, "X-Frame-Options: DENY\r\n");
        assert_eq!(lines("/a").caching, "Cache-Control: no-cache\r\n");
        assert_eq!(lines("/assets/a").caching, "cache-control: public, max-age=31536000\r\n");
        let expected = "X-Frame-Options: DENY\r\nAccess-Control-Allow-Origin: *\r\n";
        assert_eq!(lines("/assets/a.json").always, expected);
    }

    #[test]
    fn mistakes_name_what_is_accepted() {
        for (text, said) in [
            ("", "expected PATH NAME: VALUE"),
            ("/a", "expected PATH NAME: VALUE"),
            ("/a X", "expected PATH NAME: VALUE"),
            ("/a X Y: z", "'X Y' is not a name"),
            ("/a : z", "'' is not a name"),
            ("/a :status: 200", "'' is not a name"),
            ("/a X: ", "empty"),
            ("/a X: a\r\nY: b", "not printable ASCII"),
            ("/a X: a\u{7f}", "not printable ASCII"),
            ("/a X: \u{e9}", "not printable ASCII"),
            ("/a Content-Length: 5", "the server itself sets Content-Length"),
            ("/a transfer-encoding: chunked", "the server itself sets transfer-encoding"),
            ("/a Connection: close", "the server itself sets Connection"),
            ("/a Date: today", "the server itself sets Date"),
            ("a X: y", "expected a path such as"),
        ] {
            let error = text.parse::<HeaderRule>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(
            format!("/a X: {}", "y".repeat(LONGEST)).parse::<HeaderRule>().unwrap_err().contains("too long")
        );
    }
}
