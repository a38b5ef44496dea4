//! The named numbers of a trial.

use std::collections::BTreeMap;

use record::{Distribution, KernelDrops, Population};
use serde_json::Value;

use crate::trial::Seen;

/// Measured numbers by name. A number that was not measured is absent.
pub type Metrics = BTreeMap<String, f64>;

/// Returns the metrics of a load run.
pub fn of_load(seen: &Seen, capacity_per_s: Option<f64>) -> Metrics {
    let mut metrics = Metrics::new();
    let mut put = |name: &str, value: f64| {
        metrics.insert(name.to_owned(), value);
    };
    let load = &seen.load;
    let per_s = |count: u64| count as f64 / load.duration_s.max(f64::MIN_POSITIVE);
    put("offered_per_s", load.offered_per_s);
    put("sent_per_s", load.sent_per_s);
    put("replies_per_s", load.replies_per_s);
    put("goodput_per_s", load.goodput_per_s);
    put("content_bytes_per_s", load.content_bytes_per_s);
    put("connects_attempted_per_s", per_s(load.connections.attempted));
    put("connects_established_per_s", per_s(load.connections.established));
    put("sockets_peak", load.connections.sockets_peak as f64);
    if let Some(capacity) = capacity_per_s {
        put("capacity_per_s", capacity);
    }
    if load.offered_per_s > 0.0 {
        put("good_share", load.goodput_per_s / load.offered_per_s);
    }
    if load.offered > 0 {
        put("in_flight_share", load.in_flight_at_end as f64 / load.offered as f64);
    }
    for (outcome, count) in load.outcomes.iter() {
        put(&format!("outcome_{}_per_s", outcome.name()), per_s(count));
    }
    put("server_cpu_cores", seen.elapsed.server_cpu);
    put("server_steal_share", seen.elapsed.steal_share);
    put("client_cpu_cores", seen.elapsed.client_cpu);
    put("generator_cpu_cores", load.generator_cpu);
    put("foreign_cpu_cores", foreign(seen));
    if load.replies_per_s > 0.0 {
        put("server_us_per_reply", seen.elapsed.server_cpu / load.replies_per_s * 1e6);
    }
    if let Some(queue) = seen.queue {
        put("queue_depth_mean", queue.depth_mean);
        put("queue_depth_max", queue.depth_max as f64);
    }
    // Latencies are those of answered requests, as in the papers. The outcomes count the others.
    latency(&mut metrics, "latency_ms", &load.latency_intended_ns.answered);
    latency(&mut metrics, "service_latency_ms", &load.latency_sent_ns.answered);
    latency(&mut metrics, "first_byte_ms", &load.first_byte_ns.answered);
    latency(&mut metrics, "gap_ms", &load.gap_ns.answered);
    latency(&mut metrics, "connect_ms", &load.connect_ns.answered);
    if load.lateness_ns.count > 0 {
        metrics.insert("lateness_ms_p99".to_owned(), load.lateness_ns.p99 as f64 / 1e6);
    }
    drops(&mut metrics, &seen.elapsed.drops);
    if let Some(status) = &seen.status {
        from_status(&mut metrics, status, seen.status_over_s);
    }
    populations(&mut metrics, &load.populations);
    metrics
}

/// Adds the figures of populations by their kinds: `idle:6000` of one point and `idle:3000` of another are the same
/// population. Counts and rates of several populations of one kind add up; their latencies do not.
fn populations(metrics: &mut Metrics, populations: &BTreeMap<String, Population>) {
    fn kind(text: &str) -> &str {
        text.split(':').next().unwrap_or_default()
    }
    for (text, population) in populations {
        let Ok(Value::Object(mut figures)) = serde_json::to_value(population) else { continue };
        if populations.keys().filter(|other| kind(other) == kind(text)).count() > 1 {
            figures.remove("latency_intended_ns");
        }
        flatten(metrics, &format!("population_{}", kind(text)), &figures);
    }
}

/// Returns the cores that other processes than the generator kept busy on the client's CPUs.
pub fn foreign(seen: &Seen) -> f64 {
    (seen.elapsed.client_cpu - seen.load.generator_cpu).max(0.0)
}

fn latency(metrics: &mut Metrics, name: &str, of: &Distribution) {
    if of.count == 0 {
        return;
    }
    let quantiles =
        [("mean", of.mean), ("p50", of.p50 as f64), ("p90", of.p90 as f64), ("p99", of.p99 as f64)];
    for (quantile, nanos) in quantiles.into_iter().chain([("max", of.max as f64)]) {
        metrics.insert(format!("{name}_{quantile}"), nanos / 1e6);
    }
}

