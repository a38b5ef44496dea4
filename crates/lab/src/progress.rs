//! The progress of an experiment: a bar on a terminal, plain lines elsewhere.
//!
//! The remaining time is computed from the plan (number and length of the runs left), not from the speed of the bar.

use std::io::{IsTerminal, Write};

use base::{Nanos, printable_lines};
use indicatif::{ProgressBar, ProgressStyle};

/// The place where progress is shown.
pub enum Progress {
    /// A bar on a terminal.
    Bar(ProgressBar),
    /// A line for each step, on standard error.
    Lines,
}

impl Progress {
    /// Makes a bar if standard error is a terminal, otherwise lines.
    pub fn on_stderr() -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress::Lines;
        }
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{bar:32.cyan/dim} {percent:>3}% {wide_msg}");
        bar.set_style(style.expect("the template is a valid constant"));
        Progress::Bar(bar)
    }

    /// Prints a line that stays.
    pub fn say(&self, line: &str) {
        let line = printable_lines(line);
        match self {
            Progress::Bar(bar) => bar.println(line),
            // A closed standard error is not a reason to end an experiment.
            Progress::Lines => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    /// Shows the present step, the time left, and the time of the whole.
    pub fn step(&self, what: &str, left: Nanos, whole: Nanos) {
        let what = printable_lines(what);
        match self {
            Progress::Bar(bar) => {
                bar.set_length(whole.0);
                bar.set_position(whole.0.saturating_sub(left.0));
                bar.set_message(format!("{what} ({} s left)", left.as_secs_f64().ceil()));
            }
            Progress::Lines => self.say(&format!("{what} ({} s left)", left.as_secs_f64().ceil())),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
