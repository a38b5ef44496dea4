//! Conditional requests (RFC 9110, 13): compares the client's version of a file with the current one.
//!
//! Owns the order of precedence of 13.2.2 and the comparison of entity tags and dates. An entity tag consists
//! of the inode, the times of modification and of change in nanoseconds, the length and the coding, and
//! counts as strong. The modification time alone does not suffice: builds and archives set it, so that two
//! versions can share it. The time of change cannot be set. Copies of one tree on several machines therefore
//! have different tags. A client that moves to another machine gets 200 in place of 304.
//!
//! A date in `If-Range` never matches. By 13.1.5 only a strong validator does, and a date is one only if the file
//! cannot have changed twice in its second (8.8.2.2). Every answer has an entity tag for this purpose.

use http_semantics::Request;

/// The set of present fields that change the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked(u8);

impl Asked {
    pub(crate) const ACCEPT_ENCODING: Asked = Asked(1);
    pub(crate) const RANGE: Asked = Asked(2);
    pub(crate) const IF_RANGE: Asked = Asked(4);
    pub(crate) const IF_MATCH: Asked = Asked(8);
    pub(crate) const IF_NONE_MATCH: Asked = Asked(16);
    pub(crate) const IF_MODIFIED_SINCE: Asked = Asked(32);
    pub(crate) const IF_UNMODIFIED_SINCE: Asked = Asked(64);

    /// Reads all fields once. Compares a name only if it has the length of one of ours.
    pub(crate) fn of(request: &Request<'_>) -> Asked {
        let mut asked = Asked(0);
        for field in request.fields {
            let (name, flag) = match field.name.len() {
                5 => ("range", Asked::RANGE),
                8 if field.name.as_bytes()[3] | 0x20 == b'm' => ("if-match", Asked::IF_MATCH),
                8 => ("if-range", Asked::IF_RANGE),
                13 => ("if-none-match", Asked::IF_NONE_MATCH),
                15 => ("accept-encoding", Asked::ACCEPT_ENCODING),
                17 => ("if-modified-since", Asked::IF_MODIFIED_SINCE),
                19 => ("if-unmodified-since", Asked::IF_UNMODIFIED_SINCE),
                _ => continue,
            };
            if field.name.eq_ignore_ascii_case(name) {
                asked.0 |= flag.0;
            }
        }
        asked
    }

    pub(crate) fn has(self, flag: Asked) -> bool {
        self.0 & flag.0 != 0
    }

    /// True if no field but `Accept-Encoding` is present.
    pub(crate) fn is_plain(self) -> bool {
        self.0 & !Asked::ACCEPT_ENCODING.0 == 0
    }
}

/// The validators of a version of a representation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validators<'a> {
    /// The entity tag with its quotes; always strong.
    pub(crate) etag: &'a [u8],
    /// `Last-Modified` in seconds since 1970; `None` if the time cannot be written as an HTTP date.
    pub(crate) modified: Option<u64>,
}

/// The result of the preconditions of a GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request proceeds.
    Proceed,
    /// 304 (Not Modified).
    NotModified,
    /// 412 (Precondition Failed).
    Failed,
}