/// The metrics of the two kinds of drops by a full accept queue.
pub(super) const OF_FINAL_ACKS: [&str; 2] = ["drops_final_ack_per_s", "drops_accept_queue_syn_per_s"];

/// The metric of the SYNs that arrive at the server's devices.
pub(super) const SYNS_ARRIVED: &str = "syns_arrived_per_s";

/// `ListenDrops` counts every drop at a listener, those by one of the two queues among them.
fn drops(metrics: &mut Metrics, drops: &KernelDrops) {
    if drops.over_s <= 0.0 {
        return;
    }
    let mut put = |name: &str, count: u64| metrics.insert(name.to_owned(), count as f64 / drops.over_s);
    put("drops_per_s", drops.listen_drops);
    put("drops_accept_queue_per_s", drops.listen_overflows);
    if let Some(final_acks) = drops.final_acks_dropped {
        let [at_final_ack, at_syn] = OF_FINAL_ACKS;
        put(at_final_ack, final_acks);
        put(at_syn, drops.listen_overflows.saturating_sub(final_acks));
    }
    if let Some(syns) = drops.syns_arrived {
        put(SYNS_ARRIVED, syns);
    }
    put("drops_syn_queue_per_s", drops.req_q_full_drops);
    let named = drops.listen_overflows + drops.req_q_full_drops;
    put("drops_other_per_s", drops.listen_drops.saturating_sub(named));
    put("drops_packet_queue_per_s", drops.packet_queue_full);
    put("syn_cookies_per_s", drops.syn_cookies_sent);
    put("retransmissions_per_s", drops.retransmitted);
}

/// The counters of the status page count from the look before the run to the one after it.
fn from_status(metrics: &mut Metrics, status: &Value, over_s: f64) {
    let per_s = |count: f64| count / over_s.max(f64::MIN_POSITIVE);
    for (name, key) in [("accepts_per_s", "accepts"), ("accept_phases_per_s", "accept_phases")] {
        if let Some(count) = status[key].as_f64() {
            metrics.insert(name.to_owned(), per_s(count));
        }
    }
    if let Some(mean) = status["mean_accepted_per_phase"].as_f64() {
        metrics.insert("accepted_per_phase".to_owned(), mean);
    }
    for (name, count) in status.get("counters").and_then(Value::as_object).into_iter().flatten() {
        let Some(count) = count.as_f64() else { continue };
        metrics.insert(format!("counter_{name}_per_s"), per_s(count));
        if name == "waits" {
            metrics.insert("get_events_per_s".to_owned(), per_s(count));
            let accepts = status["accepts"].as_f64().filter(|accepts| *accepts > 0.0);
            metrics.extend(accepts.map(|accepts| ("waits_per_connection".to_owned(), count / accepts)));
        }
    }
}

/// Adds the numbers of nested objects to those of their joined names: `population_idle_connections_established`.
fn flatten(metrics: &mut Metrics, prefix: &str, object: &serde_json::Map<String, Value>) {
    for (name, value) in object {
        let name = format!("{prefix}_{name}");
        match value {
            Value::Object(inner) => flatten(metrics, &name, inner),
            Value::Number(number) => {
                *metrics.entry(name).or_default() += number.as_f64().unwrap_or_default();
            }
            _ => {}
        }
    }
}

