//! The curve of a metric along an axis, for any set of repetitions.

use record::experiment::TrialRecord;
use statistics::median;

use super::select::by_place;

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
        let point = |group: Vec<&TrialRecord>| {
            let value =
                |trial: &&TrialRecord| Some((trial.quantity(x)?, (trial.repeat, trial.quantity(metric)?)));
            let (xs, ys): (Vec<f64>, Vec<(u32, f64)>) = group.iter().filter_map(value).unzip();
            (!xs.is_empty()).then(|| CurvePoint { x: median(&xs), ys })
        };
        let mut points: Vec<CurvePoint> = by_place(trials, x).into_iter().filter_map(point).collect();
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
