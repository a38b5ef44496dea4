//! SPED, single-process event-driven: the userver of Brecht 2004 (section 4.1), also SPED in SMPED.
//!
//! ```text
//!            ┌──────────────── one thread ────────────────┐
//!   queue ──>│ get events ─> accept ─> work ─> expire ─┐   │
//!            │     ^─────────────────────────────────── ┘  │
//!            └────────────────────────────────────────────┘
//! ```
//!
//! One loop does everything. SPED wins while requests are served from memory and one processor suffices; a
//! cold file stops every connection. Deviation: signals and the admin interface have threads of their own,
//! which sleep until they are needed.

use super::Architecture;
use crate::connections::accept::AcceptLimit;
use crate::driver::readiness::ByPhases;
use crate::ground::choices::Choice;
use crate::ground::error::ServeError;
use crate::plan::{Opening, Plan, Started};

pub const SPED: Architecture = Architecture {
    name: "sped",
    summary: "one event loop on one processor",
    accept_limit: AcceptLimit::Adaptive,
    descriptors: |config| config.open_files(),
    spreads: false,
    uses: &[
        Choice::Dispatch,
        Choice::Driver,
        Choice::ReadAfterAccept,
        Choice::KernelCache,
        Choice::Overload,
        Choice::LoadReports,
        Choice::ClientLimits,
    ],
    settings: &[],
    wakes: &[],
    fits: |config| config.only_one_loop("sped"),
    start,
    work: None,
};

fn start(plan: &Plan, opening: Opening) -> Result<Started, ServeError> {
    let (queue, opened) = opening.listen_once(plan)?;
    Ok(Started { loops: plan.start_loops::<ByPhases>(vec![queue], &opened)?, opened })
}
