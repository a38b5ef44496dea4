//! Self-similar traffic from [`SOURCES`] on/off sources. Their on-times and off-times have Pareto
//! distributions of the same shape (Willinger, Taqqu, Sherman, Wilson 1997). Their
//! superposition has the Hurst parameter (3 - shape) / 2 above the scale of [`CYCLE_S`].
//!
//! Every source is on for a mean of 0.1 s and off for a mean of 0.9 s. Its arrivals are evenly spaced while
//! it is on, so the rate's standard deviation is 30 % of its mean.
//!
//! The sources begin in their stationary state, so the mean rate is the given one from the start. The mean
//! *seen* in a run approaches it only slowly: that is self-similarity. The draws of a source depend on its
//! number alone, so the arrivals are the same for any number of lanes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;

use base::{Nanos, PerSecond, Rng, Seed};
use rand::RngExt;

use super::{ArrivalProcess, Arrivals, Kind, Lane, random_excess};
use crate::plan::terms::window::Window;

pub(super) const KIND: Kind = Kind {
    form: "pareto:ALPHA",
    help: "self-similar bursts of 100 sources, on for 0.1 s and off for 0.9 s on average.",
    has_own_rate: false,
    reads_file: false,
    parse: |settings| Ok(Arc::new(Pareto::parse(settings)?)),
};

/// The number of sources of all lanes together.
const SOURCES: u32 = 100;

/// The mean time from the beginning of one on-time to the beginning of the next.
const CYCLE_S: f64 = 1.0;

/// The fraction of the time that a source is on.
const ON: f64 = 0.1;

/// The most sources that are on at once, in standard deviations above their mean; exceeded once in millions
/// of times. The binomial distribution has a longer upper tail than the normal one, for which 5 would do.
const DEVIATIONS: f64 = 6.0;

/// Pareto on/off sources with this shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pareto {
    /// Between 1 and 2: finite mean, infinite variance.
    shape: f64,
}

impl Pareto {
    fn parse(text: &str) -> Result<Pareto, String> {
        match text.parse() {
            Ok(shape) if shape > 1.0 && shape < 2.0 => Ok(Pareto { shape }),
            _ => Err("ALPHA is between 1 and 2, both left out, such as pareto:1.4".to_owned()),
        }
    }
}

impl ArrivalProcess for Pareto {
    /// A lane's arrivals are the arrivals of every `count`-th source.
    fn arrivals(&self, rate: PerSecond, _run: Nanos, lane: Lane, seed: Seed) -> Arrivals {
        let gap_s = f64::from(SOURCES) * ON / rate.0;
        let numbers = (lane.index..SOURCES).step_by(lane.count as usize);
        let start = |number| Source::new(self.shape, gap_s, seed.child(&format!("source/{number}")).rng());
        let mut sources: Vec<Source> = numbers.map(start).collect();
        let first = |(index, source): (usize, &mut Source)| Reverse((source.next_arrival(), index));
        let due = sources.iter_mut().enumerate().map(first).collect();
        Box::new(Superposition { sources, due })
    }

    fn mean(&self, rate: PerSecond, _window: Window) -> PerSecond {
        rate
    }

    /// The rate while the most sources are on at once.
    fn peak(&self, rate: PerSecond, _run: Nanos, _span: Nanos) -> PerSecond {
        let deviation = ((1.0 - ON) / (ON * f64::from(SOURCES))).sqrt();
        PerSecond(rate.0 * (1.0 + DEVIATIONS * deviation))
    }

    fn excess(&self, mean: f64) -> f64 {
        random_excess(mean)
    }

    fn remark(&self, _window: Window) -> Option<String> {
        None
    }

    fn hurst_in_theory(&self) -> Option<f64> {
        Some((3.0 - self.shape) / 2.0)
    }
}

impl fmt::Display for Pareto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pareto:{}", self.shape)
    }
}

/// The sources of a lane together.
struct Superposition {
    sources: Vec<Source>,
    /// The next arrival of each source, with the source's index.
    due: BinaryHeap<Reverse<(Nanos, usize)>>,
}

impl Iterator for Superposition {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        let mut first = self.due.peek_mut()?;
        let Reverse((at, index)) = *first;
        first.0.0 = self.sources[index].next_arrival();
        Some(at)
    }
}

