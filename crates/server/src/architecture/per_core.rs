//! One loop per processor, each with its own accept queue (SO_REUSEPORT) and everything else of its own.
//!
//! ```text
//!            ┌─> queue 0 ──> loop on CPU 0
//!   kernel ──┼─> queue 1 ──> loop on CPU 1      nothing is shared but the directory
//!    (hash)  └─> queue n ──> loop on CPU n
//! ```
//!
//! This is N times SPED. The kernel spreads connections by a hash of the four-tuple, blind to load: a busy
//! loop keeps getting its share. Each loop has its own cache, so nothing is locked, and each processor pays
//! for its memory.
//!
//! With `--wake steered` a connection goes to the loop on the processor that received it. The kernel and the
//! loop then work in the same caches. The spread is that of the network card's queues, which can be worse
//! than a hash: one queue means one loop.

use overload::hook::Routing;

use super::Architecture;
use crate::config::serve::ServeConfig;
use crate::connections::accept::AcceptLimit;
use crate::driver::readiness::ByPhases;
use crate::ground::choices::{Choice, WAKE, Wake};
use crate::ground::error::ServeError;
use crate::plan::{Opening, Plan, Started};

pub const PER_CORE: Architecture = Architecture {
    name: "per-core",
    summary: "one event loop per processor, pinned, each with its own queue",
    accept_limit: AcceptLimit::Adaptive,
    descriptors,
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
    settings: &[&WAKE],
    wakes: &[Wake::Reuseport, Wake::Steered],
    fits,
    start,
    work: None,
};

/// Maximum number of loops. More than any machine has processors is a mistake, which would cost 64 KiB and a
/// cache for each loop.
const MOST_LOOPS: usize = 1024;

/// Each loop has a cache of open files, an epoll instance, an eventfd, and for each address a listener, its copy for a
/// successor, and a sink.
fn descriptors(config: &ServeConfig) -> usize {
    let all = || match config.cpus.len() {
        0 => sys::cpu::allowed().map_or(1, |cpus| cpus.len()),
        chosen => chosen,
    };
    config.workers.unwrap_or_else(all) * (config.open_files() + 2 + 3 * config.addresses().count())
}

fn fits(config: &ServeConfig) -> Result<(), ServeError> {
    if let Some(loops) = config.workers.filter(|loops| *loops > MOST_LOOPS) {
        return Err(ServeError::Setting {
            setting: "--workers",
            given: loops.to_string(),
            accepted: format!("per-core has 1 to {MOST_LOOPS} loops"),
        });
    }
    PER_CORE.wake(config).map(drop)
}

fn start(plan: &Plan, opening: Opening) -> Result<Started, ServeError> {
    let loops = plan.config().workers.unwrap_or(plan.cpus().len());
    let wake = PER_CORE.wake(plan.config())?;
    // A single loop gets all connections in any case.
    let routing = if wake == Wake::Steered && loops > 1 { by_cpu(plan, loops)? } else { Routing::Even };
    let (queues, opened) = opening.listen(plan, loops, routing)?;
    Ok(Started { loops: plan.start_loops::<ByPhases>(queues, &opened)?, opened })
}

/// Assigns the connections that each processor receives to the listeners of its loop.
fn by_cpu(plan: &Plan, loops: usize) -> Result<Routing, ServeError> {
    let cpus = plan.cpus().get(..loops).ok_or_else(|| ServeError::Setting {
        setting: "--wake",
        given: Wake::Steered.to_string(),
        accepted: format!("it needs a processor for each loop, and {loops} loops exceed the processors"),
    })?;
    Ok(Routing::ByCpu(cpus.to_vec()))
}
