//! Turns a request's path into a name below the root and into the path's only key in the cache.
//!
//! Owns percent-decoding, dot segments and the hiding of dot-files. Knows no file system, because
//! [`root`](crate::Root) handles links. It is therefore a pure function of the received bytes.
//!
//! Invariants: a path that [`normalise`] accepts has no empty, `.` or `..` segment, no NUL, and no slash that
//! arrived encoded. It is decoded only once, and `normalise` leaves a canonical spelling unchanged. A
//! canonical path begins with exactly one slash and has only characters that are allowed in a URL, so that it
//! can be used in `Location`.

/// Longest name that can be opened (PATH_MAX without its NUL).
const LONGEST: usize = 4095;

/// The only directory with a leading dot that the Web reserves (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// A path that may be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitePath {
    /// The canonical spelling, percent-encoded: every other spelling normalises to it.
    pub canonical: String,
    /// The decoded name below the root, without a slash at either end; empty for the root itself.
    pub relative: Vec<u8>,
    /// True if the path asked for a directory: it ended in a slash or a dot segment.
    pub directory: bool,
}

/// The reason why a path is not looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No leading slash, an escape that is not `%` and two hex digits, `%00`, or `%2F`. An encoded slash is
    /// data to some intermediaries and a separator to others, and no file name can contain it.
    #[error("the path is malformed")]
    Malformed,
    /// `..` segments that climb above the root.
    #[error("the path climbs above the root")]
    AboveRoot,
    /// A segment begins with a dot (but `/.well-known/`), and dot-files are hidden.
    #[error("the path names a hidden file")]
    Hidden,
    /// The path is longer than any name that the kernel takes.
    #[error("the path is too long")]
    TooLong,
}

/// Decodes a path (without the query) and resolves its dot segments by name, as RFC 3986, 5.2.4 does,
/// but refuses to climb above the root. Empty segments are dropped.
///
/// # Errors
/// See [`PathError`].
pub fn normalise(raw: &str, show_dot_files: bool) -> Result<SitePath, PathError> {
    let segments = raw.strip_prefix('/').ok_or(PathError::Malformed)?;
    let mut relative = Vec::with_capacity(raw.len());
    let mut directory = true;
    for segment in segments.split('/') {
        let parent_end = relative.len();
        if parent_end > 0 {
            relative.push(b'/');
        }
        let name_start = relative.len();
        decode(segment.as_bytes(), &mut relative)?;
        directory = match &relative[name_start..] {
            b"" | b"." => {
                relative.truncate(parent_end);
                true
            }
            b".." if parent_end == 0 => return Err(PathError::AboveRoot),
            b".." => {
                let grandparent_end = memchr::memrchr(b'/', &relative[..parent_end]).unwrap_or(0);
                relative.truncate(grandparent_end);
                true
            }
            _ => false,
        };
    }
    if relative.len() > LONGEST {
        return Err(PathError::TooLong);
    }
    if !show_dot_files && is_hidden(&relative) {
        return Err(PathError::Hidden);
    }
    Ok(SitePath { canonical: canonical(&relative, directory), relative, directory })
}

/// Appends the decoded bytes of a segment.
fn decode(segment: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let mut rest = segment;
    while let [first, tail @ ..] = rest {
        let (byte, after) = match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                let byte = hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low);
                (byte.filter(|&byte| byte != b'/').ok_or(PathError::Malformed)?, after)
            }
            (b'%', _) => return Err(PathError::Malformed),
            (&plain, after) => (plain, after),
        };
        if byte == 0 {
            return Err(PathError::Malformed);
        }
        out.push(byte);
        rest = after;
    }
    Ok(())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// True if a part of a name below the root begins with a dot, but for `/.well-known/`.
pub(crate) fn is_hidden(relative: &[u8]) -> bool {
    let mut segments = relative.split(|&byte| byte == b'/').enumerate();
    segments.any(|(depth, name)| name.starts_with(b".") && !(depth == 0 && name == WELL_KNOWN))
}

fn canonical(relative: &[u8], directory: bool) -> String {
    let mut path = String::with_capacity(relative.len() + 2);
    path.push('/');
    encode(relative, &mut path);
    if directory && !relative.is_empty() {
        path.push('/');
    }
    path
}

/// Appends a name in the canonical spelling.
pub fn encode(name: &[u8], out: &mut String) {
    for &byte in name {
        // RFC 3986: unreserved, sub-delims, ":", "@", and the slashes between segments.
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            push_escaped(byte, out);
        }
    }
}

/// The canonical spelling of a part of a path, whose segments stay as they are.
///
/// # Errors
/// [`PathError::Malformed`] for an escape that [`normalise`] refuses too.
pub(crate) fn respell(part: &str) -> Result<String, PathError> {
    let (mut decoded, mut spelt) = (Vec::new(), String::new());
    decode(part.as_bytes(), &mut decoded)?;
    encode(&decoded, &mut spelt);
    Ok(spelt)
}