/// One source, with evenly spaced arrivals in its on-times. A gap that an off-time interrupts goes on in the
/// next on-time, so that the source's mean rate is exact.
struct Source {
    shape: f64,
    gap_s: f64,
    draws: Rng,
    /// The time of the last arrival, or of the start.
    at_s: f64,
    /// The rest of the on-time after `at_s`.
    on_left_s: f64,
    /// The on-time from `at_s` to the next arrival.
    wait_s: f64,
}

impl Source {
    fn new(shape: f64, gap_s: f64, draws: Rng) -> Source {
        let mut source = Source { shape, gap_s, draws, at_s: 0.0, on_left_s: 0.0, wait_s: 0.0 };
        source.wait_s = gap_s * source.unit();
        if source.unit() <= ON {
            source.on_left_s = source.rest_of(CYCLE_S * ON);
        } else {
            source.at_s = source.rest_of(CYCLE_S * (1.0 - ON));
            source.on_left_s = source.time(CYCLE_S * ON);
        }
        source
    }

    fn next_arrival(&mut self) -> Nanos {
        while self.wait_s > self.on_left_s {
            self.wait_s -= self.on_left_s;
            self.at_s += self.on_left_s + self.time(CYCLE_S * (1.0 - ON));
            self.on_left_s = self.time(CYCLE_S * ON);
        }
        self.at_s += self.wait_s;
        self.on_left_s -= self.wait_s;
        self.wait_s = self.gap_s;
        Nanos((self.at_s * 1e9) as u64)
    }

    /// A uniform draw, above 0 and up to 1.
    fn unit(&mut self) -> f64 {
        1.0 - self.draws.random::<f64>()
    }

    /// The least time of the distribution with this mean.
    fn least(&self, mean_s: f64) -> f64 {
        mean_s * (self.shape - 1.0) / self.shape
    }

    /// Draws a whole on-time or off-time.
    fn time(&mut self, mean_s: f64) -> f64 {
        self.least(mean_s) * self.unit().powf(-1.0 / self.shape)
    }

    /// Draws the rest of an on-time or off-time seen from a random moment: its equilibrium distribution. It
    /// is uniform up to the least time, with a Pareto tail beyond whose shape is smaller by 1.
    fn rest_of(&mut self, mean_s: f64) -> f64 {
        let least = self.least(mean_s);
        let unit = self.unit();
        if self.unit() < least / mean_s { least * unit } else { least * unit.powf(-1.0 / (self.shape - 1.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::choices::arrivals::hurst::hurst;

    const ALONE: Lane = Lane { index: 0, count: 1 };

    fn before(shape: f64, rate: f64, until: Nanos, seed: u64) -> impl Iterator<Item = Nanos> {
        Pareto { shape }.arrivals(PerSecond(rate), until, ALONE, Seed(seed)).take_while(move |at| *at < until)
    }

    /// The mean over many runs is the rate from the first second on: the sources begin stationary. The rate
    /// of one second has a standard deviation below 30 %, so the mean of 400 has one below 1.5 %.
    #[test]
    fn the_mean_is_the_rate_from_the_start() {
        for shape in [1.2, 1.5, 1.8] {
            let count: usize = (0..400).map(|seed| before(shape, 500.0, Nanos::SECOND, seed).count()).sum();
            let mean = count as f64 / 400.0;
            assert!((mean - 500.0).abs() < 5.0 * 7.5, "shape {shape}: {mean}");
        }
    }

    /// Fixed seeds. The estimator's own error over four hours is a few hundredths.
    #[test]
    fn the_streams_hurst_parameter_is_the_processes() {
        for shape in [1.2, 1.4, 1.6, 1.8] {
            let until = Nanos::from_secs(1 << 14);
            let estimate = hurst(before(shape, 100.0, until, 7), until).unwrap();
            let expected = Pareto { shape }.hurst_in_theory().unwrap();
            assert!((estimate - expected).abs() < 0.1, "shape {shape}: {estimate}, not {expected}");
        }
    }

    /// More sources than at the peak are on so rarely that a test cannot meet it.
    #[test]
    fn the_peak_is_not_exceeded() {
        let most = Pareto { shape: 1.4 }.peak(PerSecond(1000.0), Nanos::MAX, Nanos::SECOND).0 / 10.0;
        let mut counts = vec![0u32; 20_000];
        for at in before(1.4, 1000.0, Nanos::from_secs(2000), 3) {
            counts[(at.0 / 100_000_000) as usize] += 1;
        }
        let highest = counts.iter().max().unwrap();
        assert!(f64::from(*highest) <= most && f64::from(*highest) > most / 2.0, "{highest} of {most}");
    }
}