/// Returns the metrics of a herd's only point; `None` unless there is exactly one.
pub fn of_herd(points: &Value) -> Option<Metrics> {
    let [point] = points.as_array()?.as_slice() else { return None };
    let settle = |name: &str| point["settle_us"][name].as_f64();
    let number = |name: &str| point[name].as_f64();
    let mean = &point["settle_us_mean"];
    let named = [
        ("settle_us_p50", settle("p50")),
        ("settle_us_p95", settle("p95")),
        ("settle_us_max", settle("max")),
        ("settle_us_mean", mean.get("value").unwrap_or(mean).as_f64()),
        ("wakeups_per_connection", number("wakeups_per_connection")),
        ("cpu_us_per_connection", number("cpu_us_per_connection")),
        ("fairness", number("fairness")),
        ("winners", number("winners")),
    ];
    Some(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::experiment::{FAMILIES, metric};
    use serde_json::json;

    #[test]
    fn drops_are_told_apart() {
        let mut metrics = Metrics::new();
        let all = KernelDrops {
            over_s: 2.0,
            listen_drops: 10,
            listen_overflows: 4,
            final_acks_dropped: Some(1),
            syns_arrived: Some(50),
            req_q_full_drops: 2,
            packet_queue_full: 6,
            ..KernelDrops::default()
        };
        drops(&mut metrics, &all);
        assert_eq!((metrics["drops_per_s"], metrics["drops_accept_queue_per_s"]), (5.0, 2.0));
        assert_eq!(metrics["syns_arrived_per_s"], 25.0);
        assert_eq!((metrics["drops_syn_queue_per_s"], metrics["drops_other_per_s"]), (1.0, 2.0));
        assert_eq!(OF_FINAL_ACKS.map(|name| metrics[name]), [0.5, 1.5]);
        assert_eq!(metrics["drops_packet_queue_per_s"], 3.0);
    }

    #[test]
    fn a_status_page_becomes_rates_under_known_names() {
        let mut metrics = Metrics::new();
        let status = json!({
            "accepts": 30, "accept_phases": 10, "mean_accepted_per_phase": 3.0, "version": "1",
            "counters": { "waits": 100, "stale_events": 2 },
        });
        from_status(&mut metrics, &status, 2.0);
        assert_eq!((metrics["accepts_per_s"], metrics["get_events_per_s"]), (15.0, 50.0));
        assert_eq!(metrics["counter_stale_events_per_s"], 1.0);
        assert_eq!(metrics["waits_per_connection"], 100.0 / 30.0);
        let known =
            |name: &str| metric(name).is_some() || FAMILIES.iter().any(|family| name.starts_with(family));
        assert!(metrics.keys().all(|name| known(name)), "{metrics:?}");
    }

    #[test]
    fn trial_metrics_come_from_load_and_kernel_reads() {
        let none = Distribution::default();
        let load = json!({
            "schema": record::load::SCHEMA, "duration_s": 1.0, "offered": 14, "in_flight_at_end": 4,
            "outcomes": { "ok": 10 },
            "connections": { "attempted": 10, "established": 10, "sockets_peak": 1 },
            "offered_per_s": 10.0, "sent_per_s": 10.0, "replies_per_s": 10.0, "goodput_per_s": 10.0,
            "content_bytes_per_s": 0.0, "latency_intended_ns": none, "latency_sent_ns": none, "connect_ns": none,
            "lateness_ns": none, "generator_cpu": 0.1, "populations": {}, "series": [], "verdict": "valid",
            "reasons": [], "manifest": record::Manifest::default(),
        });
        let seen = Seen {
            load: serde_json::from_value(load).unwrap(),
            elapsed: stage::kernel::Elapsed {
                drops: KernelDrops::default(),
                server_cpu: 0.0,
                steal_share: 0.0,
                client_cpu: 0.0,
                cpu_busy: BTreeMap::new(),
            },
            queue: None,
            status: Some(json!({ "accepts": 30 })),
            status_over_s: 4.0,
        };
        let metrics = of_load(&seen, None);
        assert_eq!((metrics["accepts_per_s"], metrics["replies_per_s"]), (7.5, 10.0));
        assert_eq!(metrics["in_flight_share"], 4.0 / 14.0);
    }

    #[test]
    fn populations_of_one_kind_add_up() {
        let clients = |clients| Population { clients, replies_per_s: 0.5, ..Population::default() };
        let of = |texts: [(&str, u64); 3]| {
            let mut metrics = Metrics::new();
            populations(&mut metrics, &texts.map(|(text, count)| (text.to_owned(), clients(count))).into());
            metrics
        };
        let metrics = of([("idle:100", 100), ("idle:50,half-request", 50), ("hot:8", 8)]);
        let figure = |name: &str| metrics.get(&format!("population_{name}")).copied();
        assert_eq!(["idle_clients", "hot_clients"].map(figure), [Some(150.0), Some(8.0)]);
        assert_eq!(["idle_replies_per_s", "hot_replies_per_s"].map(figure), [Some(1.0), Some(0.5)]);
        let latency = ["idle_latency_intended_ns_count", "hot_latency_intended_ns_count"];
        assert_eq!(latency.map(figure), [None, Some(0.0)]);
    }

    #[test]
    fn the_one_point_of_a_herd_is_read() {
        let point = json!({
            "settle_us": { "p50": 60.5, "p95": 90.0, "max": 120.0 }, "wakeups_per_connection": 1.0, "fairness": 0.9,
        });
        let metrics = of_herd(&json!([point])).unwrap();
        assert_eq!((metrics["settle_us_p50"], metrics["fairness"]), (60.5, 0.9));
        assert!(metrics.keys().all(|name| metric(name).is_some()));
        assert_eq!(of_herd(&json!([])), None);
    }
}
