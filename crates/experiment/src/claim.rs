//! The claims of an experiment: statements that its records confirm or refute.
//!
//! ```toml
//! [[claim]]
//! text = "Past saturation, accepting all beats accepting one by 20 %"
//! paper = "+71 %"
//! ratio = { metric = "goodput_per_s", of = { server = "inf" }, over = { server = "1" }, at = { offered = 1.5 } }
//! at-least = 1.2
//! ```
//!
//! Owns the form. The analysis computes medians, ratios and intervals from trials.

use std::collections::BTreeMap;

use record::experiment::Value;
use serde::Deserialize;

use super::template::{Matcher, Selection};

/// One group of trials.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Single {
    /// The metric.
    pub metric: String,
    /// The selected trials; all if absent.
    #[serde(default)]
    pub of: Selection,
}

/// Two groups of trials.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Two {
    /// The metric.
    pub metric: String,
    /// The first group.
    pub of: Selection,
    /// The second group, by which the first is divided.
    pub over: Selection,
    /// The common selection of both groups. If it selects several points, they are paired one by one.
    #[serde(default)]
    pub at: Selection,
}

/// A metric along an axis, for one group of trials.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Curve {
    /// The metric.
    pub metric: String,
    /// An axis of the experiment, or a metric.
    pub x: String,
    /// The selected trials; all if absent. A range of the axis selects a part of the curve.
    #[serde(default)]
    pub of: Selection,
}

/// Two curves.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Compared {
    /// The metric.
    pub metric: String,
    /// An axis of the experiment.
    pub x: String,
    /// The curve that lies above the other from the crossing on.
    pub of: Selection,
    /// The other curve.
    pub over: Selection,
    /// The common selection of both curves.
    #[serde(default)]
    pub at: Selection,
}

/// The server with the greatest value of a metric.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Best {
    /// The metric.
    pub metric: String,
    /// The servers that are compared; all if absent.
    #[serde(default)]
    pub among: Vec<String>,
    /// The selected trials.
    #[serde(default)]
    pub at: Selection,
    /// Makes the least value the best.
    #[serde(default)]
    pub lowest: bool,
    /// The servers of which one must be the best.
    pub expected: Vec<String>,
}

/// The measurement of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// The median of a group.
    Value(Single),
    /// The mean ratio of two groups, paired by repetition and point.
    Ratio(Two),
    /// d ln metric / d ln x.
    Slope(Curve),
    /// The x above which the metric no longer follows x.
    Knee(Curve),
    /// The x at which the metric is largest.
    Peak(Curve),
    /// The x from which one curve lies above the other.
    Crossing(Compared),
    /// The server with the best value.
    Best(Best),
}

impl Measure {
    /// Returns the terms that all kinds of measurements have in common.
    pub fn terms(&self) -> Terms<'_> {
        let (metric, x, groups, at) = match self {
            Measure::Value(single) => (&single.metric, None, vec![&single.of], None),
            Measure::Ratio(two) => (&two.metric, None, vec![&two.of, &two.over], Some(&two.at)),
            Measure::Slope(curve) | Measure::Knee(curve) | Measure::Peak(curve) => {
                (&curve.metric, Some(&curve.x), vec![&curve.of], None)
            }
            Measure::Crossing(two) => (&two.metric, Some(&two.x), vec![&two.of, &two.over], Some(&two.at)),
            Measure::Best(best) => (&best.metric, None, vec![&best.at], None),
        };
        Terms { metric, x: x.map(String::as_str), groups, at }
    }
}

/// The terms of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms<'a> {
    /// The metric.
    pub metric: &'a str,
    /// An axis of the experiment or a metric, along a curve.
    pub x: Option<&'a str>,
    /// The groups of trials.
    pub groups: Vec<&'a Selection>,
    /// The common selection of the groups.
    pub at: Option<&'a Selection>,
}

/// Bounds of the measured number; at least one is finite, except for [`Measure::Best`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The lower bound.
    pub at_least: f64,
    /// The upper bound.
    pub at_most: f64,
}

