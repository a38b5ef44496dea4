//! SMPED, symmetric multi-process event-driven: a dispatcher and a pool of SPED workers (SMPED).
//!
//! ```text
//!             ┌────────────── dispatcher ──────────────┐  descriptors   ┌────────────────────┐
//!             │            feedback handler (T_i, C_i)<─────────────────┤                    │
//!   queue ───>│ acceptor ─> scheduler ─────────────────────────────────>│ worker process: a  │
//!             │            resource controller ───────────starts, stops─>│ SPED loop          │
//!             └────────────────────────────────────────┘                └────────────────────┘
//!                            replies each period, closed connections at once
//! ```
//!
//! With `--handoff fd`, the paper's way, a dispatcher passes descriptors ([`dispatching`]). With `--handoff kernel`
//! there is no dispatcher ([`steering`]): each worker has accept queues of its own, and a program in the kernel applies
//! the same schedule at each SYN. Without the capabilities for it, the dispatcher passes descriptors. Both share the
//! [`feedback`] handler, the rule about the number of workers ([`resources`]) and the [`settings`].
//!
//! SMPED wins if the cost of a wait grows with the connections, as with select and poll, because each worker
//! waits for few. It wins if some connections block a loop, because only connections of the same worker wait,
//! and it wins with several processors. It loses to one loop on mechanisms whose cost does not depend on the
//! number of connections. Passing a descriptor and learning of its end cost some microseconds per connection,
//! and each worker has a cache of its own.
//!
//! Deviations, where the paper is silent: see the modules. If all workers are full (step 6), the server
//! closes the longest-idle connection for the new one. If no connection is idle, it turns the new one away.

mod dispatching;
mod feedback;
mod resources;
mod settings;
mod steering;

use super::Architecture;
use crate::config::serve::ServeConfig;
use crate::connections::accept::AcceptLimit;
use crate::ground::choices::Choice;
use crate::ground::error::ServeError;
use crate::plan::{Opening, Plan, Started};
use crate::processes::{Control, Worker};
use settings::{HANDOFF, NAME, NUMBERS, SCHEDULE, by_kernel, smped_settings};

/// Descriptors of the dispatcher per worker: a pidfd and a control socket.
const DESCRIPTORS_PER_WORKER: usize = 2;

pub const SMPED: Architecture = Architecture {
    name: NAME,
    summary: "a dispatcher, and worker processes with an event loop each",
    accept_limit: AcceptLimit::Adaptive,
    descriptors: |config| {
        let listeners = if by_kernel(config) { config.addresses().count() } else { 0 };
        let places = config.chosen.get(&NUMBERS).unwrap_or_default().p_max;
        config.open_files() + places * (DESCRIPTORS_PER_WORKER + listeners)
    },
    spreads: true,
    uses: &[Choice::Dispatch, Choice::Driver, Choice::ReadAfterAccept, Choice::Overload],
    settings: &[&NUMBERS, &SCHEDULE, &HANDOFF],
    wakes: &[],
    fits,
    start,
    work: Some(work),
};

/// Runs a worker of either hand-off. Only the hand-off by the kernel gives it memory to inherit.
fn work(worker: Worker, control: Control) -> Result<(), ServeError> {
    if worker.inherited.is_empty() {
        dispatching::work(worker, control)
    } else {
        steering::work(worker, control)
    }
}

fn fits(config: &ServeConfig) -> Result<(), ServeError> {
    config.no_workers("smped chooses their number; --smped initial=N,p-min=N,p-max=N bounds them")?;
    let refused = |setting, given, accepted: &str| {
        let accepted = format!("{accepted}; --handoff fd accepts the setting");
        Err(ServeError::Setting { setting, given, accepted })
    };
    match config.overload_hook {
        _ if !by_kernel(config) => Ok(()),
        _ if smped_settings(config).adapts => {
            refused("--smped", "c-max=adaptive".to_owned(), "a number with --handoff kernel")
        }
        Some(hook) => refused("--overload-hook", hook.to_string(), "--handoff kernel has the backlog alone"),
        None => Ok(()),
    }
}

fn start(plan: &Plan, opening: Opening) -> Result<Started, ServeError> {
    let config = plan.config();
    if by_kernel(config) {
        match steering::load(plan) {
            Ok(program) => return steering::start(plan, opening, program),
            Err(error) => {
                sys::say!("inrush: --handoff kernel: {error}; the dispatcher passes descriptors instead")
            }
        }
    }
    dispatching::start(plan, opening)
}
