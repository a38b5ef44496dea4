//! An experiment as a page, as Markdown, and as files beside them.
//!
//! ```text
//! DIR/report.html          one file, needs no network; its links lead to the records beside it
//! DIR/report.md            the same to read as text
//! DIR/summary.json         the claims, judged
//! DIR/points.csv           every point that is drawn
//! DIR/figures/ID.svg       each figure; in builds with the feature `png` ID.png too
//! ```
//!
//! Owns the list of files and the contents of an experiment's page. The modules: `section` is one experiment on a page,
//! with its `headline`, `claims`, `figures`, `tables` and `warnings`; `markdown` and `csv` write the other forms.
//!
//! Invariant: every file is a function of the run's records, byte for byte.

mod claims;
mod csv;
mod figures;
mod headline;
mod markdown;
mod section;
mod tables;
mod warnings;

use std::fs;
use std::path::Path;

use analysis::Analysed;
use analysis::claims::Judged;
use anyhow::Context;
use base::printable;
use record::file::write_whole;
use serde::Serialize;

use crate::page::frame::render;

pub use claims::{ClaimRow, HOW_JUDGED, row, score_sentences};
pub use markdown::{brief_claims_table, claims_table, escaped, push_finding, push_section};
pub use section::Section;

/// The schema of `summary.json`.
const SUMMARY_SCHEMA: &str = "inrush.lab-summary/1";

/// The claims of one or more experiments.
#[derive(Serialize)]
pub struct Summary<'a> {
    /// `inrush.lab-summary/1`.
    schema: &'static str,
    /// The claims of all experiments, in their order.
    claims: Vec<&'a Judged>,
}

impl<'a> Summary<'a> {
    /// The claims of some experiments.
    pub fn of(claims: impl Iterator<Item = &'a Judged>) -> Summary<'a> {
        Summary { schema: SUMMARY_SCHEMA, claims: claims.collect() }
    }
}

#[derive(Serialize)]
struct Page {
    title: String,
    version: String,
    section: Section,
    how_judged: &'static str,
}

/// Writes the report of a run into its folder.
///
/// # Errors
/// A record cannot be read or a file cannot be written; the error names it.
pub fn write(dir: &Path) -> anyhow::Result<()> {
    let analysed = Analysed::read(dir)?;
    let files = dir.join("figures");
    fs::create_dir_all(&files).with_context(|| format!("cannot make {}", files.display()))?;
    for picture in figures::pictures(&analysed) {
        write_whole(&files.join(format!("{}.svg", picture.id)), picture.svg.as_bytes())?;
        if let Some(png) = picture.png {
            write_whole(&files.join(format!("{}.png", picture.id)), &png)?;
        }
    }
    write_whole(&dir.join("points.csv"), csv::points(&analysed).as_bytes())?;
    record::file::write(&dir.join("summary.json"), &Summary::of(analysed.claims.iter()))?;
    write_whole(&dir.join("report.md"), markdown(&analysed).as_bytes())?;
    write_whole(&dir.join("report.html"), html(&analysed).as_bytes())?;
    Ok(())
}

/// The page.
pub fn html(analysed: &Analysed) -> String {
    let page = Page {
        title: analysed.experiment.title.clone(),
        version: analysed.run.run.manifest.version.clone(),
        section: Section::new(analysed, ""),
        how_judged: HOW_JUDGED,
    };
    render("experiment.html", &page)
}

/// Writes the report in a few lines for the terminal: the headline and the score of the claims.
pub fn text(analysed: &Analysed) -> String {
    let headline = headline::leading(analysed).map(|(_, sentence)| sentence);
    let score = score_sentences(analysed.claims.iter());
    let lines = headline.into_iter().chain((!score.is_empty()).then_some(score));
    lines.map(|line| format!("  {}\n", printable(&line))).collect()
}

/// The report as Markdown.
pub fn markdown(analysed: &Analysed) -> String {
    markdown::document(&Section::new(analysed, ""))
}

/// The name as an `id` of a page's element: letters, digits and hyphens.
fn anchor(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}
