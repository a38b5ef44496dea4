//! Sessions at recorded times. The file has one timestamp in seconds on each line, or is a web server's
//! access log in the common or combined format. The first session begins with the run. Timestamps count from
//! any epoch: only their distances matter. The lanes take turns.
//!
//! Deviations for access logs: their times are whole seconds, and their lines are in the order of completion.
//! The entries are sorted, and the entries of one second are spread evenly over it. Only the times of a log
//! are replayed; the workload chooses the requests.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Nanos, PerSecond, Seed};

use super::{ArrivalProcess, Arrivals, Kind, Lane};
use crate::plan::choices::workload::Replay;
use crate::plan::choices::workload::recorded_time::{logged, spread};
use crate::plan::terms::window::Window;

pub(super) const KIND: Kind = Kind {
    form: "trace:FILE",
    help: "the times in a file, one per line in seconds, or those of an access log. The first session begins\nwith the \
           run.",
    has_own_rate: true,
    reads_file: true,
    parse: |file| Ok(Arc::new(Trace::read(file)?)),
};

/// The kind of [`replay`].
pub(super) static REPLAY: Kind = Kind {
    form: "replay",
    help: "the times of the requests in --requests",
    has_own_rate: true,
    reads_file: false,
    parse: |_| Err("the times belong to --requests FILE".to_owned()),
};

/// The times of the requests of a file.
pub(super) fn replay(replay: &Replay) -> Arc<dyn ArrivalProcess> {
    Arc::new(Trace { form: "replay", path: replay.path.clone(), times: replay.times.clone().into() })
}

/// A recorded schedule.
struct Trace {
    /// The name of the kind.
    form: &'static str,
    path: PathBuf,
    /// Times since the first session, ascending; at least one.
    times: Arc<[Nanos]>,
}

impl Trace {
    /// Reads the file.
    fn read(path: &str) -> Result<Trace, String> {
        let text = std::fs::read_to_string(path).map_err(|cause| format!("cannot read it: {cause}"))?;
        Ok(Trace { form: "trace", path: PathBuf::from(path), times: parse(&text)?.into() })
    }

    fn count(&self, window: Window) -> usize {
        let before = |end: Nanos| self.times.partition_point(|at| *at < end);
        before(window.until) - before(window.from)
    }
}

impl ArrivalProcess for Trace {
    fn arrivals(&self, _rate: PerSecond, _run: Nanos, lane: Lane, _seed: Seed) -> Arrivals {
        let times = Arc::clone(&self.times);
        let numbers = (lane.index as usize..times.len()).step_by(lane.count as usize);
        Box::new(numbers.map(move |index| times[index]))
    }

    fn mean(&self, _rate: PerSecond, window: Window) -> PerSecond {
        PerSecond(self.count(window) as f64 / window.length().as_secs_f64())
    }

    fn peak(&self, _rate: PerSecond, _run: Nanos, span: Nanos) -> PerSecond {
        let most = self
            .times
            .iter()
            .map(|from| self.count(Window { from: *from, until: from.saturating_add(span) }))
            .max();
        PerSecond(most.unwrap_or(0) as f64 / span.as_secs_f64())
    }

    fn excess(&self, _mean: f64) -> f64 {
        0.0
    }

    /// The run may be shorter or longer than the trace.
    fn remark(&self, window: Window) -> Option<String> {
        let run = window.until;
        let left_out = self.count(Window { from: run, until: Nanos::MAX });
        let last_s = self.times.last().map_or(0.0, |last| last.as_secs_f64());
        let path = self.path.display();
        if left_out > 0 {
            return Some(format!(
                "The run ends after {run}, warm-up included: {left_out} of the {} sessions in {path} do not begin.",
                self.times.len()
            ));
        }
        (last_s + 1.0 < run.as_secs_f64()).then(|| {
            format!("The last session in {path} begins after {last_s:.1} s; the run takes {run}, warm-up included.")
        })
    }

    fn hurst_in_theory(&self) -> Option<f64> {
        None
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.form, Path::display(&self.path))
    }
}

