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
    if let Some(axis) = experiment.axis(name) {
        return Quantity { title: axis.title().to_owned(), unit: None };
    }
    if let Some(derived) = experiment.metric(name) {
        return Quantity { title: derived.title.clone(), unit: Some(derived.unit) };
    }
    match metric(name) {
        Some(metric) => Quantity { title: metric.title.to_owned(), unit: Some(metric.unit) },
        None => of_a_family(name),
    }
}

/// `outcome_connect_timeout_per_s` is "outcome connect timeout/s".
fn of_a_family(name: &str) -> Quantity {
    match name.strip_suffix("_per_s") {
        Some(counted) => {
            Quantity { title: format!("{}/s", counted.replace('_', " ")), unit: Some(Unit::PerSecond) }
        }
        None => Quantity { title: name.replace('_', " "), unit: Some(Unit::Count) },
    }
}

/// Returns `Some(true)` if more of a metric is better, `Some(false)` if it is worse, and `None` if it is neither.
pub fn direction(name: &str) -> Option<bool> {
    const BETTER: [&str; 4] = ["replies_per_s", "goodput_per_s", "good_share", "fairness"];
    const WORSE: [&str; 8] = [
        "latency_ms_",
        "service_latency_ms_",
        "connect_ms_",
        "drops_",
        "server_us_per_reply",
        "settle_us_",
        "wakeups_per_connection",
        "cpu_us_per_connection",
    ];
    if BETTER.contains(&name) || name == "capacity_per_s" {
        return Some(true);
    }
    WORSE.iter().any(|start| name.starts_with(start)).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_that_is_said_to_be_good_or_bad_exists() {
        let known = |better| record::experiment::METRICS.iter().filter(move |m| direction(m.name) == better);
        assert_eq!(known(Some(true)).count(), 5);
        assert!(known(Some(false)).count() > 15);
        assert_eq!(direction("queue_depth_mean"), None);
    }

    #[test]
    fn names_of_families_become_titles() {
        let of = of_a_family("outcome_connect_timeout_per_s");
        assert_eq!((of.title.as_str(), of.unit), ("outcome connect timeout/s", Some(Unit::PerSecond)));
        assert_eq!(of_a_family("population_idle_established").title, "population idle established");
    }
}
