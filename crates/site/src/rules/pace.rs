//! The rate at which content leaves, by path pattern.

use std::num::NonZeroU64;
use std::str::FromStr;

use base::Bytes;
use http_semantics::Pace;

use super::pattern::Pattern;

/// A pace for some paths, as text `PATTERN SIZE [after SIZE]`: bytes per second, and bytes at the beginning that do not
/// count. The last rule that matches decides. `PATTERN off` takes the pace from paths again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceRule {
    paths: Pattern,
    pace: Option<Pace>,
}

impl PaceRule {
    /// The pace of a canonical path.
    pub(super) fn of(rules: &[PaceRule], path: &str) -> Option<Pace> {
        rules.iter().rev().find(|rule| rule.paths.matches(path))?.pace
    }
}

impl FromStr for PaceRule {
    type Err = String;

    fn from_str(text: &str) -> Result<PaceRule, String> {
        let accepted =
            "expected PATH SIZE [after SIZE], such as '/downloads/* 500KiB after 10MiB', or PATH off";
        let size = |text: &str| text.parse::<Bytes>().map_err(|wrong| format!("{wrong}; {accepted}"));
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (paths, rate, after) = match words[..] {
            [paths, "off"] => return Ok(PaceRule { paths: paths.parse()?, pace: None }),
            [paths, rate] => (paths, rate, Bytes(0)),
            [paths, rate, "after", after] => (paths, rate, size(after)?),
            _ => return Err(format!("'{text}' is not a limit of a rate; {accepted}")),
        };
        let bytes_per_s = NonZeroU64::new(size(rate)?.0)
            .ok_or_else(|| format!("'{rate}' bytes per second would never end; {accepted}"))?;
        Ok(PaceRule { paths: paths.parse()?, pace: Some(Pace { bytes_per_s, after: after.0 }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_matching_rate_decides() {
        let rules = ["/* 1MiB", "/downloads/* 500KiB after 10MiB", "/downloads/free/* off"]
            .map(|text| text.parse::<PaceRule>().unwrap());
        let pace = |path| PaceRule::of(&rules, path).map(|pace| (pace.bytes_per_s.get(), pace.after));
        assert_eq!(pace("/a"), Some((1 << 20, 0)));
        assert_eq!(pace("/downloads/a"), Some((500 << 10, 10 << 20)));
        assert_eq!(pace("/downloads/free/a"), None);
        assert_eq!(PaceRule::of(&rules[1..], "/a"), None);
    }

    #[test]
    fn rate_mistakes_name_what_is_accepted() {
        for (text, said) in [
            ("", "expected PATH SIZE [after SIZE]"),
            ("/a", "expected PATH SIZE [after SIZE]"),
            ("/a 1MiB 5MiB", "expected PATH SIZE [after SIZE]"),
            ("/a 1MiB from 5MiB", "expected PATH SIZE [after SIZE]"),
            ("/a fast", "is not a size such as"),
            ("/a 100k", "100KiB"),
            ("/a 0", "would never end"),
            ("/a 0 after 1MiB", "or PATH off"),
            ("/a 1MiB after all", "is not a size such as"),
            ("a 1MiB", "expected a path such as"),
        ] {
            let error = text.parse::<PaceRule>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
