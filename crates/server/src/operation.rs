//! The interfaces for the server's operator, and what the server does at its start, its upgrade and its end.
//!
//! - `admin`, the pages and metrics, which a small server answers beside the main one ([`side_servers`]);
//! - `upgrade`, which replaces a running server, and `service_manager`, the messages to systemd;
//! - `confinement`, which gives up rights at the start; `certificates`, which are read again at a reload, and
//!   `rereads`, which limits how often the server reloads.
//!
//! Owns nothing that a request of a client needs.

pub mod admin;
pub mod certificates;
pub mod confinement;
pub mod rereads;
pub mod service_manager;
pub mod upgrade;
