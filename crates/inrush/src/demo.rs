//! `inrush demo`: the lab's demonstration, reported on the terminal.

use base::RealClock;
use lab::demo::{self, DemoOptions};
use lab::progress::Progress;

use crate::cli::DemoFlags;
use crate::exit::Exit;
use crate::output;

/// Runs the demonstration, and prints the table and the path of the report.
pub fn run(flags: DemoFlags) -> Result<(), Exit> {
    let options = DemoOptions { dir: flags.dir, quick: flags.quick, out: flags.out, seed: flags.seed };
    let progress = Progress::on_stderr();
    let summary = demo::run(&options, &RealClock::new(), &progress)
        .map_err(|error| Exit::Failed(format!("{error:#}")))?;
    progress.finish();
    output::text("the summary", &format!("{summary}\n"))
}
