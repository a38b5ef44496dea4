//! The live view of a run: a few lines on the terminal, redrawn at each interval and each key, and removed
//! when the run ends.
//!
//! This file is the only way in. A build without the feature `live` has `absent` behind it: a run then prints its result
//! alone. `terminal` owns the terminal, `view` has the layout, and `keys` the keys.

#[cfg(not(feature = "live"))]
mod absent;
#[cfg(feature = "live")]
mod keys;
#[cfg(feature = "live")]
mod terminal;
#[cfg(feature = "live")]
mod view;

#[cfg(not(feature = "live"))]
pub use absent::{Live, show_cursor};
#[cfg(feature = "live")]
pub use terminal::{Live, show_cursor};
