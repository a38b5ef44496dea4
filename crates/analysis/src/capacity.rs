//! A server's capacity, its behaviour past it, and its recovery, from the loads of a survey.
//!
//! Owns the estimate ([`estimate`]), the steps of a long run ([`steps`]), the moment of recovery ([`recovery`]), the
//! verdict ([`judge`]) and the judgement of a single load ([`step`]). Offers no load and writes no sentences.

pub mod estimate;
pub mod judge;
pub mod recovery;
pub mod step;
pub mod steps;

pub use step::{KEEPS_UP, OfferedLoad, answered_share, by_load, is_brought_about, offered_load};

use base::Nanos;

/// The load at which recovery is watched, as a share of the capacity: the server handles it with ease.
pub const RECOVERY_LOAD: f64 = 0.8;
/// The longest wait for a recovery: longer than a full queue of a usual backlog lasts.
pub const RECOVERY_MOST: Nanos = Nanos::from_secs(10);
