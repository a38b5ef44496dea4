//! A request's head, as borrowed slices of the received bytes.

use std::net::IpAddr;

/// The request method (RFC 9110, 9.3). Methods are case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method<'a> {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `OPTIONS`
    Options,
    /// `PUT`
    Put,
    /// `POST`
    Post,
    /// `DELETE`
    Delete,
    /// Any other token.
    Other(&'a str),
}

impl<'a> Method<'a> {
    /// The method with this token.
    #[inline]
    pub fn from_token(token: &'a str) -> Method<'a> {
        match token {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "OPTIONS" => Method::Options,
            "PUT" => Method::Put,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            other => Method::Other(other),
        }
    }

    /// The method's token in a request line.
    #[inline]
    pub fn as_str(self) -> &'a str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Options => "OPTIONS",
            Method::Put => "PUT",
            Method::Post => "POST",
            Method::Delete => "DELETE",
            Method::Other(token) => token,
        }
    }
}

/// The protocol version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: not persistent by default; no chunked coding, no 100 (Continue).
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
}

/// The meaning of a TLS client's server name (SNI, RFC 6066) to the server. Both numbers are the server's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sni {
    /// The host of that name.
    pub host: u16,
    /// The certificate that the client got for it.
    pub certificate: u16,
}

/// The transport of a connection, as far as answers depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP alone.
    #[default]
    Plain,
    /// TLS, with the server's reading of the name that the client gave; `None` on a server of one host.
    Tls(Option<Sni>),
}

impl Transport {
    /// True under TLS.
    #[inline]
    pub fn is_secure(self) -> bool {
        self != Transport::Plain
    }

    /// The server's reading of the name that the client gave TLS, if there are several hosts.
    pub fn sni(self) -> Option<Sni> {
        match self {
            Transport::Plain => None,
            Transport::Tls(sni) => sni,
        }
    }
}

/// A complete, unambiguous request. A service never sees errors in `Content-Length`, `Transfer-Encoding`,
/// `Connection` or `Expect`, because the framing has been resolved.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The request's method.
    pub method: Method<'a>,
    /// The target in origin form: begins with `/`, includes the query, still percent-encoded. An
    /// absolute-form target has been reduced to origin form. With OPTIONS only, the target may be exactly
    /// `*`.
    pub target: &'a str,
    /// The client's protocol version.
    pub version: Version,
    /// The value of `Host`, or the authority of an absolute-form target, which overrules `Host`. Empty if an
    /// HTTP/1.0 client sent neither.
    pub host: &'a str,
    /// The client's address, if the driver knows it: the peer's, or the one that a proxy has reported.
    pub client: Option<IpAddr>,
    /// The transport below HTTP.
    pub transport: Transport,
    /// All header fields in the order of arrival, values trimmed.
    pub fields: &'a [httparse::Header<'a>],
    /// The content if [`Limits::keep_body`](crate::server::Limits::keep_body) is set; empty otherwise.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// A GET of a target over HTTP/1.1 and TCP, without a host, fields or content.
    pub fn get(target: &'a str) -> Request<'a> {
        Request {
            method: Method::Get,
            target,
            version: Version::Http11,
            host: "",
            client: None,
            transport: Transport::Plain,
            fields: &[],
            body: &[],
        }
    }

    /// The path: the target up to the `?`.
    #[inline]
    pub fn path(&self) -> &'a str {
        self.target.split('?').next().unwrap_or(self.target)
    }

    /// The values of all fields with this name, in order. Names compare without case.
    #[inline]
    pub fn values<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let fields = self.fields;
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// The value of a field that may occur once. Returns `None` if the field is absent *or repeated*, because
    /// a repeated singleton is unreliable.
    #[inline]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        let mut values = self.values(name);
        values.next().filter(|_| values.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(target: &'a str, fields: &'a [httparse::Header<'a>]) -> Request<'a> {
        Request { host: "a", fields, ..Request::get(target) }
    }

    #[test]
    fn rfc9110_9_1_methods_are_case_sensitive_tokens() {
        for token in ["GET", "HEAD", "OPTIONS", "PUT", "POST", "DELETE", "get", "M-SEARCH"] {
            let method = Method::from_token(token);
            assert_eq!(method.as_str(), token);
            let is_known = token.bytes().all(|byte| byte.is_ascii_uppercase());
            assert_eq!(matches!(method, Method::Other(_)), !is_known, "{token}");
        }
    }

    #[test]
    fn path_ends_at_the_first_question_mark() {
        for (target, path) in [("/a", "/a"), ("/a?b?c", "/a"), ("/?", "/"), ("*", "*")] {
            assert_eq!(request(target, &[]).path(), path);
        }
    }

    #[test]
    fn repeated_field_has_values_but_no_single_value() {
        let field = |name, value| httparse::Header { name, value };
        let fields = [field("A", b"1".as_slice()), field("b", b"2"), field("a", b"3")];
        let request = request("/", &fields);
        assert_eq!(request.values("a").collect::<Vec<_>>(), [b"1", b"3"]);
        assert_eq!(request.value("a"), None);
        assert_eq!(request.value("B"), Some(b"2".as_slice()));
        assert_eq!(request.value("c"), None);
    }

    #[test]
    fn only_tls_is_secure_and_has_a_name() {
        let sni = Sni { host: 1, certificate: 2 };
        for (transport, is_secure, name) in [
            (Transport::Plain, false, None),
            (Transport::Tls(None), true, None),
            (Transport::Tls(Some(sni)), true, Some(sni)),
        ] {
            assert_eq!((transport.is_secure(), transport.sni()), (is_secure, name));
        }
    }
}
