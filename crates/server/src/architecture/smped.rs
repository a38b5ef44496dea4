//! SMPED, symmetric multi-process event-driven: a dispatcher and a pool of SPED workers (SMPED).
//!
//! ```text
//!             ┌────────────── dispatcher ──────────────┐  descriptors   ┌─────────────────────┐
//!             │            feedback handler (T_i, C_i) <────────────────┤ worker: a SPED loop │
//!   queue ───>│ acceptor ─> scheduler ─────────────────────────────────>│                     │
//!             │            resource controller ─────────> starts, stops └─────────────────────┘
//!             └────────────────────────────────────────┘  replies each period, closes at once
//! ```
//!
//! Who gets a connection is a [`scheduler`]'s choice, by what the [`feedback`] handler knows; how many workers
//! there are is the business of [`resources`]; the [`pool`] is the account that joins the three.

pub mod feedback;
pub mod pool;
pub mod resources;
pub mod scheduler;
pub mod settings;
