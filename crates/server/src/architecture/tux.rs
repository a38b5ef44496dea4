//! TUX's discipline in user mode: the accept queue and the work-pending queue of Brecht 2004 (section 4.3).
//!
//! ```text
//!            ┌───────────────────── one thread ──────────────────────┐
//!   queue ──>│ accept, up to the accept-limit ──┐                    │
//!            │   ^                              v head (LIFO)        │
//!            │   | empty              ┌── work-pending list          │
//!            │   └── work, until ─────┘         ^ head               │
//!            │                       get events ┘ (what arrives)     │
//!            └───────────────────────────────────────────────────────┘
//! ```
//!
//! An accepted connection is work at once, and the latest work is done first. The server accepts connections
//! only when no work is pending. A large accept-limit therefore makes a long list, in which the oldest
//! connections wait longest; the paper finds that limit 1 wins here. TUX wins if connections are short and
//! their requests arrive with them. It loses if persistent connections keep the list from ever being empty,
//! because then no new client is accepted.
//!
//! Deviations: TUX runs in the kernel, which reports arrivals as they happen. Here a get-events that does not
//! wait comes between two batches, and deadlines are checked there too. A connection that one get-events reports
//! is worked on before the next accept. `--kernel-cache on` serves hot files
//! from inside the kernel (`kernel_cache.rs`). The discipline is in `driver/readiness/discipline.rs`.

use base::Limit;

use super::Architecture;
use crate::connections::accept::AcceptLimit;
use crate::driver::readiness::UntilEmpty;
use crate::ground::choices::Choice;
use crate::ground::error::ServeError;
use crate::plan::{Opening, Plan, Started};

pub const TUX: Architecture = Architecture {
    name: "tux",
    summary: "one event loop, which accepts only when nothing else is left",
    accept_limit: AcceptLimit::Fixed(Limit::Infinite),
    descriptors: |config| config.open_files(),
    spreads: false,
    uses: &[
        Choice::Dispatch,
        Choice::KernelCache,
        Choice::Overload,
        Choice::LoadReports,
        Choice::ClientLimits,
    ],
    settings: &[],
    wakes: &[],
    fits: |config| config.only_one_loop("tux"),
    start,
    work: None,
};

fn start(plan: &Plan, opening: Opening) -> Result<Started, ServeError> {
    let (queue, opened) = opening.listen_once(plan)?;
    Ok(Started { loops: plan.start_loops::<UntilEmpty>(vec![queue], &opened)?, opened })
}
