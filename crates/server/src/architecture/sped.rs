//! SPED, single-process event-driven: the userver of Brecht 2004 (section 3.1), also SPED in SMPED.
//!
//! ```text
//!            ┌──────────────── one thread ────────────────┐
//!   queue ──>│ get events ─> accept ─> work ─> expire ─┐   │
//!            │     ^─────────────────────────────────── ┘  │
//!            └────────────────────────────────────────────┘
//! ```
//!
//! One loop does everything. It wins while requests are served from memory and one processor is enough; a
//! cold file stops everybody. Deviation: signals and the admin interface have threads of their own,
//! which sleep unless they are spoken to.

use super::Architecture;
use crate::run::{LoopHandle, Plan, ServeError};

pub const SPED: Architecture =
    Architecture { name: "sped", summary: "one event loop on one processor", start };

fn start(plan: &Plan) -> Result<Vec<LoopHandle>, ServeError> {
    if let Some(workers) = plan.config().workers.filter(|workers| *workers != 1) {
        return Err(ServeError::Setting {
            setting: "--workers",
            given: workers.to_string(),
            accepted: "sped is one loop; --arch per-core has many".to_owned(),
        });
    }
    plan.start_loops(1)
}
