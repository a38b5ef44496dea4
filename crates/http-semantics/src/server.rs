//! The server's side of a connection, as far as it is the same in every version.
//!
//! A driver lends a [`Context`] to the machine of a connection for each call, and does what the machine [`Wants`]. Each
//! version's machine has its own methods and documents their order.
//!
//! The modules: `wants` is the next action, `awaiting` the event that bounds a wait. `limits` bounds memory and work, and
//! `settings` adds the timeouts. `buffers` lends memory; `counts` and `log` report the results.

mod awaiting;
mod buffers;
mod counts;
mod limits;
mod log;
mod settings;
mod wants;

use std::net::IpAddr;

use base::Nanos;

use crate::date::HttpDate;
use crate::service::Responder;

pub use awaiting::Awaiting;
pub use buffers::Buffers;
pub use counts::Counts;
pub use limits::{LEAST_PROGRESS_BYTES, Limits, MOST_FIELDS};
pub use log::{Entry, Log, Record, Unsent};
pub use settings::{Settings, Timeouts};
pub use wants::Wants;

/// The state that the connections of a loop share, lent for one call.
pub struct Context<'a, S: Responder> {
    /// Answers the requests.
    pub service: &'a mut S,
    /// Limits and timeouts.
    pub settings: &'a Settings,
    /// Memory for connections that need it.
    pub buffers: &'a mut Buffers,
    /// The current second.
    pub date: &'a HttpDate,
    /// Counters of the loop's connections.
    pub counts: &'a mut Counts,
    /// The access log. A response queued without a log is not logged later, so the log is present in all
    /// calls or in none.
    pub log: Option<&'a mut dyn Log>,
    /// The client's address, if known.
    pub client: Option<IpAddr>,
    /// The loop's current time.
    pub now: Nanos,
}
