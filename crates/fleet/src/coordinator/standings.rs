//! The agents of a run in progress, for the live view: an agent's interval is shown when all its threads have told of
//! it. Intervals that some threads have yet to tell of stay apart.

use base::Nanos;
use load::{AgentPhase, AgentStanding};
use record::{Outcome, Point};

/// The most intervals of an agent that await a slower thread; the oldest are dropped.
const OPEN_MOST: usize = 16;

/// The agents in the order of their shares.
#[derive(Default)]
pub(crate) struct Standings {
    shown: Vec<AgentStanding>,
    awaited: Vec<Awaited>,
}

/// The intervals of an agent that are not complete.
struct Awaited {
    /// The number of threads.
    threads: usize,
    /// Oldest first.
    open: Vec<Open>,
}

/// An agent's interval that some of its threads have told of.
#[derive(Default)]
struct Open {
    /// Threads that have reported the interval that ends at `at_s`.
    told: usize,
    at_s: f64,
    offered_per_s: f64,
    replies_per_s: f64,
    lateness_p99: Nanos,
}

impl Standings {
    /// Agents with these names and numbers of threads, before the start.
    pub fn new(agents: impl Iterator<Item = (String, usize)>) -> Standings {
        let standing = |(name, threads)| {
            (AgentStanding { name, ..AgentStanding::default() }, Awaited { threads, open: Vec::new() })
        };
        let (shown, awaited) = agents.map(standing).unzip();
        Standings { shown, awaited }
    }

    /// Returns the agents.
    pub fn all(&self) -> &[AgentStanding] {
        &self.shown
    }

    /// Adds an interval of one thread of an agent. Returns true if all its threads have reported the interval.
    pub fn add_interval(&mut self, index: u32, point: &Point) -> bool {
        let index = index as usize;
        let (Some(Awaited { threads, open }), Some(shown)) =
            (self.awaited.get_mut(index), self.shown.get_mut(index))
        else {
            return false;
        };
        shown.errors += point.outcomes.total() - point.outcomes.get(Outcome::Ok);
        let at = open.partition_point(|interval| interval.at_s < point.at_s);
        if open.get(at).is_none_or(|interval| interval.at_s > point.at_s) {
            open.insert(at, Open { at_s: point.at_s, ..Open::default() });
        }
        let interval = &mut open[at];
        let per_s = |count: u64| count as f64 / point.interval_s.max(1e-9);
        interval.told += 1;
        interval.offered_per_s += per_s(point.offered);
        interval.replies_per_s += per_s(point.replies);
        interval.lateness_p99 = interval.lateness_p99.max(Nanos(point.lateness_ns.p99));
        let is_complete = interval.told == *threads;
        if is_complete {
            shown.phase = AgentPhase::Running;
            shown.offered_per_s = interval.offered_per_s;
            shown.replies_per_s = interval.replies_per_s;
            shown.lateness_p99 = interval.lateness_p99;
            open.drain(..=at);
        }
        open.drain(..open.len().saturating_sub(OPEN_MOST));
        is_complete
    }

    /// Notes the end of an agent, which offers nothing from now on.
    pub fn end(&mut self, index: u32, phase: AgentPhase) {
        if let Some(shown) = self.shown.get_mut(index as usize) {
            *shown = AgentStanding { phase, offered_per_s: 0.0, replies_per_s: 0.0, ..shown.clone() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_s: f64, offered: u64, errors: u64) -> Point {
        let mut point =
            Point { at_s, interval_s: 0.5, offered, replies: offered - errors, ..Point::default() };
        point.outcomes.add(Outcome::Ok, offered - errors);
        point.outcomes.add(Outcome::Reset, errors);
        point
    }

    #[test]
    fn a_row_is_the_sum_of_an_agents_threads() {
        let mut standings = Standings::new([("a".to_owned(), 2), ("b".to_owned(), 1)].into_iter());
        assert!(!standings.add_interval(0, &point(0.5, 10, 1)), "the other thread has not told");
        assert_eq!(standings.all()[0].phase, AgentPhase::Ready);
        assert!(standings.add_interval(0, &point(0.5, 30, 0)));
        let first = &standings.all()[0];
        assert_eq!((first.offered_per_s, first.replies_per_s, first.errors), (80.0, 78.0, 1));
        assert!(
            !standings.add_interval(0, &point(1.0, 1, 1)) && !standings.add_interval(9, &point(1.0, 1, 1))
        );
        assert_eq!((standings.all()[0].offered_per_s, standings.all()[0].errors), (80.0, 2));
        standings.end(0, AgentPhase::Lost);
        assert_eq!((standings.all()[0].phase, standings.all()[0].offered_per_s), (AgentPhase::Lost, 0.0));
        assert_eq!(standings.all()[1].phase, AgentPhase::Ready);
    }

    #[test]
    fn slow_threads_intervals_do_not_mix_with_newer_ones() {
        let mut standings = Standings::new([("a".to_owned(), 2)].into_iter());
        assert!(
            !standings.add_interval(0, &point(0.5, 10, 0)) && !standings.add_interval(0, &point(1.0, 20, 0))
        );
        for (at_s, offered_per_s) in [(0.5, 22.0), (1.0, 42.0)] {
            assert!(standings.add_interval(0, &point(at_s, 1, 0)), "both threads have told");
            assert_eq!(standings.all()[0].offered_per_s, offered_per_s);
        }
        for number in 2..99 {
            assert!(
                !standings.add_interval(0, &point(f64::from(number), 1, 0)),
                "one thread has fallen silent"
            );
        }
        assert_eq!(standings.awaited[0].open.len(), OPEN_MOST);
    }
}
