//! Templates: axis values filled into texts, and selections of trials by their values.

use std::collections::BTreeMap;

use record::experiment::{TrialRecord, Value};
use serde::Deserialize;

/// Iterates over the names in braces in a text: `idle` in `idle:{idle}`, `clients` in `{clients*0.25}`, `rate` in
/// `{1000/rate}`.
pub fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(inside, _)| name_and_change(inside).0)
}

/// The change of a value for its text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// None.
    Same,
    /// Times a factor.
    Times(f64),
    /// A dividend over the value.
    Over(f64),
}

/// `clients` times 0.25 of `clients*0.25`, 1000 over `rate` of `1000/rate`; a name alone has no change.
fn name_and_change(inside: &str) -> (&str, Change) {
    let times = inside.split_once('*').and_then(|(name, factor)| Some((name, factor.trim().parse().ok()?)));
    let over =
        || inside.split_once('/').and_then(|(dividend, name)| Some((name, dividend.trim().parse().ok()?)));
    match (times, over()) {
        (Some((name, factor)), _) => (name.trim(), Change::Times(factor)),
        (None, Some((name, dividend))) => (name.trim(), Change::Over(dividend)),
        (None, None) => (inside, Change::Same),
    }
}

/// Writes the value for a text, changed if it is a number.
fn written(value: &impl std::fmt::Display, change: Change) -> String {
    let text = value.to_string();
    match (change, text.parse::<f64>()) {
        (Change::Times(factor), Ok(number)) => (number * factor).to_string(),
        (Change::Over(dividend), Ok(number)) => (dividend / number).to_string(),
        _ => text,
    }
}

/// Fills values into a text for the names in braces; a name without a value stays.
pub fn fill<V: std::fmt::Display>(text: &str, value_of: impl Fn(&str) -> Option<V>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let value = after.split_once('}').and_then(|(inside, behind)| {
            let (name, change) = name_and_change(inside);
            Some((written(&value_of(name)?, change), behind))
        });
        match value {
            Some((value, behind)) => {
                filled.push_str(&value);
                rest = behind;
            }
            None => {
                filled.push('{');
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// A set of selected values.
#[derive(Clone, Debug, PartialEq)]
pub enum Matcher {
    /// Any of these values.
    AnyOf(Vec<Value>),
    /// Every number from one to another, both included.
    Between(f64, f64),
}

impl Matcher {
    /// Tells whether the set has a value.
    pub fn matches(&self, value: &Value) -> bool {
        match self {
            Matcher::AnyOf(values) => values.contains(value),
            Matcher::Between(from, to) => value.number().is_some_and(|n| *from <= n && n <= *to),
        }
    }
}

impl<'de> Deserialize<'de> for Matcher {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Matcher, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Range {
            from: Option<f64>,
            to: Option<f64>,
        }
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a value, a list of values, or { from = .., to = .. }")]
        enum Form {
            One(Value),
            Many(Vec<Value>),
            Between(Range),
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::One(value) => Matcher::AnyOf(vec![value]),
            Form::Many(values) => Matcher::AnyOf(values),
            Form::Between(Range { from, to }) => {
                Matcher::Between(from.unwrap_or(f64::NEG_INFINITY), to.unwrap_or(f64::INFINITY))
            }
        })
    }
}

/// A selection of trials by `server`, `load` and axes. A name that is absent selects everything.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Selection(pub BTreeMap<String, Matcher>);

impl Selection {
    /// Tells whether a trial is selected. A selection that names an axis does not select a trial without it.
    pub fn matches(&self, trial: &TrialRecord) -> bool {
        self.has_point(&trial.server, trial.load.as_deref(), &trial.axes)
    }

    /// Tells whether the trials of a point are selected.
    pub fn has_point(&self, server: &str, load: Option<&str>, axes: &BTreeMap<String, Value>) -> bool {
        let is_text = |matcher: &Matcher, text: &str| matcher.matches(&Value::Text(text.to_owned()));
        self.0.iter().all(|(name, matcher)| match name.as_str() {
            "server" => is_text(matcher, server),
            "load" => load.is_some_and(|load| is_text(matcher, load)),
            axis => axes.get(axis).is_some_and(|value| matcher.matches(value)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_are_found_and_filled() {
        let value = |name: &str| (name == "n").then_some(Value::Number(40_000.0));
        assert_eq!(fill("--n={n}, {m} {n", value), "--n=40000, {m} {n");
        assert_eq!(fill("cold:{n*0.25}, {n * 2}", value), "cold:10000, 80000");
        assert_eq!(fill("--burn {1000000/n}us", value), "--burn 25us");
        assert_eq!(placeholders("a{b*2}c{d}{1/e}{").collect::<Vec<_>>(), ["b", "d", "e"]);
        assert_eq!(Value::Number(0.5).to_string(), "0.5");
    }

    #[test]
    fn a_matcher_is_a_value_a_list_or_a_range() {
        #[derive(Deserialize)]
        struct File {
            at: BTreeMap<String, Matcher>,
        }
        let file: File = toml::from_str("at = { a = 1, b = ['x', 2.5], c = { from = 3 } }").unwrap();
        assert!(file.at["a"].matches(&Value::Number(1.0)));
        assert!(
            file.at["b"].matches(&Value::Text("x".to_owned())) && !file.at["b"].matches(&Value::Number(2.0))
        );
        assert!(file.at["c"].matches(&Value::Number(1e9)) && !file.at["c"].matches(&Value::Number(2.9)));
        assert!(toml::from_str::<File>("at = { a = { form = 3 } }").is_err());
    }
}
