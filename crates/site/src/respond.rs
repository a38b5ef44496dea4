//! Turns the result of a look-up into an answer: whole, partial, not modified, or refused.
//!
//! Owns status codes and the lines that depend on the request. A representation's own lines come from
//! [`representation`](crate::representation).

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use http_semantics::{Body, Method, Pace, Part, Request, Response, Status};

use crate::counts::Counts;
use crate::representation::Representation;
use crate::representation::ranges::{self, Selection};
use crate::representation::validators::{self, Asked, Verdict};
use crate::rules::{Fixed, Rules, push_query};

/// The handle of a file that is being sent.
pub type File = Arc<OwnedFd>;

/// The answer to GET or HEAD for a file that exists.
pub(crate) fn file(
    found: &Representation,
    request: &Request<'_>,
    asked: Asked,
    counts: &mut Counts,
) -> Response<File> {
    let secure = request.transport.is_secure();
    if asked.is_plain() {
        return whole(found, secure);
    }
    let own = found.validators();
    match validators::evaluate(request, asked, own) {
        Verdict::NotModified => {
            return answer(Status::NOT_MODIFIED, found.fields_not_modified(secure), Body::Absent);
        }
        Verdict::Failed => return page(Status::PRECONDITION_FAILED, found.lines_of_errors(secure)),
        Verdict::Proceed => {}
    }
    // RFC 9110, 14.2: Range has a meaning for GET only. A repeated field is ambiguous and therefore ignored.
    if request.method == Method::Get
        && asked.has(Asked::RANGE)
        && validators::range_applies(request, asked, own)
        && let Some(range) = request.value("range")
    {
        return match ranges::select(range, found.length) {
            Selection::Ranges(ranges) => partial(found, &ranges, secure),
            Selection::Unsatisfiable => {
                let lines = found.lines_of_errors(secure);
                let length = format!("Content-Range: bytes */{}\r\n{lines}", found.length);
                page(Status::RANGE_NOT_SATISFIABLE, &length)
            }
            Selection::Ignored => whole(found, secure),
            Selection::TooMany => {
                counts.ranges_refused += 1;
                whole(found, secure)
            }
        };
    }
    whole(found, secure)
}

fn whole(found: &Representation, secure: bool) -> Response<File> {
    content(found, Status::OK, found.fields(secure), found.body())
}

/// An answer with content of a file, at the file's pace.
fn content(found: &Representation, status: Status, fields: Bytes, body: Body<File>) -> Response<File> {
    Response { pace: found.pace, ..answer(status, fields, body) }
}

/// A 206 answer: one range as it is, several as `multipart/byteranges`.
fn partial(found: &Representation, ranges: &[Range<u64>], secure: bool) -> Response<File> {
    let content_range = |range: &Range<u64>| {
        format!("Content-Range: bytes {}-{}/{}\r\n", range.start, range.end - 1, found.length)
    };
    if let [range] = ranges {
        let fields = [&found.fields(secure)[..], content_range(range).as_bytes()].concat();
        return content(found, Status::PARTIAL_CONTENT, fields.into(), found.part(range));
    }
    let parts = ranges.iter().map(|range| Part {
        fields: [found.content_type(), content_range(range).as_bytes()].concat().into(),
        body: found.part(range),
    });
    content(found, Status::PARTIAL_CONTENT, found.fields_but_type(secure), Body::Parts(parts.collect()))
}

/// The answer to OPTIONS, with further header lines.
pub(crate) fn options(lines: &str) -> Response<File> {
    let fields = ["Allow: GET, HEAD, OPTIONS\r\n", lines].concat();
    answer(Status::NO_CONTENT, fields.into(), Body::Absent)
}

/// The refusal of a method other than GET, HEAD or OPTIONS: 405 if HTTP defines it, 501 otherwise.
pub fn refused_method(method: Method<'_>) -> Option<Response<File>> {
    match method {
        Method::Get | Method::Head | Method::Options => None,
        Method::Other("PATCH" | "TRACE") | Method::Put | Method::Post | Method::Delete => {
            Some(page(Status::METHOD_NOT_ALLOWED, "Allow: GET, HEAD, OPTIONS\r\n"))
        }
        Method::Other(_) => Some(Response::error(Status::NOT_IMPLEMENTED)),
    }
}