/// The times in a file's text, relative to the first.
fn parse(text: &str) -> Result<Vec<Nanos>, String> {
    let lines = || text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let is_log = lines().next().is_some_and(|(_, line)| line.contains('['));
    let mut times = Vec::new();
    for (index, line) in lines() {
        let (time, expected) = match is_log {
            true => {
                (logged(line).map(|s| s as f64), "an access log's line with [10/Oct/2000:13:55:36 -0700]")
            }
            false => (line.trim().parse().ok().filter(|s: &f64| s.is_finite()), "a time in seconds"),
        };
        let time = time.ok_or_else(|| format!("line {} is not {expected}", index + 1))?;
        if !is_log && times.last().is_some_and(|last| *last > time) {
            return Err(format!("line {} is earlier than the one before; times ascend", index + 1));
        }
        times.push(time);
    }
    if is_log {
        times.sort_by(f64::total_cmp);
        spread(&mut times);
    }
    let first = *times.first().ok_or("it holds no times")?;
    Ok(times.into_iter().map(|time| Nanos::from_secs_f64(time - first)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Vec<f64> {
        parse(text).unwrap().into_iter().map(Nanos::as_secs_f64).collect()
    }

    #[test]
    fn times_count_from_the_first_whatever_their_epoch() {
        assert_eq!(seconds("10.5\n10.5\n\n12\r\n"), [0.0, 0.0, 1.5]);
        assert_eq!(seconds("-1\n1e0"), [0.0, 2.0]);
        let times: Arc<[Nanos]> = parse("-1e300\n1e300").unwrap().into();
        let absurd = Trace { form: "trace", path: PathBuf::from("t"), times };
        assert_eq!(
            absurd.peak(PerSecond(0.0), Nanos::MAX, Nanos::SECOND),
            PerSecond(1.0),
            "times beyond the clock do not overflow"
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        assert_eq!(parse("1\n\n2\n1.9").unwrap_err(), "line 4 is earlier than the one before; times ascend");
        assert_eq!(parse("1\nx").unwrap_err(), "line 2 is not a time in seconds");
        assert_eq!(parse("1\nNaN").unwrap_err(), "line 2 is not a time in seconds");
        assert_eq!(parse("\n").unwrap_err(), "it holds no times");
        assert!(parse("a [10/Oct/99999999999999999:13:55:36 -0700] b").is_err());
        assert!(parse("a [10/Oct/2000:13:55:36 -0700] b\nx").unwrap_err().starts_with("line 2 is not an"));
    }

    #[test]
    fn an_access_log_is_sorted_and_its_seconds_spread() {
        let line = |time| format!("127.0.0.1 - - [{time}] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"\n");
        let log = line("31/Dec/1999:23:59:59 +0000")
            + &line("29/Feb/2000:00:00:00 +0000")
            + &line("01/Jan/2000:02:00:00 +0200")
            + &line("01/Jan/2000:00:00:00 +0000");
        let days = 60.0 - 1.0;
        assert_eq!(seconds(&log), [0.0, 1.0, 1.5, days * 86_400.0 + 1.0]);
        let west = line("10/Oct/2000:13:55:36 -0730") + &line("10/Oct/2000:21:25:37 +0000");
        assert_eq!(seconds(&west), [0.0, 1.0]);
    }

    #[test]
    fn its_rates_are_those_of_the_recorded_times() {
        let times: Arc<[Nanos]> = parse("0\n1\n1.1\n1.2\n5").unwrap().into();
        let trace = Trace { form: "trace", path: PathBuf::from("t"), times };
        assert_eq!(trace.peak(PerSecond(0.0), Nanos::MAX, Nanos::SECOND), PerSecond(3.0));
        let window = Window { from: Nanos::SECOND, until: Nanos::from_secs(3) };
        assert_eq!(trace.mean(PerSecond(0.0), window), PerSecond(1.5));
        let lane =
            |index| trace.arrivals(PerSecond(0.0), Nanos::MAX, Lane { index, count: 2 }, Seed(1)).count();
        assert_eq!((lane(0), lane(1)), (3, 2));
        let remark = |until_s| trace.remark(Window { from: Nanos::ZERO, until: Nanos::from_secs(until_s) });
        assert!(remark(5).unwrap().contains("1 of the 5 sessions"));
        assert_eq!(remark(6), None);
        assert!(remark(7).unwrap().contains("after 5.0 s"));
    }
}
