//! A request's header list, from fields to a [`Request`] or to its refusal (RFC 9113, 8.1 to 8.3).

use http_semantics::server::Limits;
use http_semantics::{
    Header, Method, Request, Status, Transport, Version, is_authority, is_text_byte, is_token_byte, number,
    origin_form,
};

use crate::hpack::Fields;
use crate::priority::Priority;

/// Fields that have a meaning only in HTTP/1.1 (RFC 9113, 8.2.2).
const OF_CONNECTIONS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// A valid head.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    /// The request, its body still empty.
    pub(crate) request: Request<'a>,
    /// The value of `content-length`.
    pub(crate) content_length: Option<u64>,
    /// The client waits for 100 (Continue) before it sends its content.
    pub(crate) expects_continue: bool,
    /// The value of `priority`, if present.
    pub(crate) priority: Option<Priority>,
}

/// The reason that a head is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// RFC 9113, 8.1.1: a stream error.
    Malformed,
    /// A response with this status.
    Status(Status),
}

#[derive(Default)]
struct Pseudo<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
}

/// Reads a header list. `slots` has room for [`http_semantics::server::MOST_FIELDS`].
///
/// # Errors
/// [`Refusal`].
pub(crate) fn parse<'a>(
    fields: &'a Fields,
    slots: &'a mut [Header<'a>],
    limits: &Limits,
) -> Result<Head<'a>, Refusal> {
    let mut pseudo = Pseudo::default();
    let mut count = 0;
    for (name, value) in fields.iter() {
        if let Some(name) = name.strip_prefix(b":") {
            let slot = if count == 0 { pseudo.slot(name) } else { None };
            set_once(slot.ok_or(Refusal::Malformed)?, value)?;
            continue;
        }
        let header = Header { name: field_name(name, value)?, value };
        if count >= limits.fields {
            return Err(Refusal::Status(Status::HEAD_TOO_LARGE));
        }
        let slot = slots.get_mut(count).ok_or(Refusal::Status(Status::HEAD_TOO_LARGE))?;
        *slot = header;
        count += 1;
    }
    if fields.too_long {
        return Err(Refusal::Status(Status::HEAD_TOO_LARGE));
    }
    read(&pseudo, &slots[..count], limits)
}

/// True if the trailer fields are valid.
pub(crate) fn are_trailers(fields: &Fields) -> bool {
    fields.iter().all(|(name, value)| field_name(name, value).is_ok())
}

impl<'a> Pseudo<'a> {
    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        match name {
            b"method" => Some(&mut self.method),
            b"scheme" => Some(&mut self.scheme),
            b"path" => Some(&mut self.path),
            b"authority" => Some(&mut self.authority),
            _ => None,
        }
    }
}

pub(crate) fn set_once<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8]) -> Result<(), Refusal> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::Malformed),
    }
}

/// Checks a field that is not a pseudo-field (RFC 9113, 8.2.1 and 8.2.2; RFC 9110, 5.5), and returns its name.
pub(crate) fn field_name<'a>(name: &'a [u8], value: &[u8]) -> Result<&'a str, Refusal> {
    let is_name = |byte: &u8| is_token_byte(*byte) && !byte.is_ascii_uppercase();
    let has_blank_ends = [value.first(), value.last()].iter().any(|end| matches!(end, Some(b' ' | b'\t')));
    let name =
        std::str::from_utf8(name).ok().filter(|name| !name.is_empty() && name.bytes().all(|b| is_name(&b)));
    let name = name.ok_or(Refusal::Malformed)?;
    let of_connection = OF_CONNECTIONS.contains(&name) || (name == "te" && value != b"trailers");
    match has_blank_ends || of_connection || !value.iter().copied().all(is_text_byte) {
        true => Err(Refusal::Malformed),
        false => Ok(name),
    }
}

fn read<'a>(pseudo: &Pseudo<'a>, fields: &'a [Header<'a>], limits: &Limits) -> Result<Head<'a>, Refusal> {
    let (mut host, mut length, mut expect) = (None, None, None);
    let mut priority: Option<Priority> = None;
    for field in fields {
        match field.name {
            "host" => set_once(&mut host, field.value)?,
            "content-length" => set_once(&mut length, field.value)?,
            "expect" => expect = Some(field.value),
            "priority" => priority = Some(priority.unwrap_or_default().with(field.value)),
            _ => {}
        }
    }
    let method = pseudo.method.and_then(|method| std::str::from_utf8(method).ok()).unwrap_or_default();
    if method.is_empty() || !method.bytes().all(is_token_byte) {
        return Err(Refusal::Malformed);
    }
    if method == "CONNECT" {
        return Err(Refusal::Status(Status::NOT_IMPLEMENTED));
    }
    let method = Method::from_token(method);
    let path = pseudo.path.filter(|path| !path.is_empty()).ok_or(Refusal::Malformed)?;
    pseudo.scheme.filter(|scheme| !scheme.is_empty()).ok_or(Refusal::Malformed)?;
    if let (Some(authority), Some(host)) = (pseudo.authority, host)
        && !authority.eq_ignore_ascii_case(host)
    {
        return Err(Refusal::Malformed);
    }
    if path.len() > limits.target_bytes {
        return Err(Refusal::Status(Status::URI_TOO_LONG));
    }
    let target = origin_form(path, method == Method::Options).ok_or(Refusal::Status(Status::BAD_REQUEST))?;
    let host = pseudo.authority.or(host).filter(|host| is_authority(host));
    let host =
        host.and_then(|host| std::str::from_utf8(host).ok()).ok_or(Refusal::Status(Status::BAD_REQUEST))?;
    let expects_continue = match expect {
        None => false,
        Some(value) if value.eq_ignore_ascii_case(b"100-continue") => true,
        Some(_) => return Err(Refusal::Status(Status::EXPECTATION_FAILED)),
    };
    let content_length = length.map(|digits| number(digits).ok_or(Refusal::Malformed)).transpose()?;
    let request = Request {
        method,
        target,
        version: Version::Http2,
        host,
        client: None,
        transport: Transport::default(),
        fields,
        body: &[],
    };
    Ok(Head { request, content_length, expects_continue, priority })
}
