//! The agents of a run in progress, for the live view: an agent's interval is shown when all its threads have told of
//! it.

use base::Nanos;
use load::{AgentPhase, AgentStanding};
use record::{Outcome, Point};

/// The agents in the order of their shares.
#[derive(Default)]
pub(crate) struct Standings {
    shown: Vec<AgentStanding>,
    open: Vec<Open>,
}

/// An agent's interval that some of its threads have told of.
#[derive(Default)]
struct Open {
    /// The number of threads.
    threads: usize,
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
            (AgentStanding { name, ..AgentStanding::default() }, Open { threads, ..Open::default() })
        };
        let (shown, open) = agents.map(standing).unzip();
        Standings { shown, open }
    }

    /// Returns the agents.
    pub fn all(&self) -> &[AgentStanding] {
        &self.shown
    }

    /// Adds an interval of one thread of an agent. Returns true if all its threads have reported the interval.
    pub fn tell(&mut self, index: u32, point: &Point) -> bool {
        let index = index as usize;
        let (Some(open), Some(shown)) = (self.open.get_mut(index), self.shown.get_mut(index)) else {
            return false;
        };
        if point.at_s > open.at_s {
            *open = Open { threads: open.threads, at_s: point.at_s, ..Open::default() };
        }
        let per_s = |count: u64| count as f64 / point.interval_s.max(1e-9);
        open.told += 1;
        open.offered_per_s += per_s(point.offered);
        open.replies_per_s += per_s(point.replies);
        open.lateness_p99 = open.lateness_p99.max(Nanos(point.lateness_ns.p99));
        shown.errors += point.outcomes.total() - point.outcomes.get(Outcome::Ok);
        let is_complete = open.told == open.threads;
        if is_complete {
            shown.phase = AgentPhase::Running;
            shown.offered_per_s = open.offered_per_s;
            shown.replies_per_s = open.replies_per_s;
            shown.lateness_p99 = open.lateness_p99;
        }
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
        assert!(!standings.tell(0, &point(0.5, 10, 1)), "the other thread has not told");
        assert_eq!(standings.all()[0].phase, AgentPhase::Ready);
        assert!(standings.tell(0, &point(0.5, 30, 0)));
        let first = &standings.all()[0];
        assert_eq!((first.offered_per_s, first.replies_per_s, first.errors), (80.0, 78.0, 1));
        assert!(!standings.tell(0, &point(1.0, 1, 1)) && !standings.tell(9, &point(1.0, 1, 1)));
        assert_eq!((standings.all()[0].offered_per_s, standings.all()[0].errors), (80.0, 2));
        standings.end(0, AgentPhase::Lost);
        assert_eq!((standings.all()[0].phase, standings.all()[0].offered_per_s), (AgentPhase::Lost, 0.0));
        assert_eq!(standings.all()[1].phase, AgentPhase::Ready);
    }
}
