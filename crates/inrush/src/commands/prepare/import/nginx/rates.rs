//! `limit_rate` and `limit_rate_after` as rules of `limit-rate`.
//!
//! Owns their text and the choice of the rules that are needed: of ours the last that matches decides, so a place without
//! a rate needs a rule only where the pattern of another place may match its paths.

use super::directives::Directive;
use super::equals;

/// The rule for paths without a rate.
const OFF: &str = "off";

/// Tells whether a directive is a rate that is not a size, but a variable.
pub(super) fn is_variable(directive: &Directive) -> bool {
    let is_rate = ["limit_rate", "limit_rate_after"].contains(&directive.name());
    is_rate && !matches!(directive.parameters()[..], [text] if size(text).is_some())
}

/// A size in our units. nginx takes 0 for none.
fn size(text: &str) -> Option<String> {
    let ours = equals::size(text);
    ours.parse::<base::Bytes>().is_ok().then_some(ours)
}

/// The rule of a place without its pattern, for the parameters of both directives.
pub(super) fn rule(rate: &[&str], after: &[&str]) -> String {
    let given =
        |parameters: &[&str]| parameters.last().and_then(|text| size(text)).filter(|size| size != "0");
    match (given(rate), given(after)) {
        (None, _) => OFF.to_owned(),
        (Some(rate), None) => rate,
        (Some(rate), Some(after)) => format!("{rate} after {after}"),
    }
}

/// The rules of all places, given with the least specific place first.
pub(super) fn rules<'a>(places: impl Iterator<Item = (&'a [String], String)>) -> Vec<String> {
    let (mut usual, mut given): (String, Vec<(&str, String)>) = (OFF.to_owned(), Vec::new());
    for (patterns, rule) in places {
        for pattern in patterns {
            let differs = |(other, theirs): &(&str, String)| *theirs != rule && may_overlap(other, pattern);
            if rule == usual && !given.iter().any(differs) {
                continue;
            }
            if pattern == "/*" {
                usual = rule.clone();
            }
            given.push((pattern, rule.clone()));
        }
    }
    given.into_iter().map(|(pattern, rule)| format!("{pattern} {rule}")).collect()
}

/// False if no path has both patterns.
fn may_overlap(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|pattern| pattern.split('*').next().unwrap_or_default());
    one.starts_with(other) || other.starts_with(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_without_rate_has_a_rule_if_another_overlaps() {
        let check = |places: &[(&str, &str)], expected: &[&str]| {
            let places: Vec<(Vec<String>, String)> = places
                .iter()
                .map(|(pattern, rule)| (vec![(*pattern).to_owned()], (*rule).to_owned()))
                .collect();
            let places = places.iter().map(|(patterns, rule)| (&patterns[..], rule.clone()));
            assert_eq!(rules(places), expected);
        };
        check(&[("/*", "off"), ("/a/*", "off")], &[]);
        check(&[("/*", "off"), ("/a/*", "1MiB"), ("/b/*", "off")], &["/a/* 1MiB"]);
        check(&[("/*", "off"), ("/a/*", "1MiB"), ("/a/b/*", "off")], &["/a/* 1MiB", "/a/b/* off"]);
        check(&[("/*", "off"), ("/a/*", "1MiB"), ("/*.css", "off")], &["/a/* 1MiB", "/*.css off"]);
        check(&[("/*", "1MiB"), ("/a/*", "1MiB"), ("/b/*", "off")], &["/* 1MiB", "/b/* off"]);
    }

    #[test]
    fn zero_is_no_rate() {
        for (rate, after, expected) in [
            (&["50k"][..], &["1m"][..], "50KiB after 1MiB"),
            (&["50k"], &["0"], "50KiB"),
            (&["0"], &["1m"], OFF),
            (&["$rate"], &[], OFF),
            (&[], &["1m"], OFF),
        ] {
            assert_eq!(rule(rate, after), expected);
        }
    }
}
