//! The measurement of a run: the outcome and the times of every request that was offered.
//!
//! ```text
//!   engine threads --> ledger, recorder --interval--> assembly --> observer, series
//!                                       \--- end ---> result <--- verdict, conclusion
//! ```
//!
//! Leaves out offering load, sockets and files.
//!
//! The modules, from the bottom up:
//!
//! - One thread: `ledger` counts outcomes, `recorder` takes times into `histograms`, and `thread_metrics` has
//!   both with the thread's connections and CPU time, the first failed replies, and the requests by name.
//! - All threads: `series` and `assembly` add up intervals for an `observer`.
//! - The end: `verdict` judges the generator, `result` builds the record, `conclusion` puts it into a sentence, and
//!   `fail_if` holds it to a user's thresholds.

pub(crate) mod assembly;
mod conclusion;
pub mod fail_if;
pub(crate) mod histograms;
pub(crate) mod ledger;
pub(crate) mod observer;
pub(crate) mod recorder;
pub(crate) mod result;
pub(crate) mod series;
pub(crate) mod thread_metrics;
pub(crate) mod verdict;
