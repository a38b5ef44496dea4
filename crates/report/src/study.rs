//! The report of a demonstration's study: one HTML page, and a short table for the terminal.
//!
//! Owns the medians and spreads of a study (`summary`), its figures, tables and sentences. Both forms are pure
//! functions of the study.

mod figures;
mod summary;
mod tables;
mod text;
mod wording;

use record::Study;
use serde::Serialize;

use crate::figure::Figure;
use crate::frame::render;
use crate::svg::{Look, swatch};
use crate::table::{Table, command_line};
use summary::{ServerSummary, summarise};

pub use text::text;

/// A server in the list at the top.
#[derive(Serialize)]
struct Finding {
    index: usize,
    name: String,
    description: String,
    verdict: String,
    measured: bool,
    swatch: String,
}

#[derive(Serialize)]
struct Page {
    title: String,
    version: String,
    lede: String,
    findings: Vec<Finding>,
    warnings: Vec<String>,
    figures: Vec<Figure>,
    trials: Table,
    manifest: Table,
    again: String,
}

/// The study as one self-contained HTML file.
pub fn html(study: &Study) -> String {
    let servers = summarise(study);
    let page = Page {
        title: study.title.clone(),
        version: study.manifest.version.clone(),
        lede: wording::lede(study, &servers),
        findings: servers.iter().enumerate().map(|(index, server)| finding(index, server)).collect(),
        warnings: wording::warnings(study, &servers),
        figures: figures::figures(&servers),
        trials: tables::trials(study),
        manifest: tables::manifest(study),
        again: command_line(&study.manifest.command),
    };
    render("study.html", &page)
}

fn finding(index: usize, server: &ServerSummary<'_>) -> Finding {
    Finding {
        index,
        name: server.entry.name.clone(),
        description: server.entry.description.clone(),
        verdict: wording::verdict(server),
        measured: !server.points.is_empty(),
        swatch: swatch(index, Look::Measured),
    }
}
