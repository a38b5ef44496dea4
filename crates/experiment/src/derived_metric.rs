//! The metrics that an experiment derives from those of its trials.
//!
//! ```toml
//! [[metric]]
//! name = "cost_us"
//! title = "CPU time of a reply and 5 % of its delay, us"
//! unit = "microseconds"
//! sum = { server_us_per_reply = 1, latency_ms_mean = 50 }
//! ```

use std::collections::BTreeMap;

use record::experiment::Unit;
use serde::Deserialize;

/// A sum of metrics, each times a factor.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DerivedMetric {
    /// The name in figures and claims. No other metric and no axis has it.
    pub name: String,
    /// Text of an axis of a chart.
    pub title: String,
    /// Unit of the sum.
    pub unit: Unit,
    /// Metrics of a trial and their factors; at least one.
    pub sum: BTreeMap<String, f64>,
}

impl DerivedMetric {
    /// Returns the sum over those of its metrics that a trial has, or `None` if the trial has none of them.
    pub fn of(&self, metrics: &BTreeMap<String, f64>) -> Option<f64> {
        let terms = self.sum.iter().filter_map(|(name, factor)| Some(metrics.get(name)? * factor));
        terms.reduce(|sum, term| sum + term)
    }
}
