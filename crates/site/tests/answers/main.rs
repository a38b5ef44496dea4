//! The answers of sites, on a clock that the test moves.
//!
//! Tests that change their process have programs of their own beside this one.

#[path = "../common/mod.rs"]
mod common;

mod files;
mod freshness;
mod hosts;
mod requests;
mod rules;
mod traversal;
