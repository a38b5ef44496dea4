//! The terms that the other modules of a plan speak in.
//!
//! Leaves out settings: nothing here knows a flag.
//!
//! - `window`: the warm-up and the measured time.
//! - `share`: the part of a run that one process carries out.
//! - `draws`: random numbers from the run's seed.
//! - `target`: the URL and its addresses.
//! - `digest`: of a reply's content.

pub(crate) mod digest;
pub(crate) mod draws;
pub(crate) mod share;
pub(crate) mod target;
pub(crate) mod window;
