//! The meters in Prometheus's text format 0.0.4.

use std::fmt::Write;

use super::{BUCKETS_US, Meters, Times};

/// The page that Prometheus reads.
pub fn page(meters: &Meters) -> String {
    let mut out = String::new();
    for (name, meaning, count) in meters.counters() {
        head(&mut out, &format!("{name}_total"), meaning, "counter");
        line(&mut out, &format!("{name}_total"), count);
    }
    head(&mut out, "outcomes_total", "Requests that ended, by outcome", "counter");
    for (outcome, count) in &meters.outcomes {
        line(&mut out, &format!("outcomes_total{{outcome=\"{}\"}}", outcome.name()), count);
    }
    head(&mut out, "statuses_total", "Complete replies, by status code", "counter");
    for (code, count) in meters.statuses.iter() {
        line(&mut out, &format!("statuses_total{{code=\"{code}\"}}"), count);
    }
    head(&mut out, "sockets", "Sockets open", "gauge");
    line(&mut out, "sockets", meters.sockets);
    for (name, meaning, times) in meters.times() {
        let name = format!("{name}_seconds");
        head(&mut out, &name, meaning, "histogram");
        histogram(&mut out, &name, times);
    }
    out
}

fn histogram(out: &mut String, name: &str, times: &Times) {
    let ends = BUCKETS_US.iter().map(|end| (*end as f64 / 1e6).to_string()).chain(["+Inf".to_owned()]);
    let mut upto = 0;
    for (end, count) in ends.zip(times.counts) {
        upto += count;
        line(out, &format!("{name}_bucket{{le=\"{end}\"}}"), upto);
    }
    line(out, &format!("{name}_sum"), times.sum_s);
    line(out, &format!("{name}_count"), times.count());
}

fn head(out: &mut String, name: &str, meaning: &str, kind: &str) {
    writeln!(out, "# HELP inrush_load_{name} {meaning}\n# TYPE inrush_load_{name} {kind}")
        .expect("writing to a string");
}

fn line(out: &mut String, series: &str, value: impl std::fmt::Display) {
    writeln!(out, "inrush_load_{series} {value}").expect("writing to a string");
}

#[cfg(test)]
mod tests {
    use super::super::tests::after_an_interval;
    use super::*;

    #[test]
    fn buckets_count_up_to_all() {
        let page = page(&after_an_interval());
        for expected in [
            "# TYPE inrush_load_offered_total counter\ninrush_load_offered_total 3\n",
            "inrush_load_outcomes_total{outcome=\"ok\"} 2\n",
            "inrush_load_statuses_total{code=\"200\"} 2\n",
            "inrush_load_sockets 1\n",
            "inrush_load_latency_seconds_bucket{le=\"0.0005\"} 0\n",
            "inrush_load_latency_seconds_bucket{le=\"10\"} 1\n",
            "inrush_load_latency_seconds_bucket{le=\"+Inf\"} 3\n",
            "inrush_load_latency_seconds_count 3\n",
            "inrush_load_lateness_seconds_count 0\n",
        ] {
            assert!(page.contains(expected), "no {expected:?} in:\n{page}");
        }
    }
}
