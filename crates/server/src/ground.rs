//! The ground that every other room stands on: counters, settings, errors, threads and sockets.
//!
//! - settings: `choices`, already checked, and `config_text`, the text that processes pass on;
//! - memory that threads and processes share: `counters`, `scoreboard`, and `instructions`, the word to those that serve;
//! - the operating system: `threads`, `privileges` and `listener`;
//! - `error`.
//!
//! Owns what has no policy of its own. Does not use any other room.

pub mod choices;
pub mod config_text;
pub mod counters;
pub mod error;
pub mod instructions;
pub mod listener;
pub mod privileges;
pub mod scoreboard;
pub mod threads;
