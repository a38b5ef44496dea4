//! The curve of a metric along an axis, for any set of repetitions.

use std::collections::BTreeMap;

use record::experiment::TrialRecord;
use statistics::median;

use super::select::{key, names};

/// A curve that can leave repetitions out, or take them twice.
pub struct Curves {
    points: Vec<CurvePoint>,
}

struct CurvePoint {
    x: f64,
    /// The repetitions with their values.
    ys: Vec<(u32, f64)>,
}

impl Curves {
    /// Makes the curve of a metric over an axis or over another metric. Over a metric, trials that differ only in
    /// their repetition make a point, which lies at their median along x.
    pub fn new(trials: &[&TrialRecord], x: &str, metric: &str) -> Curves {
        let is_axis = trials.iter().any(|trial| trial.axes.contains_key(x));
        let names = if is_axis { vec![x.to_owned()] } else { names(trials.iter().copied()) };
        let mut groups: BTreeMap<Vec<String>, Vec<(f64, u32, f64)>> = BTreeMap::new();
        for trial in trials {
            let (Some(x), Some(y)) = (trial.quantity(x), trial.quantity(metric)) else { continue };
            groups.entry(key(trial, &names).1).or_default().push((x, trial.repeat, y));
        }
        let point = |group: Vec<(f64, u32, f64)>| CurvePoint {
            x: median(&group.iter().map(|(x, _, _)| *x).collect::<Vec<_>>()),
            ys: group.into_iter().map(|(_, repeat, y)| (repeat, y)).collect(),
        };
        let mut points: Vec<CurvePoint> = groups.into_values().map(point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Curves { points }
    }

    /// Returns every repetition of any point, once.
    pub fn repeats(&self) -> Vec<u32> {
        let mut repeats: Vec<u32> =
            self.points.iter().flat_map(|point| &point.ys).map(|(repeat, _)| *repeat).collect();
        repeats.sort_unstable();
        repeats.dedup();
        repeats
    }

    /// Returns the medians over some repetitions, ascending in x. Leaves out a point without any of them.
    pub fn of(&self, repeats: &[u32]) -> Vec<(f64, f64)> {
        let at = |point: &CurvePoint| {
            let ys =
                repeats.iter().flat_map(|drawn| point.ys.iter().filter(move |(repeat, _)| repeat == drawn));
            let ys: Vec<f64> = ys.map(|(_, y)| *y).collect();
            (!ys.is_empty()).then(|| (point.x, median(&ys)))
        };
        self.points.iter().filter_map(at).collect()
    }
}
