//! `inrush herd`: turns flags into a measurement, and prints its points as text, JSON and plots (`plot`).

mod plot;

use std::io::{self, IsTerminal};

use ::herd::{Config, CountedBy, HerdError, Progress, Tasks, Wait};

use sys::say;

use crate::cli::{CountBy, HerdFlags, HerdTasks, HerdWaiterArguments};
use crate::commands::load::stop_at_signal;
use crate::exit::Exit;
use crate::output;

/// Measures, and prints the finished points.
pub fn run(flags: HerdFlags) -> Result<(), Exit> {
    let (output, plot) = (flags.output, flags.plot.clone());
    let config = configuration(flags)?;
    let stop = stop_at_signal()?;
    let asked = config.waits.len() * config.waiters.len();
    let outcome = ::herd::run(&config, print_point, &|| stop.is_requested()).map_err(exit)?;
    if let Some(why) = &outcome.no_trace_points {
        say!(
            "inrush: counting by voluntary context switches, because trace points cannot be used here: {why}"
        );
    }
    output::result("the points", output, &outcome.points, || ::herd::text(&outcome.points))?;
    if let Some(file) = plot {
        std::fs::write(&file, plot::page(&outcome.points))
            .map_err(|error| Exit::Failed(format!("--plot {}: cannot write it: {error}", file.display())))?;
    }
    match outcome.points.len() {
        all if all == asked => Ok(()),
        some => Err(Exit::Failed(format!("interrupted, so the result is of {some} of {asked} points"))),
    }
}

/// Runs one waiter of a herd of processes.
pub fn run_waiter(HerdWaiterArguments { arguments }: &HerdWaiterArguments) -> Result<(), Exit> {
    ::herd::run_in_this_process(arguments).map_err(|error| Exit::Failed(error.to_string()))
}

fn configuration(flags: HerdFlags) -> Result<Config, Exit> {
    let program = sys::process::this_program()
        .map_err(|error| Exit::Failed(format!("cannot find this program's own file: {error}")))?;
    let (mut waits, mut waiters) = (flags.wait, flags.waiters);
    if waits.is_empty() {
        waits = Wait::ALL.to_vec();
    }
    waits.sort_unstable();
    waits.dedup();
    waiters.sort_unstable();
    waiters.dedup();
    Ok(Config {
        waits,
        waiters,
        tasks: match flags.tasks {
            HerdTasks::Threads => Tasks::Threads,
            HerdTasks::Processes => Tasks::Processes,
        },
        samples: flags.samples as usize,
        seed: flags.seed,
        count_by: match flags.count_by {
            CountBy::Auto => None,
            CountBy::TracePoints => Some(CountedBy::TracePoints),
            CountBy::ContextSwitches => Some(CountedBy::Switches),
        },
        program,
    })
}

/// Writes one line for each point to a terminal.
fn print_point(progress: Progress) {
    if io::stderr().is_terminal() {
        let Progress { done, of, wait, waiters } = progress;
        say!("inrush: point {} of {of}: {wait}, {waiters} waiters", done + 1);
    }
}

fn exit(error: HerdError) -> Exit {
    match error {
        HerdError::Descriptors { .. } => Exit::Usage(format!("--waiters: {error}")),
        HerdError::NoTracePoints(_) => Exit::Usage(format!("--count-by trace-points: {error}")),
        _ => Exit::Failed(error.to_string()),
    }
}
