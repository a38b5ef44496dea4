//! A rate that changes linearly over the whole run, warm-up included: `FROM..TO`.

use std::fmt;

use base::{Nanos, PerSecond};

use super::profile::{Piece, Profile};
use super::{NotAProcess, parse_rate};

/// The first and the last rate; one of them may be 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    from: PerSecond,
    to: PerSecond,
}

impl Ramp {
    pub(super) fn parse(whole: &str, text: &str) -> Result<Ramp, NotAProcess> {
        let rates = text.split_once("..").and_then(|(from, to)| Some((parse_rate(from)?, parse_rate(to)?)));
        match rates {
            Some((from, to)) if from.0 > 0.0 || to.0 > 0.0 => Ok(Ramp { from, to }),
            _ => Err(NotAProcess::new(whole, "accepted is ramp:FROM..TO in sessions/s, such as ramp:0..2k")),
        }
    }

    /// The planned rate over a run of length `run`.
    pub(super) fn profile(&self, run: Nanos) -> Profile {
        Profile::once([Piece { length_s: run.as_secs_f64(), from_per_s: self.from.0, to_per_s: self.to.0 }])
    }
}

impl fmt::Display for Ramp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ramp:{}..{}", self.from.0, self.to.0)
    }
}
