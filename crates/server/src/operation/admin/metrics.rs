//! The server's counters in Prometheus' text format 0.0.4.

use std::fmt::Write;

use base::Limit;

use crate::connections::accept::AcceptLimit;
use crate::connections::overload_control::QueueFigures;
use crate::ground::counters::{
    AdmissionFigures, Counters, Decisions, HelperCounts, KernelCacheCounts, StageFigures, SteeringCounts,
    WorkerFigures, meaning,
};

/// The metrics pages of new servers, each with the condition for its metrics. The first page is every server's.
pub fn samples() -> [(&'static str, String); 7] {
    let of = |counters: Counters| page(&counters, AcceptLimit::Adaptive, None);
    let every = Counters { service: site::Counts::default().named().collect(), ..Counters::default() };
    let control = Some(("HOOK", vec![QueueFigures::default()]));
    let amped = Counters { service: HelperCounts::default().named().collect(), ..Counters::default() };
    let smped = Counters {
        workers: vec![WorkerFigures::default()],
        decisions: Some(Decisions::default()),
        ..Counters::default()
    };
    let steering = Counters { steering: Some(SteeringCounts::default()), ..Counters::default() };
    let seda = Counters {
        stages: vec![StageFigures { name: "NAME", ..StageFigures::default() }],
        admission: Some(AdmissionFigures::default()),
        ..Counters::default()
    };
    let cache = Counters { kernel_cache: Some(KernelCacheCounts::default()), ..Counters::default() };
    [
        ("", of(every)),
        ("--overload on", page(&Counters::default(), AcceptLimit::Adaptive, control)),
        ("--arch amped", of(amped)),
        ("--arch smped", of(smped)),
        ("--arch smped --handoff kernel", of(steering)),
        ("--arch seda", of(seda)),
        ("--kernel-cache on", of(cache)),
    ]
}

/// Makes the page of these totals, with the hook and the accept queues under overload control.
pub fn page(
    total: &Counters,
    accept_limit: AcceptLimit,
    control: Option<(&'static str, Vec<QueueFigures>)>,
) -> String {
    let mut page = Page(String::new());
    for (name, count) in total.named() {
        page.counter(name, meaning(name).unwrap_or_default().trim(), count);
    }
    page.counter(
        "listener_drops",
        "Connections that the kernel dropped at full queues.",
        total.queue.drops.into(),
    );
    let accept_limit = match accept_limit {
        AcceptLimit::Fixed(Limit::AtMost(most)) => f64::from(most),
        AcceptLimit::Fixed(Limit::Infinite) => f64::INFINITY,
        AcceptLimit::Adaptive => f64::NAN,
    };
    for (name, help, value) in [
        ("connections", "Connections open.", total.connections as f64),
        (
            "mean_accepted_per_phase",
            "Mean number of connections accepted in an accept phase.",
            total.mean_accepted_per_phase(),
        ),
        ("accept_queue_depth", "Connections that wait in the accept queues.", f64::from(total.queue.depth)),
        (
            "accept_queue_limit",
            "Connections that the accept queues hold at most.",
            f64::from(total.queue.limit),
        ),
        (
            "accept_limit",
            "Connections accepted in one accept phase at most; NaN if the limit is adaptive.",
            accept_limit,
        ),
    ] {
        page.gauge(name, help, value);
    }
    workers(&mut page, &total.workers);
    stages(&mut page, total);
    if let Some((hook, queues)) = control {
        overload(&mut page, hook, &queues);
    }
    page.0
}

/// Adds a sample for each accept queue under overload control, and the hook that refuses connections to them.
fn overload(page: &mut Page, hook: &str, queues: &[QueueFigures]) {
    type Value = fn(&QueueFigures) -> f64;
    let families: [(&str, &str, &str, Value); 12] = [
        ("shedding", "gauge", "1 while an accept queue refuses connections.", |queue| {
            f64::from(u8::from(queue.is_shedding()))
        }),
        ("queued", "gauge", "Connections in an accept queue.", |queue| queue.queued.into()),
        (
            "service_rate_per_second",
            "gauge",
            "Service rate of an accept queue; NaN until it is known.",
            |queue| queue.service_rate_per_s.unwrap_or(f64::NAN),
        ),
        ("offered_per_second", "gauge", "Arrivals, refused ones included, smoothed.", |queue| {
            queue.offered_per_s
        }),
        ("queueing_delay_seconds", "gauge", "Connections in the queue over its service rate.", |queue| {
            queue.queueing_delay_s
        }),
        ("wait_seconds", "gauge", "Estimated wait of a new connection for its first turn.", |queue| {
            queue.wait_s
        }),
        ("turn_seconds", "gauge", "Longest turn of the loop since the last tick.", |queue| queue.turn_s),
        ("share", "gauge", "Part of all SYNs that the hook admits.", |queue| queue.share),
        ("backlog", "gauge", "Backlog in force.", |queue| queue.backlog.into()),
        ("admitted_total", "counter", "Connections that entered an accept queue.", |queue| {
            queue.admitted as f64
        }),
        ("refused_total", "counter", "SYNs that the hook refused.", |queue| queue.refused as f64),
        ("dropped_total", "counter", "SYNs and ACKs dropped at a full accept queue.", |queue| {
            queue.dropped as f64
        }),
    ];
    page.head("overload_hook_info", "gauge", "Names the hook that refuses connections; always 1.");
    page.sample(&format!("overload_hook_info{{hook=\"{hook}\"}}"), 1.0);
    for (name, kind, help, value) in families {
        page.head(&format!("overload_{name}"), kind, help);
        for (index, queue) in queues.iter().enumerate() {
            page.sample(&format!("overload_{name}{{queue=\"{index}\"}}"), value(queue));
        }
    }
}

/// Adds a sample for each worker of a dispatcher.
fn workers(page: &mut Page, workers: &[WorkerFigures]) {
    type Value = fn(&WorkerFigures) -> f64;
    let families: [(&str, &str, Value); 2] = [
        ("worker_throughput_per_second", "Replies per second of a worker, smoothed.", |worker| {
            worker.throughput_per_s
        }),
        ("worker_connections", "Connections of a worker.", |worker| f64::from(worker.connections)),
    ];
    for (name, help, value) in families.into_iter().filter(|_| !workers.is_empty()) {
        page.head(name, "gauge", help);
        for worker in workers {
            page.sample(&format!("{name}{{worker=\"{}\"}}", worker.place), value(worker));
        }
    }
}

/// Adds a sample for each stage, and for its admission.
fn stages(page: &mut Page, total: &Counters) {
    type Value = fn(&StageFigures) -> u64;
    let families: [(&str, &str, &str, Value); 3] = [
        ("stage_queue", "gauge", "Events that wait in a stage's queue.", |stage| stage.queued),
        ("stage_threads", "gauge", "Threads of a stage.", |stage| stage.threads),
        ("stage_processed_total", "counter", "Events that a stage has worked on.", |stage| stage.processed),
    ];
    for (name, kind, help, value) in families.into_iter().filter(|_| !total.stages.is_empty()) {
        page.head(name, kind, help);
        for stage in &total.stages {
            page.sample(&format!("{name}{{stage=\"{}\"}}", stage.name), value(stage) as f64);
        }
    }
    if let Some(admission) = &total.admission {
        page.gauge(
            "admission_rate_per_second",
            "Requests admitted per second at most.",
            admission.rate_per_s.unwrap_or(f64::INFINITY),
        );
        page.gauge(
            "admission_response_time_p90_seconds",
            "90th percentile of the response time, smoothed.",
            admission.response_time_p90_s,
        );
        page.counter("admission_refused", "Requests that admission answered with 503.", admission.refused);
    }
}

struct Page(String);

impl Page {
    fn counter(&mut self, name: &str, help: &str, count: u64) {
        let name = format!("{name}_total");
        self.head(&name, "counter", help);
        self.sample(&name, count as f64);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.sample(name, value);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP inrush_{name} {help}"));
        self.line(format_args!("# TYPE inrush_{name} {kind}"));
    }

    /// Prometheus writes infinity as `+Inf`.
    fn sample(&mut self, series: &str, value: f64) {
        let value = if value.is_infinite() { "+Inf".to_owned() } else { value.to_string() };
        self.line(format_args!("inrush_{series} {value}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string");
    }
}
