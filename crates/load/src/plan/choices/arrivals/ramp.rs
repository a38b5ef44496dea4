//! A rate that changes linearly over the whole run, warm-up included: `FROM..TO`.

use std::fmt;
use std::sync::Arc;

use base::{Nanos, PerSecond, Seed};

use super::profile::{Piece, Profile};
use super::{ArrivalProcess, Arrivals, Kind, Lane, parse_rate};
use crate::plan::terms::window::Window;

pub(super) const KIND: Kind = Kind {
    form: "ramp:FROM..TO",
    help: "ramp:0..2k rises over the whole run, warm-up included.",
    has_own_rate: true,
    reads_file: false,
    parse: |settings| Ok(Arc::new(Ramp::parse(settings)?)),
};

/// The first and the last rate; one of them may be 0.
struct Ramp {
    from: PerSecond,
    to: PerSecond,
}

impl Ramp {
    fn parse(text: &str) -> Result<Ramp, String> {
        let rates = text.split_once("..").and_then(|(from, to)| Some((parse_rate(from)?, parse_rate(to)?)));
        match rates {
            Some((from, to)) if from.0 > 0.0 || to.0 > 0.0 => Ok(Ramp { from, to }),
            _ => Err("expected ramp:FROM..TO in sessions/s, such as ramp:0..2k".to_owned()),
        }
    }

    /// The planned rate over a run of length `run`.
    fn profile(&self, run: Nanos) -> Profile {
        Profile::once([Piece { length_s: run.as_secs_f64(), from_per_s: self.from.0, to_per_s: self.to.0 }])
    }
}

impl ArrivalProcess for Ramp {
    fn arrivals(&self, _rate: PerSecond, run: Nanos, lane: Lane, _seed: Seed) -> Arrivals {
        Box::new(self.profile(run).arrivals(lane))
    }

    fn mean(&self, _rate: PerSecond, window: Window) -> PerSecond {
        self.profile(window.until).mean(window)
    }

    fn peak(&self, _rate: PerSecond, run: Nanos, _span: Nanos) -> PerSecond {
        self.profile(run).peak()
    }

    fn excess(&self, _mean: f64) -> f64 {
        0.0
    }

    fn remark(&self, _window: Window) -> Option<String> {
        None
    }

    fn hurst_in_theory(&self) -> Option<f64> {
        None
    }
}

impl fmt::Display for Ramp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ramp:{}..{}", self.from.0, self.to.0)
    }
}
