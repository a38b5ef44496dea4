//! The configuration of a server (`serve`), the driver that it leads to (`driver`), and the open directories with names and
//! certificates that its hosts become (`hosts`).
//!
//! Owns checked settings. Does not read flags or files; the program turns them into these types.

pub mod driver;
pub mod hosts;
pub mod serve;
