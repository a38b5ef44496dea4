//! The form of all requests of a run: method, header fields and content.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::WorkloadError;

/// Fields that follow from the connection and the content, so that a user cannot set them.
const OWN_FIELDS: [&str; 3] = ["Connection", "Content-Length", "Transfer-Encoding"];

/// The form of a request.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// The method; `None` selects POST with content and GET without.
    pub method: Option<Method>,
    /// Further header fields.
    pub fields: Vec<Field>,
    /// The content; `None` sends no content.
    pub body: Option<Body>,
}

/// The token of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method(String);

/// A header field, as it appears in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field(String);

/// The content of a request, and the text that named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    given: String,
    content: Arc<[u8]>,
}

impl Form {
    /// The method of the requests.
    pub fn method(&self) -> &str {
        match (&self.method, &self.body) {
            (Some(Method(name)), _) => name,
            (None, Some(_)) => "POST",
            (None, None) => "GET",
        }
    }

    /// The content; empty for a form without content.
    pub(crate) fn content(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |body| &body.content)
    }

    /// The length of the content, if the form has any.
    pub(crate) fn content_length(&self) -> Option<String> {
        self.body.as_ref().map(|body| body.content.len().to_string())
    }

    /// The values of the Host fields, which replace the URL's authority.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(|field| field.is_host()).map(Field::value)
    }

    /// The fields but Host.
    pub(crate) fn fields_beside_host(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| !field.is_host())
    }

    /// The header lines that this form adds to a request beside Host, each with its CRLF.
    pub(crate) fn field_lines(&self) -> String {
        let mut lines: String = self.fields_beside_host().map(|Field(line)| format!("{line}\r\n")).collect();
        if let Some(length) = self.content_length() {
            lines.push_str(&format!("Content-Length: {length}\r\n"));
        }
        lines
    }
}

impl Field {
    /// The name.
    pub(crate) fn name(&self) -> &str {
        self.0.split_once(": ").map_or(&self.0, |(name, _)| name)
    }

    /// Returns true for Host.
    pub(crate) fn is_host(&self) -> bool {
        self.name().eq_ignore_ascii_case("Host")
    }

    /// The value.
    pub(crate) fn value(&self) -> &str {
        self.0.split_once(": ").map_or("", |(_, value)| value)
    }
}

impl Method {
    /// The token.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

/// Returns true for a token (RFC 9110, 5.6.2).
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

impl FromStr for Method {
    type Err = WorkloadError;
    fn from_str(text: &str) -> Result<Method, WorkloadError> {
        // After a successful CONNECT another protocol follows instead of content.
        if is_token(text) && text != "CONNECT" {
            return Ok(Method(text.to_owned()));
        }
        Err(WorkloadError::not(text, "a method such as GET, HEAD or POST"))
    }
}

impl FromStr for Field {
    type Err = WorkloadError;
    fn from_str(text: &str) -> Result<Field, WorkloadError> {
        let refuse = || WorkloadError::not(text, "a header field such as 'Accept: text/html'");
        let (name, value) = text.split_once(':').ok_or_else(refuse)?;
        if !is_token(name) || value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(refuse());
        }
        if OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            let expected = "a header field that can be given: Connection, Content-Length and Transfer-Encoding follow \
                            from the other settings";
            return Err(WorkloadError::not(text, expected));
        }
        let field = Field(format!("{name}: {}", value.trim()));
        let is_authority =
            |value: &str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        if field.is_host() && !is_authority(field.value()) {
            return Err(WorkloadError::not(text, "a host such as 'Host: example.org:8080'"));
        }
        Ok(field)
    }
}

impl FromStr for Body {
    type Err = WorkloadError;

    /// Takes the text itself, or reads the file that follows `@`.
    fn from_str(text: &str) -> Result<Body, WorkloadError> {
        let content = match text.strip_prefix('@') {
            None => text.as_bytes().to_vec(),
            Some(path) => std::fs::read(path).map_err(|cause| WorkloadError {
                given: text.to_owned(),
                why: format!("cannot be read: {cause}"),
            })?,
        };
        Ok(Body { given: text.to_owned(), content: content.into() })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_makes_it_a_post_unless_a_method_is_given() {
        let mut form = Form::default();
        assert_eq!((form.method(), form.field_lines()), ("GET", String::new()));
        form.body = Some("a=b".parse().unwrap());
        form.fields = vec!["Accept:text/html ".parse().unwrap(), "X-Empty:".parse().unwrap()];
        assert_eq!(form.method(), "POST");
        assert_eq!(form.field_lines(), "Accept: text/html\r\nX-Empty: \r\nContent-Length: 3\r\n");
        form.method = Some("PUT".parse().unwrap());
        assert_eq!((form.method(), form.content()), ("PUT", &b"a=b"[..]));
    }

    #[test]
    fn what_would_break_a_request_is_refused() {
        for text in ["", "GE T", "GET\r", "CONNECT"] {
            assert!(text.parse::<Method>().is_err(), "{text:?}");
        }
        for text in ["Accept", ": x", "A B: c", "A: b\r\nC: d", "host: ", "Host: a b", "Content-Length: 3"] {
            assert!(text.parse::<Field>().is_err(), "{text:?}");
        }
        let told = "@/no/such/file".parse::<Body>().unwrap_err().to_string();
        assert!(told.starts_with("'@/no/such/file' cannot be read: "), "{told}");
    }
}
