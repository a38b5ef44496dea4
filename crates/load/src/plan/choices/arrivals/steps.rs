//! Several rates, one after the other, each with a time: `RATExTIME,RATExTIME,...`. The last rate holds until
//! the end of the run.

use std::fmt;
use std::sync::Arc;

use base::{Nanos, PerSecond, Seed};

use super::profile::{Piece, Profile};
use super::{ArrivalProcess, Arrivals, Kind, Lane, parse_rate};
use crate::plan::terms::window::Window;

pub(super) const KIND: Kind = Kind {
    form: "steps:RATExTIME,...",
    help: "steps:100x10s,1kx5s; the last step lasts until the end.",
    has_own_rate: true,
    reads_file: false,
    parse: |settings| Ok(Arc::new(Steps::parse(settings)?)),
};

/// The steps from the run's start on; at least one rate is above 0.
struct Steps(Vec<(PerSecond, Nanos)>);

impl Steps {
    fn parse(text: &str) -> Result<Steps, String> {
        let step = |text: &str| {
            let (rate, time) = text.split_once('x')?;
            let time = time.parse().ok().filter(|time| *time > Nanos::ZERO)?;
            Some((parse_rate(rate)?, time))
        };
        let steps: Option<Vec<_>> = text.split(',').map(step).collect();
        match steps {
            Some(steps) if steps.iter().any(|(rate, _)| rate.0 > 0.0) => Ok(Steps(steps)),
            _ => Err("expected steps:RATExTIME,... such as steps:100x10s,1kx5s,100x30s".to_owned()),
        }
    }

    fn profile(&self) -> Profile {
        let last = self.0.len() - 1;
        Profile::once(self.0.iter().enumerate().map(|(index, (rate, time))| {
            let length_s = if index == last { f64::INFINITY } else { time.as_secs_f64() };
            Piece::level(length_s, rate.0)
        }))
    }
}

impl ArrivalProcess for Steps {
    fn arrivals(&self, _rate: PerSecond, _run: Nanos, lane: Lane, _seed: Seed) -> Arrivals {
        Box::new(self.profile().arrivals(lane))
    }

    fn mean(&self, _rate: PerSecond, window: Window) -> PerSecond {
        self.profile().mean(window)
    }

    fn peak(&self, _rate: PerSecond, _run: Nanos, _span: Nanos) -> PerSecond {
        self.profile().peak()
    }

    fn excess(&self, _mean: f64) -> f64 {
        0.0
    }

    /// The run may be shorter or longer than the steps.
    fn remark(&self, window: Window) -> Option<String> {
        let run = window.until;
        let all = self.0.iter().fold(Nanos::ZERO, |sum, (_, time)| sum.saturating_add(*time));
        (all != run).then(|| match all > run {
            true => format!("The steps take {all}, but the run ends after {run}, warm-up included."),
            false => {
                format!("The steps end after {all}; their last rate holds until the run ends after {run}.")
            }
        })
    }

    fn hurst_in_theory(&self) -> Option<f64> {
        None
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("steps:")?;
        for (index, (rate, time)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}x{time}", rate.0)?;
        }
        Ok(())
    }
}
