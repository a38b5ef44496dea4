//! Architectures say which loops exist, where they run, and who accepts. Nothing else.
//!
//! To add one: a file here with a constant of type [`Architecture`], and its name in [`ALL`].

mod per_core;
mod sped;
mod tux;

use crate::run::{LoopHandle, Plan, ServeError};

/// All of them, the default first.
pub const ALL: &[&Architecture] = &[&per_core::PER_CORE, &sped::SPED, &tux::TUX];

/// One way to place the work.
#[derive(Debug)]
pub struct Architecture {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Starts its loops.
    pub(crate) start: fn(&Plan) -> Result<Vec<LoopHandle>, ServeError>,
}

/// The architecture of a name.
pub fn by_name(name: &str) -> Option<&'static Architecture> {
    ALL.iter().copied().find(|architecture| architecture.name == name)
}
