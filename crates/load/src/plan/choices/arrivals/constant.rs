//! Evenly spaced arrivals. Each time is computed from its number, not from the time before, so that rounding
//! errors do not add up. The lanes take turns.

use std::fmt;
use std::sync::Arc;

use base::{Nanos, PerSecond, Seed};

use super::{ArrivalProcess, Arrivals, Kind, Lane};
use crate::plan::terms::window::Window;

pub(super) const KIND: Kind = Kind {
    form: "constant",
    help: "evenly spaced sessions at --rate.",
    has_own_rate: false,
    reads_file: false,
    parse: |_| Ok(Arc::new(Constant)),
};

/// The process; the rate is its only setting.
pub(super) struct Constant;

impl ArrivalProcess for Constant {
    fn arrivals(&self, rate: PerSecond, _run: Nanos, lane: Lane, _seed: Seed) -> Arrivals {
        let interval_ns = 1e9 / rate.0;
        let numbers = (u64::from(lane.index)..).step_by(lane.count as usize);
        Box::new(numbers.map(move |number| Nanos((number as f64 * interval_ns) as u64)))
    }

    fn mean(&self, rate: PerSecond, _window: Window) -> PerSecond {
        rate
    }

    fn peak(&self, rate: PerSecond, _run: Nanos, _span: Nanos) -> PerSecond {
        rate
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

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("constant")
    }
}
