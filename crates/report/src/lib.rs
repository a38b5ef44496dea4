//! Reports: records as pages, tables and sentences to read.
//!
//! Owns drawing and wording, one module for each kind of result:
//!
//! - [`load`] is a run of the load generator, [`load_runs`] two of them compared.
//! - [`capacity`] is a survey of a server.
//! - [`experiment`] is a run of an experiment, [`experiment_runs`] two of them compared, [`paper`] several of them in
//!   one document.
//!
//! They share [`page`], the parts of an HTML page; charts ([`svg`]); columns of text ([`columns`]); and number formats
//! ([`format`](mod@format)).
//!
//! Invariants: every report is a pure function of the records, byte for byte. A page is one file that needs no network;
//! it is complete without JavaScript, which only adds values under the pointer. Runs nothing, and does not judge one
//! server against another: it shows them side by side.
#![forbid(unsafe_code)]

pub mod capacity;
pub mod columns;
pub mod experiment;
pub mod experiment_runs;
pub mod format;
pub mod load;
pub mod load_runs;
pub mod page;
pub mod paper;
pub mod svg;

use std::path::Path;

use anyhow::bail;

/// True if this build draws figures as PNG files beside the SVG files.
pub const DRAWS_PNG: bool = cfg!(feature = "png");

/// Writes the report of a folder: of the run that it holds, or of all runs in its folders and of them together.
///
/// # Errors
/// The folder holds no run, a record cannot be read, or a file cannot be written.
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
