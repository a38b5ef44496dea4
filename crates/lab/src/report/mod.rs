//! A study as a page to read and as a table for the terminal.
//!
//! Both are pure functions of the records: the same study gives the same bytes. The page is one file
//! that needs no network; it is complete without JavaScript, which only adds values under the pointer.
//!
//! Owns medians and spreads over repetitions, wording and drawing. Does not run anything, and does not
//! judge one server against another: it shows them side by side.

mod figures;
pub(crate) mod format;
mod page;
mod summary;
pub mod svg;
mod tables;
mod text;
mod wording;

pub use page::{STYLE, html};
pub use text::text;
