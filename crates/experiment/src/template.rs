//! Templates: axis values filled into texts, and selections of trials by their values.

use std::collections::BTreeMap;

use record::experiment::{TrialRecord, Value};
use serde::Deserialize;

/// The name of the measured capacity in a load's texts.
pub const CAPACITY: &str = "capacity";

/// Iterates over the names in braces in a text: `idle` in `idle:{idle}`, `clients` in `{clients*0.25}`, `rate` in
/// `{1000/rate}`, `offered` and `capacity` in `{offered*capacity}`.
pub fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let insides = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    insides.flat_map(|(inside, _)| Formula::of(inside).names)
}

/// The content of braces.
#[derive(Clone, Debug, PartialEq)]
struct Formula<'a> {
    /// At least one.
    names: Vec<&'a str>,
    /// The product of the numbers beside the names, or the dividend.
    number: f64,
    /// True for `number` over the name, false for their product.
    over: bool,
}

impl<'a> Formula<'a> {
    /// `1000/rate` is a number over a name; others are products, and a name alone is one.
    fn of(inside: &'a str) -> Formula<'a> {
        if let Some((dividend, name)) = inside.split_once('/')
            && let Ok(number) = dividend.trim().parse()
        {
            return Formula { names: vec![name.trim()], number, over: true };
        }
        let mut product = Formula { names: Vec::new(), number: 1.0, over: false };
        for part in inside.split('*').map(str::trim) {
            match part.parse::<f64>() {
                Ok(number) => product.number *= number,
                Err(_) => product.names.push(part),
            }
        }
        match product.names.is_empty() {
            true => Formula { names: vec![inside], number: 1.0, over: false },
            false => product,
        }
    }

    /// Writes the result; `None` without a value for a name. A value that is no number stays as it is. What the measured
    /// capacity is part of is whole, as numbers of sockets are.
    fn written<V: std::fmt::Display>(&self, value_of: impl Fn(&str) -> Option<V>) -> Option<String> {
        let values = self.names.iter().map(|name| Some(value_of(name)?.to_string()));
        let values: Vec<String> = values.collect::<Option<_>>()?;
        let is_alone = self.names.len() == 1 && self.number == 1.0 && !self.over;
        let numbers: Result<Vec<f64>, _> = values.iter().map(|value| value.parse::<f64>()).collect();
        let product: f64 = match numbers {
            Ok(numbers) if !is_alone => numbers.into_iter().product(),
            _ => return values.into_iter().next(),
        };
        let result = if self.over { self.number / product } else { product * self.number };
        Some(if self.names.contains(&CAPACITY) { result.round() } else { result }.to_string())
    }
}

/// Fills values into a text for the names in braces; a name without a value stays.
pub fn fill<V: std::fmt::Display>(text: &str, value_of: impl Fn(&str) -> Option<V>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let value = after
            .split_once('}')
            .and_then(|(inside, behind)| Some((Formula::of(inside).written(&value_of)?, behind)));
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
        assert_eq!(fill("{n*n*0.5}, {n*m}, {2*3}", value), "800000000, {n*m}, {2*3}");
        assert_eq!(placeholders("a{b*2}c{d}{1/e}{").collect::<Vec<_>>(), ["b", "d", "e"]);
        assert_eq!(placeholders("{offered * capacity*0.05}").collect::<Vec<_>>(), ["offered", "capacity"]);
        assert_eq!(Value::Number(0.5).to_string(), "0.5");
    }

    #[test]
    fn parts_of_the_capacity_are_whole() {
        let value = |name: &str| Some(if name == CAPACITY { 12_345.0 } else { 1.5 });
        assert_eq!(fill("{capacity*0.05}, {n*0.05}", value), "617, 0.07500000000000001");
        assert_eq!(fill("on-off:6,5%,{10240000/capacity}ms", value), "on-off:6,5%,829ms");
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
