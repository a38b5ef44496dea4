//! The steps from a request to a stored form, each a part of [`Site`](crate::Site).
//!
//! `guard` asks the rules that come before files. `survey` finds the file of a path, `listing` lists a folder, and
//! [`compress`] makes forms of a file that has none beside it.

pub mod compress;
mod guard;
pub(crate) mod listing;
mod survey;
