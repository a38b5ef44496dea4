//! A figure on a page: a chart, a legend, and the same numbers as a table.
//!
//! Owns the shape that the templates read. The chart itself is drawn by [`crate::svg`].

use serde::Serialize;

use crate::page::table::Table;
use crate::svg::{Look, swatch};

/// A figure of the page.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Unique on the page.
    pub id: &'static str,
    /// The figure's heading.
    pub heading: &'static str,
    /// A reading aid.
    pub caption: String,
    /// The forms of its chart, as `svg` elements: wide and narrow.
    pub forms: Vec<String>,
    /// The legend of lines or colours.
    pub keys: Vec<Key>,
    /// The same numbers as a table.
    pub table: Table,
}

/// A line of a legend.
#[derive(Clone, Debug, Serialize)]
pub struct Key {
    /// The entry's name.
    pub name: String,
    /// The series it shows and hides; absent for a colour that is not a series.
    pub series: Option<usize>,
    /// The class that gives it its colour.
    pub class: String,
    /// A sample, as an `svg` element; empty for a plain patch of colour.
    pub swatch: String,
}

impl Key {
    /// A measured line's.
    pub fn of_line(index: usize, name: &str) -> Key {
        Key {
            name: name.to_owned(),
            series: Some(index),
            class: format!("s{index}"),
            swatch: swatch(index, Look::Measured),
        }
    }
}
