//! The meters for an OpenTelemetry collector: OTLP over HTTP, JSON encoding, `POST /v1/metrics`.
//!
//! A thread of its own sends the newest state after each interval, and the last state at the end. A slow or
//! absent collector costs the run only the metrics, and is reported once.

use std::str::FromStr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use base::{Clock, Nanos, RealClock};
use serde_json::{Value, json};

use super::{BUCKETS_US, Meters, Times};

/// Timeout of sending one state to the collector.
const PATIENCE: Duration = Duration::from_secs(5);
/// Value of `aggregationTemporality`: sums count from the run's start.
const CUMULATIVE: u32 = 2;

/// The URL of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector(String);

impl FromStr for Collector {
    type Err = String;

    fn from_str(given: &str) -> Result<Collector, String> {
        let rest = given.strip_prefix("http://").or_else(|| given.strip_prefix("https://"));
        match rest.and_then(|rest| rest.split(['/', '?']).next()) {
            Some(host) if !host.is_empty() => {
                let base = given.trim_end_matches('/').trim_end_matches("/v1/metrics");
                Ok(Collector(format!("{base}/v1/metrics")))
            }
            _ => Err("expected http://HOST[:PORT] or https://HOST[:PORT], such as http://localhost:4318"
                .to_owned()),
        }
    }
}

/// Sends states to a collector.
pub struct Exporter {
    states: Sender<Meters>,
    thread: JoinHandle<Option<String>>,
}

impl Exporter {
    /// Starts the thread. It sends nothing yet.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn start(collector: Collector) -> std::io::Result<Exporter> {
        let (states, received) = channel();
        let body = move || export(&collector, &received);
        Ok(Exporter { states, thread: std::thread::Builder::new().name("otlp".to_owned()).spawn(body)? })
    }

    /// Hands a state to the thread without waiting.
    pub fn send_state(&self, meters: &Meters) {
        // A thread that has ended needs no state.
        let _ = self.states.send(meters.clone());
    }

    /// Waits until the last state is sent, and returns the first error.
    pub fn end(self) -> Option<String> {
        drop(self.states);
        self.thread.join().unwrap_or_else(|_| Some("the OTLP exporter panicked".to_owned()))
    }
}

fn export(collector: &Collector, states: &Receiver<Meters>) -> Option<String> {
    let clock = RealClock::new();
    let (began, began_wall) = (clock.now(), clock.wall());
    let since_1970 = |at: Nanos| Nanos::from_secs(began_wall.seconds) + at.saturating_sub(began);
    let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build();
    let agent = ureq::Agent::new_with_config(config);
    let (mut failure, mut failed) = (None, 0u64);
    while let Ok(state) = states.recv() {
        let newest = states.try_iter().last().unwrap_or(state);
        let body = request(&newest, since_1970(began), since_1970(clock.now())).to_string();
        let sent = agent.post(&collector.0).header("Content-Type", "application/json").send(body);
        if let Err(error) = sent {
            failed += 1;
            failure.get_or_insert(error.to_string());
        }
    }
    failure.map(|first| {
        format!("--otlp {}: {failed} states could not be sent; first error: {first}", collector.0)
    })
}

/// An ExportMetricsServiceRequest. 64-bit integers are strings in its JSON.
fn request(meters: &Meters, began: Nanos, now: Nanos) -> Value {
    let times = json!({ "startTimeUnixNano": began.0.to_string(), "timeUnixNano": now.0.to_string() });
    let at = |more: Value| {
        let mut point = times.clone();
        point.as_object_mut().expect("it is one").extend(more.as_object().expect("it is one").clone());
        point
    };
    let sum = |points: Vec<Value>| json!({ "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points });
    let mut metrics: Vec<Value> = Vec::new();
    for (name, meaning, count) in meters.counters() {
        let points = vec![at(json!({ "asInt": count.to_string() }))];
        metrics.push(json!({ "name": format!("inrush.load.{name}"), "description": meaning, "unit": "1", "sum": sum(points) }));
    }
    let named = |key: &str, value: Value, count: u64| {
        let attributes = json!([{ "key": key, "value": value }]);
        at(json!({ "asInt": count.to_string(), "attributes": attributes }))
    };
    let outcomes = meters
        .outcomes
        .iter()
        .map(|(outcome, count)| named("outcome", json!({ "stringValue": outcome.name() }), *count));
    // The attribute's name comes from the semantic conventions for HTTP.
    let statuses = meters.statuses.iter().map(|(code, count)| {
        named("http.response.status_code", json!({ "intValue": code.to_string() }), count)
    });
    metrics.push(json!({ "name": "inrush.load.statuses", "description": "Complete replies, by status code", "unit": "1", "sum": sum(statuses.collect()) }));
    metrics.push(json!({ "name": "inrush.load.outcomes", "description": "Requests that ended, by outcome", "unit": "1", "sum": sum(outcomes.collect()) }));
    let sockets = at(json!({ "asInt": meters.sockets.to_string() }));
    metrics.push(json!({ "name": "inrush.load.sockets", "description": "Sockets open", "unit": "1", "gauge": { "dataPoints": [sockets] } }));
    for (name, meaning, times) in meters.times() {
        let histogram = json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": [at(histogram(times))] });
        metrics.push(json!({ "name": format!("inrush.load.{name}"), "description": meaning, "unit": "s", "histogram": histogram }));
    }
    let scope = json!({ "name": "inrush", "version": env!("CARGO_PKG_VERSION") });
    let resource =
        json!({ "attributes": [{ "key": "service.name", "value": { "stringValue": "inrush-load" } }] });
    json!({ "resourceMetrics": [{ "resource": resource, "scopeMetrics": [{ "scope": scope, "metrics": metrics }] }] })
}

fn histogram(times: &Times) -> Value {
    json!({
        "count": times.count().to_string(),
        "sum": times.sum_s,
        "bucketCounts": times.counts.iter().map(u64::to_string).collect::<Vec<_>>(),
        "explicitBounds": BUCKETS_US.iter().map(|end| *end as f64 / 1e6).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::after_an_interval;
    use super::*;

    #[test]
    fn a_request_has_the_form_that_collectors_read() {
        let request = request(&after_an_interval(), Nanos(1), Nanos(2));
        let metrics = &request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let named =
            |name: &str| metrics.as_array().unwrap().iter().find(|metric| metric["name"] == name).unwrap();
        let offered = &named("inrush.load.offered")["sum"]["dataPoints"][0];
        assert_eq!((&offered["asInt"], &offered["startTimeUnixNano"]), (&json!("3"), &json!("1")));
        let status = &named("inrush.load.statuses")["sum"]["dataPoints"][0];
        assert_eq!(
            (&status["asInt"], &status["attributes"][0]["value"]["intValue"]),
            (&json!("2"), &json!("200"))
        );
        let latency = &named("inrush.load.latency")["histogram"]["dataPoints"][0];
        assert_eq!(latency["count"], "3");
        let counts = latency["bucketCounts"].as_array().unwrap().len();
        assert_eq!(counts, latency["explicitBounds"].as_array().unwrap().len() + 1);
    }

    #[test]
    fn collectors_are_where_they_say() {
        let at = |given: &str| given.parse::<Collector>().map(|collector| collector.0);
        assert_eq!(at("http://localhost:4318").unwrap(), "http://localhost:4318/v1/metrics");
        assert_eq!(at("https://a/b/v1/metrics/").unwrap(), "https://a/b/v1/metrics");
        for wrong in ["localhost:4318", "http://", "ftp://a"] {
            assert!(at(wrong).unwrap_err().contains("such as http://localhost:4318"), "{wrong}");
        }
    }
}
