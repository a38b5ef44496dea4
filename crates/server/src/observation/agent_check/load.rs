//! The load of a server, from its counters, its overload control and its CPU time.
//!
//! [`weight`](super::weight) turns the load into the server's weight.

use base::Nanos;

use super::weight::Signals;
use crate::connections::overload_control::{Overload, QueueFigures};
use crate::ground::counters::{Board, Counters};

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Processors that the server's threads and processes can keep busy at once; a CPU quota can make it a fraction.
    pub processors: f64,
    /// The connection limit.
    pub connections: usize,
}

/// The load of a server since the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// The signals for the weight.
    pub signals: Signals,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Responses with status 5xx per second.
    pub errors_per_s: f64,
}

/// Reads the load of all loops.
pub struct Meter {
    boards: Vec<Board>,
    /// The board of the loop that answers refused connections.
    refusals: Board,
    overload: Option<Overload>,
    capacity: Capacity,
    /// The totals of the last reading.
    last: Last,
}

/// Totals, and the time at which they were read.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    at: Nanos,
    cpu: Nanos,
    requests: u64,
    errors: u64,
}

impl Last {
    fn of(total: &Counters, at: Nanos) -> Last {
        let cpu = sys::cpu::process_time().saturating_add(Nanos::from_micros(total.loops.worker_cpu_time));
        Last { at, cpu, requests: total.http.requests, errors: total.http.responses_5xx }
    }
}

impl Meter {
    /// Makes a meter that measures from now on.
    pub fn new(
        boards: Vec<Board>,
        refusals: Board,
        overload: Option<Overload>,
        capacity: Capacity,
        now: Nanos,
    ) -> Meter {
        let mut meter = Meter { boards, refusals, overload, capacity, last: Last::default() };
        meter.last = Last::of(&meter.total(), now);
        meter
    }

    /// Returns the load since the last reading.
    pub fn read(&mut self, now: Nanos) -> Reading {
        let total = self.total();
        let new = Last::of(&total, now);
        let old = std::mem::replace(&mut self.last, new);
        let elapsed = now.saturating_sub(old.at).as_secs_f64();
        let used = new.cpu.saturating_sub(old.cpu).as_secs_f64();
        let per_s = |new: u64, old: u64| new.saturating_sub(old) as f64 / elapsed.max(1e-9);
        Reading {
            signals: Signals {
                busy: part(used, elapsed * self.capacity.processors),
                connections: part(total.connections as f64, self.capacity.connections as f64),
                queue: self.queue(&total, now),
            },
            requests_per_s: per_s(new.requests, old.requests),
            errors_per_s: per_s(new.errors, old.errors),
        }
    }

    fn total(&self) -> Counters {
        Counters::of_server(self.boards.iter().map(Board::read), &self.refusals)
    }

    /// Returns the mean over the accept queues, because the kernel spreads connections evenly over them.
    fn queue(&self, total: &Counters, now: Nanos) -> f64 {
        let Some(overload) = &self.overload else {
            return part(f64::from(total.queue.depth), f64::from(total.queue.limit));
        };
        let (target, queues) = (overload.target(), overload.figures(now));
        part(queues.iter().map(|queue| of_queue(queue, target)).sum(), queues.len() as f64)
    }
}

/// Returns the larger of two parts: the refused part of connections, and the queueing delay as a part of five
/// targets, at most 0.5. The delay reaches 0.5 at 2.5 targets, below which overload control refuses no connection.
fn of_queue(queue: &QueueFigures, target: Nanos) -> f64 {
    let refused = if queue.is_shedding() { 1.0 - queue.share } else { 0.0 };
    refused.max(part(queue.queueing_delay_s, 5.0 * target.as_secs_f64()).min(0.5))
}

/// Returns `some` as a part of `all`, from 0 to 1; 0 if `all` is 0.
fn part(some: f64, all: f64) -> f64 {
    if all > 0.0 { (some / all).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burning_thread_is_load() {
        let clock = base::RealClock::new();
        let now = || base::Clock::now(&clock);
        let capacity = Capacity { processors: 1.0, connections: 10 };
        let board = Board::default();
        let mut meter = Meter::new(vec![board.clone()], Board::default(), None, capacity, now());
        board.publish(Counters { connections: 5, ..Counters::default() });
        sys::cpu::burn(Nanos::from_millis(5));
        let Signals { busy, connections, queue } = meter.read(now()).signals;
        assert!(busy > 0.0 && busy <= 1.0);
        assert_eq!((connections, queue), (0.5, 0.0));
    }

    #[test]
    fn a_queue_counts_by_its_wait_and_by_what_it_refuses() {
        let target = Nanos::from_millis(20);
        let open = |wait| QueueFigures {
            state: "open",
            queueing_delay_s: wait,
            share: 1.0,
            ..QueueFigures::default()
        };
        assert_eq!(of_queue(&open(0.0), target), 0.0);
        assert!((of_queue(&open(0.02), target) - 0.2).abs() < 1e-9);
        assert_eq!(of_queue(&open(9.0), target), 0.5);
        let shedding = QueueFigures { state: "shedding", share: 0.3, ..QueueFigures::default() };
        assert!((of_queue(&shedding, target) - 0.7).abs() < 1e-9);
    }
}
