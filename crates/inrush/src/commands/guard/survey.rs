//! `inrush guard --observe` without an address: every listener of this network namespace, with an opinion.

use std::fmt::Write;
use std::io;

use ::guard::survey::{Survey, Surveyed};
use base::{Clock, Nanos, RealClock};

use crate::cli::GuardOutput;
use crate::exit::Exit;
use crate::output;

/// The time of a survey. A queue that is full in a rush is full in most looks.
const DURATION: Nanos = Nanos::SECOND;
/// The time between two looks.
const LOOK: Nanos = Nanos::from_millis(20);

/// Watches all listeners for a second and prints them.
pub fn run(form: GuardOutput) -> Result<(), Exit> {
    let failed = |error: std::io::Error| Exit::Failed(format!("cannot list the listeners: {error}"));
    let clock = RealClock::new();
    let until = clock.now() + DURATION;
    let mut survey = Survey::begin().map_err(failed)?;
    while clock.now() < until {
        sys::readiness::poll::wait(&mut [], Some(LOOK)).map_err(failed)?;
        survey.read_listeners().map_err(failed)?;
    }
    let found = survey.end().map_err(|error| Exit::Failed(error.to_string()))?;
    match form {
        GuardOutput::Ndjson => output::write("the listeners", |out| lines(out, &found)),
        _ => output::result("the listeners", form.of_one_result(), &found, || text(&found)),
    }
}

/// Writes a line of JSON for each listener.
fn lines(out: &mut dyn io::Write, found: &[Surveyed]) -> io::Result<()> {
    for listener in found {
        serde_json::to_writer(&mut *out, listener)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A table with a row for each listener.
fn text(found: &[Surveyed]) -> String {
    let row = |listener: &Surveyed| {
        let depth = format!("{} (most {})", listener.depth, listener.depth_most);
        let (limit, drops) = (listener.limit.to_string(), listener.drops.to_string());
        [listener.address.clone(), owner(listener), depth, limit, drops, listener.opinion.clone()]
    };
    let head = ["listener", "owner", "queue", "limit", "drops", "opinion"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(found.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

fn owner(listener: &Surveyed) -> String {
    match listener.owners.as_slice() {
        [] => "not visible".to_owned(),
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" +{}", rest.len()) };
            let name = first.unit.as_ref().unwrap_or(&first.name);
            format!("{name} {}{more}", first.pid)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_rows_below_their_heads() {
        let listener = Surveyed {
            address: "0.0.0.0:80".to_owned(),
            depth: 1,
            depth_most: 7,
            limit: 128,
            drops: 3,
            drops_now: 0,
            owners: Vec::new(),
            opinion: "calm".to_owned(),
        };
        let text = text(&[listener]);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].find("queue"), rows[1].find("1 (most 7)"), "{text}");
        assert!(rows[1].ends_with("calm") && rows[1].contains("not visible"), "{text}");
    }
}
