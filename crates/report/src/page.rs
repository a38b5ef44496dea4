//! Pages: what every HTML page of a report is put together from.
//!
//! `frame` surrounds a page with style sheet and script. `figure` is a chart with its legend and numbers, `line_figure` the
//! fixed texts of one with lines, and `table` a table. Two kinds of page are shared: `record` is the page of a single record,
//! and [`charts`] a page of plain charts for results that have no page of their own.
//!
//! Leaves out the charts' marks, which [`svg`](crate::svg) draws, and the sentences, which each kind of result has.

pub mod charts;
pub(crate) mod figure;
pub(crate) mod frame;
pub(crate) mod line_figure;
pub(crate) mod record;
pub(crate) mod table;
