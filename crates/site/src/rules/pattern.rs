//! Path patterns: a path, or a path with one `*`.

use std::str::FromStr;

use crate::path::{self, PathError};

/// Longest pattern, target or file of a rule, in bytes.
pub(super) const LONGEST: usize = 2048;

/// Splits the first word from a text. Both parts may be empty.
pub(super) fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once([' ', '\t']).map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

/// A path, or all paths with a beginning and an end. It is compared with canonical paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The whole path if there is no end.
    beginning: String,
    /// The part behind the `*`.
    end: Option<String>,
}

impl Pattern {
    /// The part of a canonical path in the place of the `*`; empty without one. `None` if the path does not
    /// match.
    pub fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(self.beginning.as_str())?;
        match &self.end {
            Some(end) => rest.strip_suffix(end.as_str()),
            None => rest.is_empty().then_some(rest),
        }
    }

    /// Tells whether a canonical path matches.
    pub fn matches(&self, path: &str) -> bool {
        self.rest(path).is_some()
    }

    /// The path with `rest` in the place of the `*`.
    pub(super) fn with_rest(&self, rest: &str) -> String {
        self.end.as_ref().map_or(self.beginning.clone(), |end| format!("{}{rest}{end}", self.beginning))
    }

    /// True if the pattern has a `*`.
    pub(super) fn has_rest(&self) -> bool {
        self.end.is_some()
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let wrong = |what: &str| {
            Err(format!(
                "the path '{text}' {what}; expected a path such as /old, /old/* or /*.js, with one * at most"
            ))
        };
        if !text.starts_with('/') {
            return wrong("does not begin with /");
        }
        if text.len() > LONGEST || text.matches('*').count() > 1 {
            return wrong("is too long or has more than one *");
        }
        if text.contains(|letter: char| letter.is_ascii_control() || "?# \\".contains(letter)) {
            return wrong("has a character that no path has");
        }
        let (beginning, end) = match text.split_once('*') {
            Some((beginning, end)) => (beginning, Some(end)),
            None => (text, None),
        };
        let parts = (path::respell(beginning), end.map(path::respell).transpose());
        let (Ok(beginning), Ok(end)): (Result<_, PathError>, Result<_, PathError>) = parts else {
            return wrong("has an escape that is no % and two digits, or stands for a slash");
        };
        let pattern = Pattern { beginning, end };
        let whole = pattern.with_rest("*");
        let mut segments = whole[1..].split('/').rev();
        // Only the last segment may be empty: the path of a folder.
        let last = segments.next().is_some_and(|last| [".", ".."].contains(&last));
        if last || segments.any(|segment| ["", ".", ".."].contains(&segment)) {
            return wrong("has an empty or dot segment, which no path has");
        }
        Ok(pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(pattern: &str, path: &str, rest: Option<&str>) {
        assert_eq!(pattern.parse::<Pattern>().unwrap().rest(path), rest, "{pattern} {path}");
    }

    #[test]
    fn the_star_stands_for_any_part_of_a_path() {
        check("/a", "/a", Some(""));
        check("/a", "/a/", None);
        check("/a", "/ab", None);
        check("/a/*", "/a/b/c", Some("b/c"));
        check("/a/*", "/a/", Some(""));
        check("/a/*", "/a", None);
        check("/*", "/", Some(""));
        check("/*.js", "/x/y.js", Some("x/y"));
        check("/*.js", "/.js", Some(""));
        check("/a*a", "/aa", Some(""));
        check("/a*a", "/a", None);
    }

    #[test]
    fn a_pattern_may_have_any_spelling_of_its_characters() {
        check("/caf%c3%a9/*", "/caf%C3%A9/x", Some("x"));
        check("/caf\u{e9}/*", "/caf%C3%A9/x", Some("x"));
        check("/%61", "/a", Some(""));
        check("/a%2A", "/a*", Some(""));
        check("/a%2A", "/ab", None);
    }

    #[test]
    fn a_pattern_that_matches_no_path_is_refused() {
        for text in [
            "",
            "a",
            "*",
            "/a//b",
            "/./a",
            "/a/..",
            "/%2e%2e/a",
            "/a?b",
            "/a#b",
            "/a%2Fb",
            "/a%0",
            "/**",
            "/a\tb",
        ] {
            let error = text.parse::<Pattern>().unwrap_err();
            assert!(error.contains("expected a path such as"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_canonical_path_matches_itself(raw in "/[a-z%/.~ *\u{e9}]{0,12}") {
            if let Ok(path) = path::normalise(&raw, true) {
                let text = path.canonical.replace('*', "%2A");
                prop_assert_eq!(text.parse::<Pattern>().unwrap().rest(&path.canonical), Some(""));
            }
        }
    }
}
