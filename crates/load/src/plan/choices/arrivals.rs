//! Arrival processes: the times at which sessions should begin, independent of the server.
//!
//! A process is an endless sequence of times since the run's start that never decreases. It is drawn from a seed: the
//! same seed gives the same schedule for any server. Each thread has a *lane*; the sequences of all lanes together
//! are the process.
//!
//! Ramp, steps and trace have rates or times of their own and ignore the given rate.
//!
//! A process is one file with a type that implements [`ArrivalProcess`] and a [`Kind`], which holds its text for users
//! and its parser. To add one, write a file here and add its name below, among the modules and in [`ALL`]. Nothing has a
//! default: the compiler names the method or the field that a new process lacks.
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
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use base::{Nanos, PerSecond, Seed};

use crate::plan::choices::workload::Replay;
use crate::plan::terms::window::Window;
pub use error::NotAProcess;

/// All processes.
static ALL: &[Kind] = &[
    // The order of the help.
    constant::KIND,
    poisson::KIND,
    on_off::KIND,
    pareto::KIND,
    ramp::KIND,
    steps::KIND,
    trace::KIND,
];

/// Intended times since the run's start, never decreasing; endless unless the process ends.
pub type Arrivals = Box<dyn Iterator<Item = Nanos> + Send>;

/// Arrivals that an estimate of the Hurst parameter reads at most, so that it takes about a second.
const HURST_ARRIVALS_MAX: f64 = 1e7;

/// One thread's part of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The lane's number, from 0.
    pub index: u32,
    /// The number of lanes: 1 or more.
    pub count: u32,
}

/// A kind of arrival process, as its file describes it to users.
struct Kind {
    /// The text that selects the process: a name, or a name and its settings such as `ramp:FROM..TO`.
    form: &'static str,
    /// The help, in one sentence or two.
    help: &'static str,
    /// True for a process that has rates or times of its own and ignores a given rate.
    has_own_rate: bool,
    /// True if the settings name a file.
    reads_file: bool,
    /// Parses and checks the settings, which are empty for a form without any. The error says what is accepted.
    parse: fn(&str) -> Result<Arc<dyn ArrivalProcess>, String>,
}

impl Kind {
    /// The name before the settings, and the settings.
    fn parts(&self) -> (&'static str, Option<&'static str>) {
        split(self.form)
    }

    /// The form, with several settings shown as dots.
    fn short_form(&self) -> String {
        match self.parts() {
            (name, Some(settings)) if settings.contains(',') => format!("{name}:..."),
            _ => self.form.to_owned(),
        }
    }
}

/// The behaviour of an arrival process with its settings. It prints as text that parses back.
pub trait ArrivalProcess: fmt::Display + Send + Sync {
    /// The lane's arrivals in a run of length `run`, warm-up included. `rate` is the rate of all lanes together.
    fn arrivals(&self, rate: PerSecond, run: Nanos, lane: Lane, seed: Seed) -> Arrivals;

    /// The mean rate in a window of the run.
    fn mean(&self, rate: PerSecond, window: Window) -> PerSecond;

    /// The highest rate over any span of length `span` in a run, without the excess of [`ArrivalProcess::excess`].
    fn peak(&self, rate: PerSecond, run: Nanos, span: Nanos) -> PerSecond;

    /// The most arrivals above `mean` that a span at the peak rate may have, exceeded once in millions of spans: 0 for a
    /// process that is planned.
    fn excess(&self, mean: f64) -> f64;

    /// One sentence on the part of the process that this window does not show; `None` when they match.
    fn remark(&self, window: Window) -> Option<String>;

    /// The Hurst parameter in theory; `None` for a process that is not self-similar.
    fn hurst_in_theory(&self) -> Option<f64>;
}

/// An arrival process. Processes without rates of their own need a mean rate.
#[derive(Clone)]
pub struct Process {
    kind: &'static Kind,
    behaviour: Arc<dyn ArrivalProcess>,
}

impl Process {
    /// Evenly spaced sessions.
    pub fn constant() -> Process {
        Process { kind: &constant::KIND, behaviour: Arc::new(constant::Constant) }
    }