/// Evaluates RFC 9110, 13.2.2, steps 1 to 4, for GET and HEAD.
pub(crate) fn evaluate(request: &Request<'_>, asked: Asked, own: Validators<'_>) -> Verdict {
    if asked.has(Asked::IF_MATCH) {
        if !lists(request.values("if-match"), own.etag, Comparison::Strong) {
            return Verdict::Failed;
        }
    } else if asked.has(Asked::IF_UNMODIFIED_SINCE)
        && let Some((modified, date)) = own.modified.zip(date(request, "if-unmodified-since"))
        && modified > date
    {
        return Verdict::Failed;
    }
    if asked.has(Asked::IF_NONE_MATCH) {
        if lists(request.values("if-none-match"), own.etag, Comparison::Weak) {
            return Verdict::NotModified;
        }
    } else if asked.has(Asked::IF_MODIFIED_SINCE)
        && let Some((modified, date)) = own.modified.zip(date(request, "if-modified-since"))
        && modified <= date
    {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// True if a `Range` field counts (RFC 9110, 13.1.5). It counts without `If-Range`, and with an `If-Range`
/// whose only value is our entity tag.
pub(crate) fn range_applies(request: &Request<'_>, asked: Asked, own: Validators<'_>) -> bool {
    // A weak tag begins with `W/`, so it never equals ours.
    !asked.has(Asked::IF_RANGE) || request.value("if-range") == Some(own.etag)
}

/// The comparison of entity tags (RFC 9110, 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// True if a list of entity tags, or `*`, includes ours.
fn lists<'a>(mut values: impl Iterator<Item = &'a [u8]>, own: &[u8], how: Comparison) -> bool {
    values.any(|value| value.trim_ascii() == b"*" || list_holds(value, own, how))
}

/// Reads up to the first element that is not an entity tag, because nothing after it is reliable.
fn list_holds(list: &[u8], own: &[u8], how: Comparison) -> bool {
    let mut rest = list;
    loop {
        while let [b' ' | b'\t' | b',', tail @ ..] = rest {
            rest = tail;
        }
        let (weak, tag) = match rest.strip_prefix(b"W/") {
            Some(tag) => (true, tag),
            None => (false, rest),
        };
        let Some(opaque) = tag.strip_prefix(b"\"") else { return false };
        let Some(closing) = memchr::memchr(b'"', opaque) else { return false };
        let (tag, tail) = tag.split_at(closing + 2);
        if tag == own && (how == Comparison::Weak || !weak) {
            return true;
        }
        rest = tail;
    }
}

/// The value of a date field that occurs once and is a valid date.
fn date(request: &Request<'_>, name: &str) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(request.value(name)?).ok()?).ok()?;
    Some(date.duration_since(std::time::SystemTime::UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_semantics::Header;
    use proptest::prelude::*;

    const ETAG: &str = "\"a1-400\"";
    /// Sun, 06 Nov 1994 08:49:37 GMT
    const MODIFIED: u64 = 784_111_777;
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const THEN_RFC_850: &str = "Sunday, 06-Nov-94 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn with<T>(fields: &[(&str, &str)], check: impl FnOnce(&Request<'_>, Asked, Validators<'_>) -> T) -> T {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        let request = Request { host: "a", fields: &fields, ..Request::get("/") };
        let own = Validators { etag: ETAG.as_bytes(), modified: Some(MODIFIED) };
        check(&request, Asked::of(&request), own)
    }

    #[test]
    fn preconditions_in_their_order() {
        use Verdict::{Failed, NotModified, Proceed};
        let (yes, no) = (ETAG, "\"other\"");
        let table: &[(&[(&str, &str)], Verdict)] = &[
            (&[], Proceed),
            (&[("If-Match", yes)], Proceed),
            (&[("If-Match", no)], Failed),
            (&[("If-Match", "*")], Proceed),
            (&[("If-Match", "W/\"a1-400\"")], Failed),
            (&[("If-Match", "\"x\" , , \"a1-400\"")], Proceed),
            (&[("If-Match", no), ("If-Match", yes)], Proceed),
            (&[("If-Match", "nonsense")], Failed),
            (&[("If-Unmodified-Since", THEN)], Proceed),
            (&[("If-Unmodified-Since", AFTER)], Proceed),
            (&[("If-Unmodified-Since", BEFORE)], Failed),
            (&[("If-Unmodified-Since", "yesterday")], Proceed),
            (&[("If-Match", yes), ("If-Unmodified-Since", BEFORE)], Proceed),
            (&[("If-Match", no), ("If-None-Match", yes)], Failed),
            (&[("If-Match", yes), ("If-None-Match", yes)], NotModified),
            (&[("If-Unmodified-Since", BEFORE), ("If-None-Match", yes)], Failed),
            (&[("If-None-Match", yes)], NotModified),
            (&[("if-none-match", yes)], NotModified),
            (&[("If-None-Match", "W/\"a1-400\"")], NotModified),
            (&[("If-None-Match", "\"with, comma\",\"a1-400\"")], NotModified),
            (&[("If-None-Match", "*")], NotModified),
            (&[("If-None-Match", no)], Proceed),
            (&[("If-None-Match", "\"unclosed")], Proceed),
            (&[("If-None-Match", "a1-400")], Proceed),
            (&[("If-None-Match", no), ("If-Modified-Since", THEN)], Proceed),
            (&[("If-None-Match", yes), ("If-Modified-Since", BEFORE)], NotModified),
            (&[("If-Modified-Since", THEN)], NotModified),
            (&[("If-Modified-Since", THEN_RFC_850)], NotModified),
            (&[("If-Modified-Since", AFTER)], NotModified),
            (&[("If-Modified-Since", BEFORE)], Proceed),
            (&[("If-Modified-Since", "0")], Proceed),
            (&[("If-Modified-Since", THEN), ("If-Modified-Since", THEN)], Proceed),
        ];
        for (fields, verdict) in table {
            assert_eq!(with(fields, evaluate), *verdict, "{fields:?}");
        }
    }

    #[test]
    fn if_range_wants_exactly_this_version() {
        for (fields, applies) in [
            (&[][..], true),
            (&[("If-Range", ETAG)], true),
            (&[("If-Range", "\"other\"")], false),
            (&[("If-Range", "W/\"a1-400\"")], false),
            (&[("If-Range", THEN)], false),
            (&[("If-Range", BEFORE)], false),
            (&[("If-Range", AFTER)], false),
            (&[("If-Range", "*")], false),
            (&[("If-Range", ETAG), ("If-Range", ETAG)], false),
        ] {
            assert_eq!(with(fields, range_applies), applies, "{fields:?}");
        }
    }

    #[test]
    fn without_a_date_of_ours_dates_are_ignored() {
        let undated = Validators { etag: ETAG.as_bytes(), modified: None };
        let fields = [("If-Modified-Since", AFTER), ("If-Unmodified-Since", BEFORE), ("If-Range", "no date")];
        assert_eq!(with(&fields, |request, asked, _| evaluate(request, asked, undated)), Verdict::Proceed);
        assert!(!with(&fields, |request, asked, _| range_applies(request, asked, undated)));
    }

    #[test]
    fn names_of_equal_length_are_told_apart() {
        let others = [("Priority-Now1", "x"), ("Etag4", "x"), ("If-Other", "x"), ("Accept-Datetime", "x")];
        assert!(with(&others, |_, asked, _| asked == Asked::default()));
        assert!(with(&[("ACCEPT-ENCODING", "br")], |_, asked, _| asked == Asked::ACCEPT_ENCODING));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(
            value in proptest::collection::vec(any::<u8>(), 0..60),
            tags in "((W/)?\"[a1-]{0,6}\"?[, ]*){0,6}",
        ) {
            for bytes in [&value[..], tags.as_bytes()] {
                let strong = list_holds(bytes, ETAG.as_bytes(), Comparison::Strong);
                let weak = list_holds(bytes, ETAG.as_bytes(), Comparison::Weak);
                prop_assert!(weak || !strong);
            }
        }
    }
}
