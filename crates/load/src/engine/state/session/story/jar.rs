//! The cookies of one session (RFC 6265), of one server.
//!
//! Leaves out domains, because a run has one server, and paths and dates, which sessions of seconds do not need: a cookie
//! ends with the session, or when the server sets it again with `Max-Age=0`.

use http1::client::fields;

/// The most cookies of a session; later ones are ignored.
const COOKIES_MAX: usize = 50;

#[derive(Default)]
pub(super) struct Jar(Vec<Cookie>);

struct Cookie {
    name: String,
    value: String,
    is_secure: bool,
}

impl Jar {
    /// Takes the cookies of a reply's head.
    pub fn take(&mut self, head: &[u8]) {
        fields(head, |name, value| {
            if name.eq_ignore_ascii_case("Set-Cookie") {
                self.set(value);
            }
        });
    }

    /// Takes the value of a Set-Cookie field; ignores what is no cookie.
    fn set(&mut self, field: &[u8]) {
        let text = String::from_utf8_lossy(field);
        let mut parts = text.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { return };
        let (mut is_secure, mut is_over) = (false, false);
        for attribute in parts {
            let (key, given) = attribute.split_once('=').unwrap_or((attribute, ""));
            is_secure |= key.eq_ignore_ascii_case("Secure");
            let ends = given.trim().parse::<i64>().is_ok_and(|seconds| seconds <= 0);
            is_over |= key.eq_ignore_ascii_case("Max-Age") && ends;
        }
        let name = name.trim();
        self.0.retain(|cookie| cookie.name != name);
        if !is_over && !name.is_empty() && self.0.len() < COOKIES_MAX {
            let value = value.trim().to_owned();
            self.0.push(Cookie { name: name.to_owned(), value, is_secure });
        }
    }

    /// The value of the Cookie field; empty without cookies. Secure ones need TLS.
    pub fn field(&self, is_secure: bool) -> String {
        let sent = self.0.iter().filter(|cookie| is_secure || !cookie.is_secure);
        sent.map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_stay_until_they_are_set_again() {
        let mut jar = Jar::default();
        for field in ["a=1; Path=/; HttpOnly", "b=x=y; Secure", "nonsense", "=c", "a=2"] {
            jar.set(field.as_bytes());
        }
        assert_eq!((jar.field(true), jar.field(false)), ("b=x=y; a=2".to_owned(), "a=2".to_owned()));
        jar.set(b"a=; Max-Age=0");
        assert_eq!(jar.field(false), "");
    }
}
