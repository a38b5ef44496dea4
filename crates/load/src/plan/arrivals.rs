//! Arrival processes: the times at which sessions should begin, independent of the server.
//!
//! A process is an endless sequence of times since the run's start that never decreases. It is drawn from a seed: the
//! same seed gives the same schedule for any server. Each thread has a *lane*; the sequences of all lanes together
//! are the process.
//!
//! Ramp, steps and trace have rates or times of their own and ignore the given rate.
//!
//! To add a process: a file here, a variant of [`Process`] and a line in each `match` on it.
//!
//! The modules: `constant`, `poisson`, `on_off`, `pareto`, `ramp`, `steps` and `trace` are the processes.
//! `profile` turns planned rates into times, `hurst` estimates self-similarity, and `error` reports text that
//! names no process.

mod constant;
mod error;
mod hurst;
mod on_off;
mod pareto;
mod poisson;
mod profile;
mod ramp;
mod steps;
mod trace;

use std::fmt;
use std::str::FromStr;

use base::{Nanos, PerSecond, Seed};

use crate::plan::window::Window;
pub use error::NotAProcess;
pub use on_off::OnOff;
pub use pareto::Pareto;
use profile::Profile;
pub use ramp::Ramp;
pub use steps::Steps;
pub use trace::Trace;

/// Intended times since the run's start, never decreasing; endless unless the process ends.
pub type Arrivals = Box<dyn Iterator<Item = Nanos> + Send>;

/// Arrivals that an estimate of the Hurst parameter reads at most, so that it takes about a second.
const HURST_ARRIVALS_MAX: f64 = 1e7;

/// An arrival process. Processes without rates of their own need a mean rate.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Process {
    /// Evenly spaced.
    #[default]
    Constant,
    /// Independent arrivals: exponentially distributed gaps.
    Poisson,
    /// Periodic bursts; arrivals are evenly spaced within and between them.
    OnOff(OnOff),
    /// Self-similar arrivals from Pareto on/off sources.
    Pareto(Pareto),
    /// A rate that changes linearly over the run.
    Ramp(Ramp),
    /// Several rates, one after the other.
    Steps(Steps),
    /// Recorded times.
    Trace(Trace),
}

/// One thread's part of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The lane's number, from 0.
    pub index: u32,
    /// The number of lanes: 1 or more.
    pub count: u32,
}

impl Process {
    /// Returns true for a process that has rates or times of its own and ignores a given rate.
    pub fn has_own_rate(&self) -> bool {
        matches!(self, Process::Ramp(_) | Process::Steps(_) | Process::Trace(_))
    }

    /// The lane's arrivals in a run of length `run`, warm-up included. `rate` is the rate of all lanes
    /// together.
    pub fn arrivals(&self, rate: PerSecond, run: Nanos, lane: Lane, seed: Seed) -> Arrivals {
        match self {
            Process::Constant => Box::new(constant::Constant::new(rate, lane)),
            Process::Poisson => Box::new(poisson::Poisson::new(rate, lane, seed)),
            Process::Pareto(pareto) => Box::new(pareto.arrivals(rate, lane, seed)),
            Process::Trace(trace) => Box::new(trace.arrivals(lane)),
            Process::OnOff(on_off) => Box::new(on_off.profile(rate).arrivals(lane)),
            Process::Ramp(ramp) => Box::new(ramp.profile(run).arrivals(lane)),
            Process::Steps(steps) => Box::new(steps.profile().arrivals(lane)),
        }
    }

    /// The mean rate in a window of the run.
    pub fn mean(&self, rate: PerSecond, window: Window) -> PerSecond {
        match (self, self.profile(rate, window.until)) {
            (_, Some(profile)) => profile.mean(window),
            (Process::Trace(trace), None) => trace.mean(window),
            (_, None) => rate,
        }
    }