    /// The times of the requests of a file: session by session, in the file's order.
    pub fn replay(replay: &Replay) -> Process {
        Process { kind: &trace::REPLAY, behaviour: trace::replay(replay) }
    }

    /// Returns true for the times of the requests of a file.
    pub(crate) fn is_replay(&self) -> bool {
        std::ptr::eq(self.kind, &trace::REPLAY)
    }

    /// The texts that select a process, for a line of help.
    pub fn short_forms() -> String {
        ALL.iter().map(Kind::short_form).collect::<Vec<_>>().join(", ")
    }

    /// The help of every process, each on lines of its own.
    pub fn help() -> String {
        ALL.iter().map(|kind| format!("{}: {}", kind.form, kind.help)).collect::<Vec<_>>().join("\n")
    }

    /// The names of the processes that ignore a given rate.
    pub fn names_with_own_rate() -> String {
        listed(ALL.iter().filter(|kind| kind.has_own_rate).map(|kind| kind.parts().0))
    }

    /// Returns true if the text of a process names a file.
    pub(crate) fn names_file(text: &str) -> bool {
        let (name, settings) = split(text);
        settings.is_some() && ALL.iter().any(|kind| kind.reads_file && kind.parts().0 == name)
    }

    /// Returns true for a process that has rates or times of its own and ignores a given rate.
    pub fn has_own_rate(&self) -> bool {
        self.kind.has_own_rate
    }

    /// The Hurst parameter of a self-similar process: the estimate for the schedule of this run, then the
    /// value in theory. The estimate is `None` for a run that is too short; the whole is `None` for other
    /// processes.
    pub fn hurst(&self, rate: PerSecond, run: Nanos, seed: Seed) -> Option<(Option<f64>, f64)> {
        let in_theory = self.hurst_in_theory()?;
        let until = run.min(Nanos::from_secs_f64(HURST_ARRIVALS_MAX / rate.0));
        let times = self.arrivals(rate, run, Lane { index: 0, count: 1 }, seed);
        Some((hurst::hurst(times.take_while(|at| *at < until), until), in_theory))
    }
}

/// The excess of independent arrivals: five standard deviations, exceeded once in millions of spans.
fn random_excess(mean: f64) -> f64 {
    5.0 * mean.sqrt()
}

/// Parses a rate; accepts 0.
fn parse_rate(text: &str) -> Option<PerSecond> {
    if text == "0" { Some(PerSecond(0.0)) } else { text.parse().ok() }
}

/// A name, and the settings behind its colon.
fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once(':').map_or((text, None), |(name, settings)| (name, Some(settings)))
}

/// Several texts as `one, two and three`.
fn listed(texts: impl Iterator<Item = &'static str>) -> String {
    let texts: Vec<&str> = texts.collect();
    match texts.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => texts.concat(),
    }
}

impl Deref for Process {
    type Target = dyn ArrivalProcess;

    fn deref(&self) -> &Self::Target {
        &*self.behaviour
    }
}

impl Default for Process {
    fn default() -> Process {
        Process::constant()
    }
}

impl FromStr for Process {
    type Err = NotAProcess;

    /// Parses a process; for a trace, also reads the file that the text names.
    fn from_str(text: &str) -> Result<Process, NotAProcess> {
        let (name, settings) = split(text);
        let is_it = |kind: &&Kind| {
            let (known, takes) = kind.parts();
            known == name && takes.is_some() == settings.is_some()
        };
        let parsed = match ALL.iter().find(is_it) {
            Some(kind) => {
                (kind.parse)(settings.unwrap_or_default()).map(|behaviour| Process { kind, behaviour })
            }
            None => Err(format!("expected {}", listed(ALL.iter().map(|kind| kind.form)))),
        };
        parsed.map_err(|why| NotAProcess::new(text, why))
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.behaviour.fmt(f)
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({self})")
    }
}

impl PartialEq for Process {
    fn eq(&self, other: &Process) -> bool {
        self.to_string() == other.to_string()
    }
}

#[cfg(test)]
mod tests;
