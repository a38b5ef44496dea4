//! The figures of a guard as text: a live table on a terminal, a line a second of an observation elsewhere, or NDJSON.

use std::fmt::Write;
use std::io::{self, IsTerminal};

use ::guard::Status;
use base::{Nanos, PerSecond};
use sys::say;

use crate::cli::{GuardFlags, GuardOutput};
use crate::exit::Exit;
use crate::output::{self, out};

/// Prints the figures each second, and lines in between.
pub struct Table {
    output: GuardOutput,
    observes: bool,
    is_live: bool,
    /// The lines of the table on the terminal.
    height: usize,
    /// True once the figures could not be printed.
    has_failed: bool,
}

impl Table {
    /// The printing that the flags ask for.
    pub fn new(flags: &GuardFlags) -> Table {
        let is_live = flags.output == GuardOutput::Text && io::stderr().is_terminal();
        // The server's own output would mix with the table.
        let is_live = is_live && flags.command.is_empty();
        Table { output: flags.output, observes: flags.observe, is_live, height: 0, has_failed: false }
    }

    /// Prints a line for the operator, above the table.
    pub fn line(&mut self, text: &str) {
        self.end();
        say!("{text}");
    }

    /// Prints the figures. Names the first failure alone: a full disk must not end the guard, and with it the server.
    pub fn show(&mut self, status: &Status) {
        if let Err(error) = self.print(status)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            self.line(&format!("inrush: {}; the guard goes on", error.into_message()));
        }
    }

    fn print(&mut self, status: &Status) -> Result<(), Exit> {
        match self.output {
            GuardOutput::Ndjson => {
                let line = serde_json::to_string(status).map_err(|error| Exit::Failed(error.to_string()))?;
                return output::text("the figures", &(line + "\n"));
            }
            GuardOutput::Text if self.is_live => {
                self.end();
                let text = rows(status);
                self.height = text.lines().count();
                say!("{}", text.trim_end());
            }
            GuardOutput::Text if self.observes => return out!("{}", one_line(status)),
            GuardOutput::Text | GuardOutput::Json => {}
        }
        Ok(())
    }

    /// Takes the table off the terminal.
    pub fn end(&mut self) {
        if self.height > 0 {
            let up = std::mem::take(&mut self.height);
            // Up to the table's first line, and everything from there on is erased.
            let _ = io::Write::write_all(&mut io::stderr(), format!("\x1b[{up}A\r\x1b[J").as_bytes());
        }
    }
}

fn ms(ns: u64) -> String {
    format!("{:.1} ms", Nanos(ns).as_secs_f64() * 1e3)
}

/// The table, a row for each subject.
fn rows(status: &Status) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<14} {value}");
    };
    let Status { queue_depth, queue_limit, queue_dropped, .. } = status;
    row("state", format!("{} (hook {})", status.state, status.hook));
    row("accept queue", format!("{queue_depth} of {queue_limit}, {queue_dropped} dropped"));
    if let Some(requests) = &status.requests {
        let (p50, p99) = (requests.first_byte_ns_p50.map(ms), requests.first_byte_ns_p99.map(ms));
        let none = || "-".to_owned();
        row(
            "unanswered",
            format!("{}, of which {} wait for something else", requests.unanswered, requests.stuck),
        );
        row("answers", PerSecond(requests.answers_per_s).approximate());
        row("first byte", format!("p50 {}, p99 {}", p50.unwrap_or_else(none), p99.unwrap_or_else(none)));
        let each = requests.per_connection;
        row("connections", format!("{}, with {each:.1} requests each", requests.connections));
    }
    row("wait", ms(status.wait_ns));
    let served = status.service_per_s.map_or("not known".to_owned(), |rate| PerSecond(rate).approximate());
    row("arrivals", format!("{}, capacity {served}", PerSecond(status.offered_per_s).approximate()));
    row("refused", refused(status));
    text
}

fn refused(status: &Status) -> String {
    match status.hook {
        "none" => format!("none; would have refused {}", status.would_refuse),
        _ => {
            format!("{} attempts, {:.0} % of the new ones now", status.refused, (1.0 - status.share) * 100.0)
        }
    }
}

/// The figures of an observation in one line.
fn one_line(status: &Status) -> String {
    let mut line = format!(
        "{} {}: queue {} of {}",
        status.address, status.state, status.queue_depth, status.queue_limit
    );
    let _ = write!(line, ", {} dropped", status.queue_dropped);
    if let Some(requests) = &status.requests {
        let answers = PerSecond(requests.answers_per_s).approximate();
        let _ = write!(line, "; {} unanswered, {answers} answered", requests.unanswered);
        if let (Some(p50), Some(p99)) = (requests.first_byte_ns_p50, requests.first_byte_ns_p99) {
            let _ = write!(line, ", first byte p50 {} p99 {}", ms(p50), ms(p99));
        }
    }
    let _ = write!(line, "; wait {}; would refuse {}", ms(status.wait_ns), status.would_refuse);
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::guard::Status;

    #[test]
    fn figures_have_units_in_both_forms() {
        let status = Status {
            address: ":80".to_owned(),
            state: "open",
            hook: "none",
            wait_ns: 2_500_000,
            ..Status::default()
        };
        assert_eq!(one_line(&status), ":80 open: queue 0 of 0, 0 dropped; wait 2.5 ms; would refuse 0");
        let rows = rows(&status);
        assert!(rows.contains("wait           2.5 ms") && rows.contains("would have refused 0"), "{rows}");
    }
}
