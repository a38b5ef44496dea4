//! A request's head, as borrowed views of the bytes that arrived.

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
    /// The method a token names.
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

    /// The method's token, as it stands in a request line.
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
    /// HTTP/1.0: not persistent unless asked for; no chunked coding, no 100 (Continue).
    Http10,
    /// HTTP/1.1
    Http11,
}

/// One complete, unambiguous request. Framing has been dealt with: a service never sees
/// `Content-Length`, `Transfer-Encoding`, `Connection` or `Expect` problems.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is to be done.
    pub method: Method<'a>,
    /// Origin form: begins with `/`, query included, still percent-encoded; an absolute-form target has
    /// been reduced to it. Or exactly `*`, with OPTIONS only.
    pub target: &'a str,
    /// The version the client speaks.
    pub version: Version,
    /// The value of `Host` (or the authority of an absolute-form target, which wins); empty where
    /// HTTP/1.0 sent none.
    pub host: &'a str,
    /// All header fields in the order of arrival, values trimmed.
    pub fields: &'a [httparse::Header<'a>],
    /// The content, where [`server::Limits::keep_body`](crate::server) asks for it; empty otherwise.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// The path: the target up to the `?`.
    pub fn path(&self) -> &'a str {
        self.target.split('?').next().unwrap_or(self.target)
    }

    /// The values of all fields of a name, in order; names compare without case.
    pub fn values<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let fields = self.fields;
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// The value of a field that may occur once; nothing where it is absent *or repeated*, because a
    /// repeated singleton means nothing that can be relied on.
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        let mut values = self.values(name);
        values.next().filter(|_| values.next().is_none())
    }
}
