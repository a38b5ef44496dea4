//! The values that flags of several commands take, each with its parser and the text that says what is accepted.
//!
//! `address` has addresses to listen on, `cpus` lists of CPUs, and `text_or_json` the choice of a format. `number` has the bounds
//! of numbers and times.
//!
//! Leaves out what other crates parse themselves, such as rates, sizes and URLs, and the values of one command's flags.

pub mod address;
pub mod cpus;
pub mod number;
pub mod text_or_json;