    /// The highest rate over any span of length `span` in a run, without the excess of [`Process::excess`].
    pub fn peak(&self, rate: PerSecond, run: Nanos, span: Nanos) -> PerSecond {
        match (self, self.profile(rate, run)) {
            (_, Some(profile)) => profile.peak(),
            (Process::Trace(trace), None) => trace.peak(span),
            (Process::Pareto(pareto), None) => pareto.peak(rate),
            (_, None) => rate,
        }
    }

    /// The most arrivals above `mean` that a span at the peak rate may have: five standard deviations,
    /// exceeded once in millions of spans.
    pub fn excess(&self, mean: f64) -> f64 {
        match self {
            Process::Poisson | Process::Pareto(_) => 5.0 * mean.sqrt(),
            Process::Constant
            | Process::OnOff(_)
            | Process::Ramp(_)
            | Process::Steps(_)
            | Process::Trace(_) => 0.0,
        }
    }

    /// One sentence on the part of the process that this window does not show; `None` when they match.
    pub fn remark(&self, window: Window) -> Option<String> {
        match self {
            Process::OnOff(on_off) => on_off.remark(window.length()),
            Process::Steps(steps) => steps.remark(window.until),
            Process::Trace(trace) => trace.remark(window.until),
            _ => None,
        }
    }

    /// The Hurst parameter of a self-similar process: the estimate for the schedule of this run, then the
    /// value in theory. The estimate is `None` for a run that is too short; the whole is `None` for other
    /// processes.
    pub fn hurst(&self, rate: PerSecond, run: Nanos, seed: Seed) -> Option<(Option<f64>, f64)> {
        let Process::Pareto(pareto) = self else { return None };
        let until = run.min(Nanos::from_secs_f64(HURST_ARRIVALS_MAX / rate.0));
        let times = pareto.arrivals(rate, Lane { index: 0, count: 1 }, seed);
        let shown = hurst::hurst(times.take_while(|at| *at < until), until);
        Some((shown, pareto.hurst()))
    }

    /// The planned rates, if the process has any.
    fn profile(&self, rate: PerSecond, run: Nanos) -> Option<Profile> {
        match self {
            Process::OnOff(on_off) => Some(on_off.profile(rate)),
            Process::Ramp(ramp) => Some(ramp.profile(run)),
            Process::Steps(steps) => Some(steps.profile()),
            Process::Constant | Process::Poisson | Process::Pareto(_) | Process::Trace(_) => None,
        }
    }
}

/// Parses a rate; accepts 0.
fn parse_rate(text: &str) -> Option<PerSecond> {
    if text == "0" { Some(PerSecond(0.0)) } else { text.parse().ok() }
}

impl FromStr for Process {
    type Err = NotAProcess;

    /// Parses a process; for a trace, also reads the file that the text names.
    fn from_str(text: &str) -> Result<Process, NotAProcess> {
        match text.split_once(':') {
            None if text == "constant" => Ok(Process::Constant),
            None if text == "poisson" => Ok(Process::Poisson),
            Some(("on-off", shape)) => OnOff::parse(text, shape).map(Process::OnOff),
            Some(("pareto", shape)) => Pareto::parse(text, shape).map(Process::Pareto),
            Some(("ramp", rates)) => Ramp::parse(text, rates).map(Process::Ramp),
            Some(("steps", steps)) => Steps::parse(text, steps).map(Process::Steps),
            Some(("trace", path)) => Trace::read(text, path).map(Process::Trace),
            _ => Err(NotAProcess::new(
                text,
                "accepted are constant, poisson, on-off:PEAK,FRACTION[,PERIOD], pareto:ALPHA, ramp:FROM..TO, \
                 steps:RATExTIME,... and trace:FILE",
            )),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Process::Constant => f.write_str("constant"),
            Process::Poisson => f.write_str("poisson"),
            Process::OnOff(on_off) => on_off.fmt(f),
            Process::Pareto(pareto) => pareto.fmt(f),
            Process::Ramp(ramp) => ramp.fmt(f),
            Process::Steps(steps) => steps.fmt(f),
            Process::Trace(trace) => trace.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
