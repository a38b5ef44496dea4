//! The sentences about the place where requests wait or are lost past the capacity: an accept queue, the CPUs, or inside
//! the server.

use analysis::capacity::judge::{Shortfall, largest_offered, shortfalls};
use record::capacity::QueueSide;
use record::{CapacityResult, Outcome, Step};

use crate::format::{plural, rate, time};

/// A share of the CPUs from which on they are the limit.
const BUSY: f64 = 0.9;
/// An accept queue with a smaller share of the waiting requests is not where they wait.
const FEW: f64 = 0.5;

/// The sentences for the largest load; empty without a load past the capacity.
pub(super) fn of(result: &CapacityResult) -> String {
    let Some(largest) = largest_offered(&result.past) else { return String::new() };
    let server = result.server.as_ref();
    let queue = server.and_then(|server| server.queue.as_ref());
    let sentences = [
        queue.map_or(String::new(), |queue| of_queue(result, largest, queue)),
        waiting(result, largest),
        cpu(result),
    ];
    sentences.into_iter().filter(|sentence| !sentence.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The replies a second, correct or not.
fn replies_per_s(step: &Step) -> f64 {
    let replies: u64 = [Outcome::Ok, Outcome::StatusError, Outcome::WrongBody, Outcome::Shed]
        .map(|outcome| step.outcomes.get(outcome))
        .iter()
        .sum();
    replies as f64 / step.duration_s
}

/// The accept queue: its drops, its length in connections and in time, and the backlog for the deadline.
fn of_queue(result: &CapacityResult, largest: &Step, queue: &QueueSide) -> String {
    let QueueSide { depth_max, limit, drops, requests_per_connection } = *queue;
    if limit == 0 {
        return String::new();
    }
    let accepted_per_s = replies_per_s(largest) / requests_per_connection;
    // A server that answers nothing empties no queue: the length in time has no bound.
    let is_emptied = accepted_per_s > 0.0;
    let in_time = |connections: u64| time(connections as f64 / accepted_per_s * 1e9);
    let dropped = plural(drops as usize, "packet", "packets");
    let found = if drops > 0 && depth_max >= limit {
        let full =
            format!("Its accept queue was full, and the kernel dropped {dropped} there: a queue of {limit}");
        match is_emptied {
            true => format!("{full} is {} long at {}.", in_time(limit), rate(accepted_per_s)),
            false => format!("{full} of which the server answered nothing."),
        }
    } else {
        let drops = if drops > 0 {
            format!("The kernel dropped {dropped} at its listener")
        } else {
            "Its accept queue dropped nothing".to_owned()
        };
        let length = match is_emptied {
            true => format!(", {} at {}", in_time(depth_max), rate(accepted_per_s)),
            false => String::new(),
        };
        format!("{drops}: the queue held up to {depth_max} of {limit} connections{length}.")
    };
    let deadline_s = result.deadline_ns as f64 / 1e9;
    let backlog = (accepted_per_s * deadline_s).floor().max(1.0) as u64;
    if is_emptied && depth_max > backlog && backlog < limit {
        let deadline = time(result.deadline_ns as f64);
        return format!("{found} For replies within {deadline}, set a backlog of {backlog}.");
    }
    found
}

/// The number of requests that wait, by Little's law; empty unless replies wait in a queue.
fn waiting(result: &CapacityResult, largest: &Step) -> String {
    let latency = &largest.latency_intended_ns;
    if !shortfalls(result).contains(&Shortfall::Latency) || latency.count == 0 {
        return String::new();
    }
    let (took_ns, served) = (latency.p50 as f64, replies_per_s(largest));
    let waiting = took_ns / 1e9 * served;
    let queue = result.server.as_ref().and_then(|server| server.queue.as_ref());
    let is_inside = queue.is_some_and(|queue| {
        queue.drops == 0 && (queue.depth_max as f64) * queue.requests_per_connection < waiting * FEW
    });
    let place = if is_inside { ", most of them inside the server" } else { "" };
    format!("Replies took {} at {}: about {waiting:.0} requests wait{place}.", time(took_ns), rate(served))
}

/// The CPU time of the server, and whether it is the limit.
fn cpu(result: &CapacityResult) -> String {
    let Some((server, cpu)) = result.server.as_ref().and_then(|server| Some((server, server.cpu?))) else {
        return String::new();
    };
    let name = server.name.as_deref().unwrap_or("the server");
    let judged = if cpu >= BUSY * server.cpus as f64 {
        ": the CPUs are the limit"
    } else if (BUSY..=2.0 - BUSY).contains(&cpu) {
        ": one thread cannot use more"
    } else {
        ""
    };
    format!("Its program, {name}, used up to {cpu:.2} of {}{judged}.", plural(server.cpus, "CPU", "CPUs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::capacity::{SCHEMA, ServerSide};
    use record::load::{Distribution, Outcomes};
    use record::{CapacityVerdict, Manifest};

    /// A server that answers 200/s past its capacity, from a queue of 512.
    fn waited(server: Option<ServerSide>) -> CapacityResult {
        let step = |asked_per_s: f64, p50: u64| {
            let mut outcomes = Outcomes::default();
            outcomes.add(Outcome::Ok, 400);
            outcomes.add(Outcome::ConnectTimeout, 200);
            let latency_intended_ns =
                Distribution { count: 400, p50, p99: p50, max: p50, ..Distribution::default() };
            Step {
                asked_per_s,
                offered_per_s: asked_per_s,
                goodput_per_s: 200.0,
                duration_s: 2.0,
                latency_intended_ns,
                outcomes,
                in_flight_at_end: 0,
                slo_held: true,
                generator_limited: false,
                reasons: Vec::new(),
            }
        };
        CapacityResult {
            schema: SCHEMA.to_owned(),
            capacity_per_s: 200.0,
            interval_per_s: [190.0, 210.0],
            slo: None,
            deadline_ns: 200_000_000,
            search: Vec::new(),
            knee: vec![step(160.0, 1_000_000)],
            past: vec![step(600.0, 2_650_000_000)],
            back: Vec::new(),
            recovery_s: None,
            loss: Default::default(),
            server,
            verdict: CapacityVerdict::Collapses,
            text: String::new(),
            manifest: Manifest::default(),
        }
    }

    /// A side with this depth and these drops of a queue of 512, and this CPU time of one of two CPUs.
    fn side(depth_max: u64, drops: u64, cpu: f64) -> Option<ServerSide> {
        let queue = QueueSide { depth_max, limit: 512, drops, requests_per_connection: 1.0 };
        Some(ServerSide { name: Some("node".to_owned()), queue: Some(queue), cpu: Some(cpu), cpus: 2 })
    }

    /// No simulation measures the confidence of the interval, so the text states none.
    #[test]
    fn interval_of_a_capacity_has_no_confidence() {
        assert_eq!(
            super::super::capacity(&waited(None)),
            "The capacity is 200/s, between 190/s and 210/s: the highest load that the server answers in full, within \
             200 ms."
        );
    }

    #[test]
    fn waiting_requests_are_inferred() {
        assert_eq!(of(&waited(None)), "Replies took 2.65 s at 200/s: about 530 requests wait.");
    }

    #[test]
    fn full_queue_is_named_with_the_backlog_to_set() {
        assert_eq!(
            of(&waited(side(513, 3_000, 0.97))),
            "Its accept queue was full, and the kernel dropped 3000 packets there: a queue of 512 is 2.56 s long at \
             200/s. For replies within 200 ms, set a backlog of 40. Replies took 2.65 s at 200/s: about 530 requests \
             wait. Its program, node, used up to 0.97 of 2 CPUs: one thread cannot use more."
        );
    }

    #[test]
    fn short_queue_leaves_requests_inside_the_server() {
        assert_eq!(
            of(&waited(side(20, 0, 1.9))),
            "Its accept queue dropped nothing: the queue held up to 20 of 512 connections, 100 ms at 200/s. Replies \
             took 2.65 s at 200/s: about 530 requests wait, most of them inside the server. Its program, node, used up \
             to 1.90 of 2 CPUs: the CPUs are the limit."
        );
    }

    #[test]
    fn full_queue_is_named_without_a_reply_too() {
        let mut result = waited(side(513, 3_000, 0.3));
        let largest = &mut result.past[0];
        largest.outcomes = Outcomes::default();
        largest.latency_intended_ns = Distribution::default();
        assert_eq!(
            of(&result),
            "Its accept queue was full, and the kernel dropped 3000 packets there: a queue of 512 of which the server \
             answered nothing. Its program, node, used up to 0.30 of 2 CPUs."
        );
    }

    #[test]
    fn drops_beside_a_queue_with_room_are_told() {
        let text = of(&waited(side(20, 1, 0.5)));
        assert!(
            text.starts_with(
                "The kernel dropped 1 packet at its listener: the queue held up to 20 of 512 connections"
            ),
            "{text}"
        );
        assert!(text.ends_with("used up to 0.50 of 2 CPUs."), "{text}");
    }
}
