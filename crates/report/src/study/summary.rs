//! The points of a study: the median over repetitions, with the least and the largest.
//!
//! Owns every number of a study's report that is not in a record itself.

use record::{Outcome, ServerEntry, Study, Trial, Verdict};
use statistics::Spread;

use crate::ending::Ending;

/// One server under one load.
#[derive(Clone, Debug)]
pub struct LoadPoint {
    /// The target rate over the server's capacity.
    pub factor: f64,
    /// Requests offered, a second.
    pub offered: Spread,
    /// Correct replies, a second.
    pub goodput: Spread,
    /// The median response time from the intended time, in nanoseconds; absent without replies.
    pub p50: Option<Spread>,
    /// Its 99th percentile.
    pub p99: Option<Spread>,
    /// Drops at the listener, a second.
    pub drops: Spread,
    /// Connections accepted per accept phase, where the server says so.
    pub per_phase: Option<Spread>,
    /// What became of the requests, a second each: the mean over repetitions, so that they add up.
    /// The last is what was still in flight when the run ended.
    pub ended: Vec<(Ending, f64)>,
    /// How many repetitions.
    pub trials: usize,
    /// In how many of them the generator was the limit.
    pub limited: usize,
}

/// One server under all its loads.
#[derive(Clone, Debug)]
pub struct ServerSummary<'a> {
    /// The server.
    pub entry: &'a ServerEntry,
    /// Its points, ascending by factor.
    pub points: Vec<LoadPoint>,
}

impl ServerSummary<'_> {
    /// The point with the most goodput; the earlier of equals.
    pub fn best(&self) -> Option<&LoadPoint> {
        self.points.iter().fold(None, |best: Option<&LoadPoint>, point| match best {
            Some(best) if best.goodput.median >= point.goodput.median => Some(best),
            _ => Some(point),
        })
    }

    /// The point under the heaviest load.
    pub fn heaviest(&self) -> Option<&LoadPoint> {
        self.points.last()
    }

    /// What of the best goodput is left under the heaviest load, as a share of one.
    pub fn kept(&self) -> Option<f64> {
        let best = self.best()?.goodput.median;
        (best > 0.0).then_some(self.heaviest()?.goodput.median / best)
    }
}

/// Each server's points, in the study's order.
pub fn summarise(study: &Study) -> Vec<ServerSummary<'_>> {
    study
        .servers
        .iter()
        .map(|entry| {
            let mut trials: Vec<&Trial> = study
                .trials
                .iter()
                .filter(|trial| trial.server == entry.name && trial.load.verdict != Verdict::Unreachable)
                .collect();
            trials.sort_by(|a, b| a.factor.total_cmp(&b.factor).then(a.order.cmp(&b.order)));
            let loads = trials.chunk_by(|a, b| a.factor == b.factor);
            ServerSummary { entry, points: loads.filter_map(point).collect() }
        })
        .collect()
}

fn point(trials: &[&Trial]) -> Option<LoadPoint> {
    let over = |value: fn(&Trial) -> f64| Spread::of(trials.iter().map(|trial| value(trial)));
    let answered = || trials.iter().filter(|trial| trial.load.latency_intended_ns.answered.count > 0);
    let limited = |trial: &&&Trial| trial.load.verdict == Verdict::GeneratorLimited;
    Some(LoadPoint {
        factor: trials.first()?.factor,
        offered: over(|trial| trial.load.offered_per_s)?,
        goodput: over(|trial| trial.load.goodput_per_s)?,
        p50: Spread::of(answered().map(|trial| trial.load.latency_intended_ns.answered.p50 as f64)),
        p99: Spread::of(answered().map(|trial| trial.load.latency_intended_ns.answered.p99 as f64)),
        drops: over(|trial| trial.kernel.listen_drops_per_s())?,
        per_phase: Spread::of(trials.iter().filter_map(|trial| trial.mean_accepted_per_phase())),
        ended: endings(trials),
        trials: trials.len(),
        limited: trials.iter().filter(limited).count(),
    })
}

fn endings(trials: &[&Trial]) -> Vec<(Ending, f64)> {
    let total_s: f64 = trials.iter().map(|trial| trial.load.duration_s).sum();
    let per_s = |count: f64| if total_s > 0.0 { count / total_s } else { 0.0 };
    let sum = |count: &dyn Fn(&Trial) -> u64| trials.iter().map(|trial| count(trial) as f64).sum::<f64>();
    let ended = Outcome::ALL
        .into_iter()
        .map(|outcome| (Ending::Ended(outcome), per_s(sum(&|trial| trial.load.outcomes.get(outcome)))));
    let in_flight = (Ending::InFlight, per_s(sum(&|trial| trial.load.in_flight_at_end)));
    ended.chain([in_flight]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_few() {
        let median = |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| spread.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0]), Some(5.0));
        assert_eq!(median(&[9.0, f64::NAN, 1.0, 2.0]), Some(2.0));
    }
}
