//! Several rates, one after the other, each with a time: `RATExTIME,RATExTIME,...`. The last rate holds until
//! the end of the run.

use std::fmt;

use base::{Nanos, PerSecond};

use super::profile::{Piece, Profile};
use super::{NotAProcess, parse_rate};

/// The steps from the run's start on; at least one rate is above 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps(Vec<(PerSecond, Nanos)>);

impl Steps {
    pub(super) fn parse(whole: &str, text: &str) -> Result<Steps, NotAProcess> {
        let step = |text: &str| {
            let (rate, time) = text.split_once('x')?;
            let time = time.parse().ok().filter(|time| *time > Nanos::ZERO)?;
            Some((parse_rate(rate)?, time))
        };
        let steps: Option<Vec<_>> = text.split(',').map(step).collect();
        match steps {
            Some(steps) if steps.iter().any(|(rate, _)| rate.0 > 0.0) => Ok(Steps(steps)),
            _ => {
                let accepted = "accepted is steps:RATExTIME,... such as steps:100x10s,1kx5s,100x30s";
                Err(NotAProcess::new(whole, accepted))
            }
        }
    }

    pub(super) fn profile(&self) -> Profile {
        let last = self.0.len() - 1;
        Profile::once(self.0.iter().enumerate().map(|(index, (rate, time))| {
            let length_s = if index == last { f64::INFINITY } else { time.as_secs_f64() };
            Piece::level(length_s, rate.0)
        }))
    }

    /// A remark for a run that is shorter or longer than the steps.
    pub(super) fn remark(&self, run: Nanos) -> Option<String> {
        let all = self.0.iter().fold(Nanos::ZERO, |sum, (_, time)| sum.saturating_add(*time));
        (all != run).then(|| match all > run {
            true => format!("The steps take {all}, but the run ends after {run}, warm-up included."),
            false => {
                format!("The steps end after {all}; their last rate holds until the run ends after {run}.")
            }
        })
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