/// Appends `%` and the byte's two hex digits.
pub(crate) fn push_escaped(byte: u8, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn relative(raw: &str) -> Result<String, PathError> {
        normalise(raw, false).map(|path| String::from_utf8_lossy(&path.relative).into_owned())
    }

    #[test]
    fn every_spelling_has_one_canonical_form() {
        for (raw, canonical) in [
            ("/", "/"),
            ("//", "/"),
            ("/.", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("/a//b", "/a/b"),
            ("//a", "/a"),
            ("/a/./b", "/a/b"),
            ("/a/b/..", "/a/"),
            ("/a/../b", "/b"),
            ("/a/b/../../c", "/c"),
            ("/%61%2e%2E/x/%2e%2e", "/a../"),
            ("/a%20b", "/a%20b"),
            ("/a%c3%a9", "/a%C3%A9"),
            ("/aé", "/a%C3%A9"),
            ("/%252e%252e/x", "/%252e%252e/x"),
            ("/a\\b", "/a%5Cb"),
            ("/\\evil.example", "/%5Cevil.example"),
            ("/~u/@me:(1)", "/~u/@me:(1)"),
            ("/.well-known/acme", "/.well-known/acme"),
        ] {
            assert_eq!(normalise(raw, false).unwrap().canonical, canonical, "{raw}");
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        for (raw, error) in [
            ("", PathError::Malformed),
            ("a", PathError::Malformed),
            ("*", PathError::Malformed),
            ("/%", PathError::Malformed),
            ("/%4", PathError::Malformed),
            ("/%zz", PathError::Malformed),
            ("/%+1", PathError::Malformed),
            ("/a%00", PathError::Malformed),
            ("/a\0", PathError::Malformed),
            ("/a%2Fb", PathError::Malformed),
            ("/a%2fb", PathError::Malformed),
            ("/..", PathError::AboveRoot),
            ("/../etc/passwd", PathError::AboveRoot),
            ("/a/../../b", PathError::AboveRoot),
            ("/%2e%2e/b", PathError::AboveRoot),
            ("/.%2E/b", PathError::AboveRoot),
            ("//../b", PathError::AboveRoot),
            ("/.git/config", PathError::Hidden),
            ("/a/.htaccess", PathError::Hidden),
            ("/%2egit", PathError::Hidden),
            ("/...", PathError::Hidden),
            ("/a/.well-known/x", PathError::Hidden),
            ("/.well-known/.x", PathError::Hidden),
            ("/.well-knownx", PathError::Hidden),
        ] {
            assert_eq!(relative(raw), Err(error), "{raw}");
        }
        assert_eq!(relative(&format!("/{}", "a".repeat(5000))), Err(PathError::TooLong));
    }

    #[test]
    fn dot_files_can_be_shown() {
        assert_eq!(normalise("/.git/config", true).unwrap().relative, b".git/config");
        assert_eq!(normalise("/..", true), Err(PathError::AboveRoot));
    }

    /// The segments of a path, one after the other on a stack, and whether it asks for a directory.
    fn segments_of(raw: &str, show_dot_files: bool) -> Result<(Vec<u8>, bool), PathError> {
        let mut stack: Vec<Vec<u8>> = Vec::new();
        let mut directory = true;
        for segment in raw.strip_prefix('/').ok_or(PathError::Malformed)?.split('/') {
            let (plain, escaped) = segment.split_once('%').unwrap_or((segment, ""));
            let mut name = plain.as_bytes().to_vec();
            for escape in escaped.split('%').filter(|_| segment.contains('%')) {
                let (digits, rest) = escape.split_at_checked(2).ok_or(PathError::Malformed)?;
                let byte = u8::from_str_radix(digits, 16).map_err(|_| PathError::Malformed)?;
                if byte == 0 || byte == b'/' {
                    return Err(PathError::Malformed);
                }
                name.push(byte);
                name.extend_from_slice(rest.as_bytes());
            }
            directory = [&b""[..], b".", b".."].contains(&&name[..]);
            match &name[..] {
                b".." => drop(stack.pop().ok_or(PathError::AboveRoot)?),
                _ if directory => {}
                _ => stack.push(name),
            }
        }
        let is_hidden = stack.iter().any(|name| name[0] == b'.');
        if is_hidden && !show_dot_files { Err(PathError::Hidden) } else { Ok((stack.join(&b'/'), directory)) }
    }

    #[test]
    fn every_short_path_is_resolved_as_on_a_stack() {
        for text in base::every_text(b"/.%2eF0", 6) {
            let raw = format!("/{}", String::from_utf8(text).unwrap());
            for show in [true, false] {
                let found = normalise(&raw, show).map(|path| (path.relative, path.directory));
                assert_eq!(found, segments_of(&raw, show), "{raw}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_stays_below_the_root(raw in "/?(\\PC|[/.%2eEfF\\\\]){0,40}", show: bool) {
            if let Ok(path) = normalise(&raw, show) {
                prop_assert!(!path.relative.contains(&0));
                if !path.relative.is_empty() {
                    for segment in path.relative.split(|&byte| byte == b'/') {
                        prop_assert!(![&b""[..], b".", b".."].contains(&segment));
                    }
                }
                prop_assert!(path.canonical.starts_with('/') && !path.canonical.starts_with("//"));
                prop_assert!(path.canonical.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'));
                prop_assert_eq!(normalise(&path.canonical, show), Ok(path));
            }
        }

        #[test]
        fn every_name_is_reached_by_its_canonical_path(name in proptest::collection::vec(1u8..=255, 1..20)) {
            prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
            let path = normalise(&canonical(&name, false), true).unwrap();
            prop_assert_eq!(path.relative, name);
        }
    }
}
