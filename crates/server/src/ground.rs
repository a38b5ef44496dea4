//! The ground that every other room stands on: counters, signs to stop, settings, errors, threads and sockets.
//!
//! - settings: `choices` and `setting`, already checked; `config_text`, the text that processes pass on;
//!   `admin_access`, the address and the token of the admin interface;
//! - memory that threads and processes share: `counters`, `scoreboard`, `stop`, and `instructions`, the word to those
//!   that serve;
//! - the operating system: `threads`, `privileges` and `listener`;
//! - `error`, and `unavailable`, the text of a refusal.
//!
//! Owns what has no policy of its own. Does not use any other room.

pub mod admin_access;
pub mod choices;
pub mod config_text;
pub mod counters;
pub mod error;
pub mod instructions;
pub mod listener;
pub mod privileges;
pub mod scoreboard;
pub mod stop;
pub mod threads;
pub mod unavailable;
