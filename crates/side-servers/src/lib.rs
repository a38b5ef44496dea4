//! Small servers beside a program's main work: the admin interface of a server, and a page on which a command shows its
//! figures.
//!
//! Each is one loop on poll(2), on any processor, for a few connections. It answers while the main server is overloaded,
//! because the two share only the machine.
//!
//! - `side_server` is the loop, and `service` what it answers with;
//! - `guard` decides which requests are answered, and `access` has the address and the secret;
//! - `streams` has the connections that asked for events and left the others;
//! - `page` shows texts, on a thread of its own;
//! - `totals` counts.
//!
//! Owns these loops and their rules. Leaves out what they show, and the threads of all but a page.
#![forbid(unsafe_code)]

mod access;
mod guard;
mod page;
mod service;
mod side_server;
mod streams;
mod totals;

pub use access::{AdminAddress, AdminListener, ListenError, Token};
pub use guard::Guard;
pub use page::{Page, Shown};
pub use service::{SmallService, answer, not_allowed};
pub use side_server::SideServer;
pub use totals::Totals;
