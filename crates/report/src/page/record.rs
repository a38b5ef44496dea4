//! The page of one record: of a run of load, and of a survey of a server.

use record::load::Judged;
use serde::Serialize;

use crate::page::figure::Figure;
use crate::page::table::Table;

/// The contents of the template `record.html`.
#[derive(Serialize)]
pub(crate) struct RecordPage {
    pub title: String,
    pub version: String,
    pub verdict: &'static str,
    pub lede: String,
    pub tiles: Vec<Tile>,
    pub thresholds: Vec<Judged>,
    pub warnings: Vec<String>,
    pub figures: Vec<Figure>,
    /// The most lines of a figure.
    pub lines_most: usize,
    pub tables: Vec<Part>,
    pub folded: Vec<Part>,
    pub again: String,
}

/// A figure in large letters.
#[derive(Serialize)]
pub(crate) struct Tile {
    pub name: &'static str,
    pub value: String,
    pub detail: String,
    pub is_bad: bool,
}

/// A table under a heading.
#[derive(Serialize)]
pub(crate) struct Part {
    pub heading: &'static str,
    pub table: Table,
}
