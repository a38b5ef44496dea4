//! The title and the unit of a name on a figure's axis or in a claim.

use record::experiment::{Unit, metric};

use experiment::Experiment;

/// The title and unit of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// The title of an axis.
    pub title: String,
    /// Its unit; `None` for an axis of the experiment.
    pub unit: Option<Unit>,
}

/// Finds an axis of the experiment, one of its derived metrics or a metric of trials, by its name.
pub fn quantity(experiment: &Experiment, name: &str) -> Quantity {
    let (title, unit) = if let Some(axis) = experiment.axis(name) {
        (axis.title().to_owned(), None)
    } else if let Some(derived) = experiment.metric(name) {
        (derived.title.clone(), Some(derived.unit))
    } else if let Some(metric) = metric(name) {
        (metric.title.to_owned(), Some(metric.unit))
    } else if let Some(counted) = name.strip_suffix("_per_s") {
        // `outcome_connect_timeout_per_s` is "outcome connect timeout/s".
        (format!("{}/s", counted.replace('_', " ")), Some(Unit::PerSecond))
    } else {
        (name.replace('_', " "), Some(Unit::Count))
    };
    Quantity { title, unit }
}

/// The names of metrics of which more is better.
const BETTER: [&str; 5] = ["replies_per_s", "goodput_per_s", "capacity_per_s", "good_share", "fairness"];

/// The beginnings of the names of metrics of which more is worse.
const WORSE: [&str; 10] = [
    "latency_ms_",
    "service_latency_ms_",
    "first_byte_ms_",
    "gap_ms_",
    "connect_ms_",
    "drops_",
    "server_us_per_reply",
    "settle_us_",
    "wakeups_per_connection",
    "cpu_us_per_connection",
];

/// Returns `Some(true)` if more of a metric is better, `Some(false)` if it is worse, and `None` if it is neither.
pub fn direction(name: &str) -> Option<bool> {
    if BETTER.contains(&name) {
        return Some(true);
    }
    WORSE.iter().any(|start| name.starts_with(start)).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_that_is_said_to_be_good_or_bad_exists() {
        let is_metric = |start: &str| record::experiment::METRICS.iter().any(|m| m.name.starts_with(start));
        for name in BETTER {
            assert_eq!((metric(name).is_some(), direction(name)), (true, Some(true)), "{name}");
        }
        for start in WORSE {
            assert_eq!((is_metric(start), direction(start)), (true, Some(false)), "{start}");
        }
        assert_eq!(direction("queue_depth_mean"), None);
    }

    #[test]
    fn names_of_families_become_titles() {
        let text = r#"
title = "t"
plan = { trials = 3, warmup = "1s", duration = "2s" }
server = [{ name = "one" }]
load = [{ name = "l", rate = "1k" }]
"#;
        let experiment = Experiment::parse(text).unwrap();
        let of = quantity(&experiment, "outcome_connect_timeout_per_s");
        assert_eq!((of.title.as_str(), of.unit), ("outcome connect timeout/s", Some(Unit::PerSecond)));
        let of = quantity(&experiment, "population_idle_established");
        assert_eq!((of.title.as_str(), of.unit), ("population idle established", Some(Unit::Count)));
    }
}
