//! Records as pages to read: a run of load, a survey of a server, a demonstration's study, an experiment, all
//! experiments of a run, and two runs compared.
//!
//! All are pure functions of the records: the same records give the same bytes. A page is one file
//! that needs no network; it is complete without JavaScript, which only adds values under the pointer.
//!
//! Owns wording and drawing, and of a study medians and spreads as well; those of experiments are the
//! analysis's. Does not run anything, and does not judge one server against another: it shows them side by
//! side.

mod about;
pub mod capacity;
pub mod compare;
pub mod experiment;
mod figures;
pub(crate) mod format;
mod frame;
mod page;
pub mod paper;
pub mod run;
mod summary;
pub mod svg;
mod tables;
mod text;
pub mod two_runs;
mod wording;

pub use frame::STYLE;
pub use page::html;
pub use text::text;

use std::path::Path;

use anyhow::bail;

/// Whether this build draws figures as PNG files beside the SVG files.
pub const DRAWS_PNG: bool = cfg!(feature = "png");

/// Writes the report of a folder: of the run that it holds, or of all runs in its folders and of them together.
///
/// # Errors
/// When it holds neither, and of reading and writing.
pub fn write(dir: &Path) -> anyhow::Result<()> {
    if record::experiment::Directory::new(dir).run()?.is_some() {
        return experiment::write(dir);
    }
    let names = paper::runs_in(dir)?;
    if names.is_empty() {
        bail!("{} holds no run of an experiment: no experiment.json, nor folders with one", dir.display());
    }
    for name in &names {
        experiment::write(&dir.join(name))?;
    }
    paper::write(dir, &names)
}
