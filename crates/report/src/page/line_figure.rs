//! The fixed texts and the y axis of a figure that draws one quantity as lines.

use crate::page::figure::{Figure, Key};
use crate::page::table::Table;
use crate::svg::{AxisKind, AxisSpec, Unit};

/// A quantity that is drawn as lines, in one chart.
pub(crate) struct LineFigure {
    /// The figure's, unique on its page.
    pub id: &'static str,
    /// The figure's heading.
    pub heading: &'static str,
    /// A reading aid.
    pub caption: &'static str,
    /// The title of the y axis.
    pub title: &'static str,
    /// The unit of the y axis.
    pub unit: Unit,
    /// The layout of the y axis.
    pub kind: AxisKind,
    /// A value in words.
    pub show: fn(f64) -> String,
}

impl LineFigure {
    /// The y axis.
    pub fn axis(&self) -> AxisSpec {
        AxisSpec::new(self.title, self.kind, self.unit)
    }

    /// The figure: one chart in these forms, its legend, and its numbers.
    pub fn figure(&self, forms: Vec<String>, keys: Vec<Key>, table: Table) -> Figure {
        Figure { id: self.id, heading: self.heading, caption: self.caption.to_owned(), forms, keys, table }
    }
}