/// Redirects to the same path with a slash, and keeps the query. The path is canonical, so that `Location`
/// neither names another host nor contains a line break.
pub(crate) fn add_slash(canonical: &str, target: &str) -> Response<File> {
    let mut location = format!("{canonical}/");
    push_query(target, &mut location);
    redirect(Status::MOVED_PERMANENTLY, &location)
}

/// Redirects to the same path without its slash, and keeps the query.
pub(crate) fn remove_slash(canonical: &str, target: &str) -> Response<File> {
    let mut location = canonical.trim_end_matches('/').to_owned();
    push_query(target, &mut location);
    redirect(Status::MOVED_PERMANENTLY, &location)
}

/// The response of a rule, at the pace of its path.
pub(crate) fn fixed(rule: &Fixed, pace: Option<Pace>) -> Response<File> {
    let text = rule.text.as_ref().map(|text| Body::Bytes(Bytes::copy_from_slice(text.as_bytes())));
    let plain = match rule.status {
        status if status.is_bodiless() => answer(status, Bytes::new(), Body::Absent),
        // RFC 9110, 15.5.6. Rules decide on GET and HEAD alone.
        Status::METHOD_NOT_ALLOWED => page(rule.status, "Allow: OPTIONS\r\n"),
        status => Response::error(status),
    };
    Response { body: text.unwrap_or(plain.body.clone()), pace, ..plain }
}

/// Asks for a name and a password.
pub(crate) fn unauthorized(realm: &str) -> Response<File> {
    page(Status::UNAUTHORIZED, &format!("WWW-Authenticate: Basic realm=\"{realm}\"\r\n"))
}

/// Refuses a client that has tried too many passwords, for some seconds.
pub(crate) fn too_many_tries(seconds: u64) -> Response<File> {
    page(Status::TOO_MANY_REQUESTS, &format!("Retry-After: {seconds}\r\n"))
}

/// A redirect to a URL, which has only printable ASCII.
pub(crate) fn redirect(status: Status, location: &str) -> Response<File> {
    page(status, &format!("Location: {location}\r\n"))
}

/// An error with a page of the site, which was found as a whole. Validators and ranges are those of the page
/// and not of the error, so their lines are left out.
pub(crate) fn error_with(error: Response<File>, found: &Response<File>) -> Response<File> {
    let described = ["Content-Type:", "Content-Encoding:", "Vary:"].map(str::as_bytes);
    let lines = found.fields.split_inclusive(|&byte| byte == b'\n');
    let fields: Vec<&[u8]> =
        lines.filter(|line| described.iter().any(|name| line.starts_with(name))).collect();
    let (fields, body) = (fields.concat().into(), found.body.clone());
    Response { fields, body, pace: found.pace, ..error }
}

/// The same answer with further header lines.
pub(crate) fn with_lines(response: Response<File>, lines: &str) -> Response<File> {
    if lines.is_empty() {
        return response;
    }
    Response { fields: [&response.fields[..], lines.as_bytes()].concat().into(), ..response }
}

/// A 503 that asks the client to return in a second.
pub(crate) fn unavailable() -> Response<File> {
    page(Status::SERVICE_UNAVAILABLE, "Retry-After: 1\r\n")
}

/// The page of a directory without its index.
pub(crate) fn no_index(rules: &Rules) -> Bytes {
    let page = Status::NOT_FOUND.page();
    if rules.listing {
        return Bytes::from_static(page.as_bytes());
    }
    let names = rules.index.join(" or ");
    format!("{page}There is no folder with {names} here, and folders are not listed: ask for a file by its name.\n")
        .into()
}

/// The plain page of a status, with further header lines.
pub(crate) fn page(status: Status, lines: &str) -> Response<File> {
    let page = Response::error(status);
    Response { fields: [&page.fields[..], lines.as_bytes()].concat().into(), ..page }
}

fn answer(status: Status, fields: Bytes, body: Body<File>) -> Response<File> {
    Response { status, fields, body, close: false, pace: None }
}
