//! Charts as static SVG text.
//!
//! Owns scales, ticks and marks; knows nothing of servers and trials. Colour, weight and dash come from the page's style
//! sheet by class name, so that one picture serves light, dark and print. The `data-` attributes of a mark hold the text
//! that the page's script shows beside it.
//!
//! Invariants: all text is escaped, and no number that is not finite reaches a coordinate.

mod bars;
mod line;
mod markup;
mod picture;
#[cfg(feature = "png")]
mod png;
mod scale;
mod series;
mod style;

pub use bars::{Bar, BarChart, Part, Segment};
pub use line::{AxisKind, AxisSpec, Guide, LineChart};
pub use picture::standalone;
#[cfg(feature = "png")]
pub use png::png;
pub use scale::Unit;
pub use series::{Dot, Mark, Series};
pub use style::{Look, swatch};

/// Nothing: this build has no feature `png`.
#[cfg(not(feature = "png"))]
pub fn png(_svg: &str) -> Option<Vec<u8>> {
    None
}
