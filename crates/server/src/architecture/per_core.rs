//! One loop per processor, each with its own accept queue (SO_REUSEPORT) and everything else of its own.
//!
//! ```text
//!            ┌─> queue 0 ──> loop on CPU 0
//!   kernel ──┼─> queue 1 ──> loop on CPU 1      nothing is shared but the directory
//!    (hash)  └─> queue n ──> loop on CPU n
//! ```
//!
//! N times SPED. The kernel spreads connections by a hash of the four-tuple, blind to load: a loop that is
//! busy keeps getting its share. Each loop has its own cache, so nothing is locked and memory is paid
//! once a processor.

use base::Limit;

use super::{Architecture, with_a_cache_each};
use crate::choices::Choice;
use crate::driver::readiness::ByPhases;
use crate::plan::{LoopHandle, Plan};
use crate::run::ServeError;

pub const PER_CORE: Architecture = Architecture {
    name: "per-core",
    summary: "one event loop per processor, pinned, each with its own queue",
    accept_limit: Limit::AtMost(10),
    descriptors: with_a_cache_each,
    uses: &[Choice::Dispatch, Choice::ReadAfterAccept],
    start,
};

fn start(plan: &Plan) -> Result<Vec<LoopHandle>, ServeError> {
    plan.start_loops::<ByPhases>(plan.config().workers.unwrap_or(plan.cpus().len()))
}
