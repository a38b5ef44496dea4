//! Bursts (Banga 1997, section 5.4). The rate is `a` times the mean for a fraction `b`
//! of each period, and r(1-ab)/(1-b) for the rest of it.
//!
//! A period begins with its quiet part, so that a run does not begin with a burst. Whole periods have exactly
//! the mean rate, wherever they begin.

use std::fmt;
use std::sync::Arc;

use base::{Nanos, PerSecond, Seed};

use super::profile::{Piece, Profile};
use super::{ArrivalProcess, Arrivals, Kind, Lane};
use crate::plan::terms::window::Window;

pub(super) const KIND: Kind = Kind {
    form: "on-off:PEAK,FRACTION[,PERIOD]",
    help: "on-off:6,5%,100s has 6 times --rate during 5 % of each 100 s. The rest of each\nperiod has a lower rate, so that \
           the average is --rate.",
    has_own_rate: false,
    reads_file: false,
    parse: |settings| Ok(Arc::new(OnOff::parse(settings)?)),
};

/// The period of the paper.
const PERIOD: Nanos = Nanos::from_secs(100);

/// The shape of the bursts: `PEAK,FRACTION[,PERIOD]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OnOff {
    /// `a`: the peak rate over the mean; above 1, and below 1 / `fraction`.
    peak: f64,
    /// `b`: the fraction of the time at the peak; between 0 and 1.
    fraction: f64,
    /// The length of a period; above 0.
    period: Nanos,
}

impl OnOff {
    fn parse(text: &str) -> Result<OnOff, String> {
        let refuse = |why: &str| why.to_owned();
        let parts: Vec<&str> = text.split(',').collect();
        let (peak, fraction, period) = match parts[..] {
            [peak, fraction] => (peak, fraction, Some(PERIOD)),
            [peak, fraction, period] => (peak, fraction, period.parse().ok()),
            _ => return Err(refuse("expected on-off:PEAK,FRACTION[,PERIOD] such as on-off:6,5%,100s")),
        };
        let peak = peak.parse().ok().filter(|peak: &f64| *peak > 1.0 && peak.is_finite());
        let peak = peak.ok_or_else(|| refuse("PEAK is the peak rate over the mean, above 1"))?;
        let fraction = parse_fraction(fraction)
            .ok_or_else(|| refuse("FRACTION is the part of the time at the peak, such as 5% or 0.05"))?;
        let period = period
            .filter(|period| *period > Nanos::ZERO)
            .ok_or_else(|| refuse("PERIOD is a time above 0 such as 100s"))?;
        if peak * fraction >= 1.0 {
            return Err(refuse("PEAK x FRACTION must be below 1, or the bursts alone exceed the mean"));
        }
        Ok(OnOff { peak, fraction, period })
    }

    fn profile(&self, rate: PerSecond) -> Profile {
        let period_s = self.period.as_secs_f64();
        let off_per_s = rate.0 * (1.0 - self.peak * self.fraction) / (1.0 - self.fraction);
        Profile::repeated([
            Piece::level(period_s * (1.0 - self.fraction), off_per_s),
            Piece::level(period_s * self.fraction, rate.0 * self.peak),
        ])
    }
}

impl ArrivalProcess for OnOff {
    fn arrivals(&self, rate: PerSecond, _run: Nanos, lane: Lane, _seed: Seed) -> Arrivals {
        Box::new(self.profile(rate).arrivals(lane))
    }

    fn mean(&self, rate: PerSecond, window: Window) -> PerSecond {
        self.profile(rate).mean(window)
    }

    fn peak(&self, rate: PerSecond, _run: Nanos, _span: Nanos) -> PerSecond {
        self.profile(rate).peak()
    }

    fn excess(&self, _mean: f64) -> f64 {
        0.0
    }

    /// A measured time that is not a whole number of periods changes the mean.
    fn remark(&self, window: Window) -> Option<String> {
        let duration = window.length();
        (!duration.0.is_multiple_of(self.period.0)).then(|| {
            format!(
                "{duration} is not a whole number of periods of {}, so the measured mean rate differs from --rate.",
                self.period
            )
        })
    }

    fn hurst_in_theory(&self) -> Option<f64> {
        None
    }
}

/// Parses `5%` or `0.05`: above 0 and below 1.
fn parse_fraction(text: &str) -> Option<f64> {
    let fraction = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (fraction > 0.0 && fraction < 1.0).then_some(fraction)
}

impl fmt::Display for OnOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on-off:{},{},{}", self.peak, self.fraction, self.period)
    }
}