/// A statement with its measurement and its bounds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "ClaimFile")]
pub struct Claim {
    /// The statement, one sentence.
    pub text: String,
    /// The paper's finding, in its words or numbers.
    pub paper: Option<String>,
    /// The difference from the paper's setting that a reader of the verdict has to know, a phrase.
    pub differs: Option<String>,
    /// The reason why the set-up cannot judge the claim, a phrase. The claim is measured all the same, and counts as not
    /// tested.
    pub not_tested: Option<String>,
    /// The measurement.
    pub measure: Measure,
    /// The bounds.
    pub expected: Expected,
    /// The share by which the bounds are widened before a claim counts as refuted, from 0 to 1.
    pub tolerance: f64,
}

/// A claim in the form of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ClaimFile {
    text: String,
    paper: Option<String>,
    differs: Option<String>,
    not_tested: Option<String>,
    value: Option<Single>,
    ratio: Option<Two>,
    slope: Option<Curve>,
    knee: Option<Curve>,
    peak: Option<Curve>,
    crossing: Option<Compared>,
    best: Option<Best>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    #[serde(default)]
    tolerance: f64,
}

impl Claim {
    /// Tells whether the claim is judged by trials of a point.
    pub fn is_about(&self, server: &str, load: Option<&str>, axes: &BTreeMap<String, Value>) -> bool {
        let Terms { groups, at, .. } = self.measure.terms();
        let is_compared = match &self.measure {
            Measure::Best(best) => best.among.is_empty() || best.among.iter().any(|name| name == server),
            _ => true,
        };
        let has = |selection: &Selection| selection.has_point(server, load, axes);
        is_compared && at.is_none_or(has) && groups.into_iter().any(has)
    }
}

/// A server, load or value of an axis that a claim names.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<'a> {
    /// The selections of its trials.
    pub among: Vec<&'a Selection>,
    /// `server`, `load` or the axis.
    pub name: String,
    /// The server, the load or the value.
    pub value: Value,
}

impl Claim {
    /// Returns everything that the claim names, for each of its groups. A range names nothing.
    pub fn named(&self) -> Vec<Named<'_>> {
        let Terms { groups, at, .. } = self.measure.terms();
        let mut named = Vec::new();
        for group in groups {
            let among: Vec<&Selection> = [group].into_iter().chain(at).collect();
            let mut add = |name: &str, value: Value| {
                named.push(Named { among: among.clone(), name: name.to_owned(), value });
            };
            for (name, matcher) in among.iter().flat_map(|selection| &selection.0) {
                if let Matcher::AnyOf(values) = matcher {
                    values.iter().for_each(|value| add(name, value.clone()));
                }
            }
            if let Measure::Best(best) = &self.measure {
                best.among.iter().for_each(|server| add("server", Value::Text(server.clone())));
            }
        }
        named
    }
}

impl TryFrom<ClaimFile> for Claim {
    type Error = String;
    fn try_from(file: ClaimFile) -> Result<Claim, String> {
        let measures: Vec<Measure> = [
            file.value.map(Measure::Value),
            file.ratio.map(Measure::Ratio),
            file.slope.map(Measure::Slope),
            file.knee.map(Measure::Knee),
            file.peak.map(Measure::Peak),
            file.crossing.map(Measure::Crossing),
            file.best.map(Measure::Best),
        ]
        .into_iter()
        .flatten()
        .collect();
        let [measure] = <[Measure; 1]>::try_from(measures).map_err(|found| {
            format!(
                "the claim '{}' measures {} things; expected one of value, ratio, slope, knee, peak, crossing \
                 and best",
                file.text,
                found.len()
            )
        })?;
        let bounded = file.at_least.is_some() || file.at_most.is_some();
        match measure {
            Measure::Best(_) if bounded => {
                return Err(format!(
                    "the claim '{}' names the best server; it accepts neither at-least nor at-most",
                    file.text
                ));
            }
            Measure::Best(_) => {}
            _ if !bounded => return Err(format!("the claim '{}' needs at-least or at-most", file.text)),
            _ => {}
        }
        let expected = Expected {
            at_least: file.at_least.unwrap_or(f64::NEG_INFINITY),
            at_most: file.at_most.unwrap_or(f64::INFINITY),
        };
        let ClaimFile { text, paper, differs, not_tested, tolerance, .. } = file;
        Ok(Claim { text, paper, differs, not_tested, measure, expected, tolerance })
    }
}
