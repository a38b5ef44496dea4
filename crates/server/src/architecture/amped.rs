//! AMPED, asymmetric multi-process event-driven (Flash: Pai, Druschel and Zwaenepoel, USENIX 1999, section 3.4).
//!
//! ```text
//!            ┌──────────── main process, one loop ────────────┐
//!   queue ──>│ get events ─> accept ─> work ─> expire         │
//!            │     ^                   │  ^                   │
//!            └─────┴───────────────────┼──┼───────────────────┘
//!                                fetch │  │ notice
//!                                      v  │
//!            helper process 0: look up, open, read from the disk
//!            helper process n: look up, open, read from the disk      (--helpers)
//! ```
//!
//! AMPED is SPED that does not stop for a cold file. The main process answers requests from memory. If a
//! name, an inode or contents are not in memory, the connection waits and a helper reads them. The helper's
//! notice is one more event of the loop. AMPED beats [`sped`](super::sped) when the files exceed the memory,
//! and costs little more when they do not. Like SPED it loses if one processor does not suffice.
//!
//! The main process replaces a helper that dies, and another helper does its fetch. A helper never has a
//! connection, so no connection is lost with it.
//!
//! Deviations:
//!
//! - Each call asks the kernel about the contents of memory (RESOLVE_CACHED, RWF_NOWAIT), not mincore. There
//!   are no mappings, because files leave by sendfile.
//! - The files that a helper has read stay in the kernel's caches. The helper's notice says only that it is
//!   done.
//! - The number of helpers is fixed.
//! - The main process itself checks its directory's own name once a second, and itself starts a helper in
//!   place of a dead one.
//!
//! The modules: `helpers` starts the helpers and hands out errands, `errands` keeps account of them, and
//! `helper` is the helper process. `need` is the content of an errand and its message, `service` the site of
//! the main process.

mod errands;
mod helper;
mod helpers;
mod need;
mod service;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use base::setting::{Declaration, Setting, number_in};

use super::Architecture;
use crate::config::serve::ServeConfig;
use crate::connections::accept::AcceptLimit;
use crate::driver::event_loop::Parts;
use crate::driver::readiness::ByPhases;
use crate::ground::choices::Choice;
use crate::ground::error::ServeError;
use crate::ground::threads::start_thread;
use crate::plan::{Opening, Plan, Started, addresses, run_on};
use crate::processes::{Fleet, Role};
use crate::service::{Costly, LoopSites};
use helpers::Helpers;
use service::AmpedSite;

/// Default number of helpers: enough to keep a disk's queue busy.
const DEFAULT_HELPERS: usize = 8;
/// Maximum number of helpers: one look at their notices takes all in.
const MOST_HELPERS: usize = 30;
/// Descriptors of the main process per helper: a pidfd and a control socket.
const DESCRIPTORS_PER_HELPER: usize = 2;

static HELPERS: Setting<usize> = Setting::parsed_by(
    Declaration {
        flag: "--helpers",
        value: "N",
        help: "number of helper processes, which wait for the disk [default: 8]",
        more: None,
        without: "waits for the disk itself",
        in_kernel: None,
    },
    |text| number_in(1..=MOST_HELPERS, text),
);

pub const AMPED: Architecture = Architecture {
    name: "amped",
    summary: "one event loop, and helper processes that wait for the disk in its place",
    accept_limit: AcceptLimit::Adaptive,
    descriptors: |config| config.open_files() + helpers(config) * DESCRIPTORS_PER_HELPER,
    spreads: false,
    uses: &[
        Choice::Dispatch,
        Choice::ReadAfterAccept,
        Choice::Overload,
        Choice::LoadReports,
        Choice::ClientLimits,
    ],
    settings: &[&HELPERS],
    wakes: &[],
    fits: |config| config.no_workers("amped is one loop; --helpers sets the number of helper processes"),
    start,
    work: Some(helper::work),
};

fn helpers(config: &ServeConfig) -> usize {
    config.chosen.get(&HELPERS).unwrap_or(DEFAULT_HELPERS)
}

fn start(plan: &Plan, opening: Opening) -> Result<Started, ServeError> {
    let config = plan.config();
    let role = Role {
        architecture: AMPED.name,
        noun: "helper",
        places: helpers(config),
        service: Vec::new(),
        serves: false,
        own_words: 0,
    };
    let fleet = Fleet::new(plan, role, Vec::new())?;
    let (queue, opened) = opening.listen_once(plan)?;
    let addresses = addresses(&queue.listeners);
    let mut parts = plan.parts_alone(queue, &opened)?;
    parts.board = fleet.board();
    let (stop, board, dispatch) = (parts.stop.clone(), parts.board.clone(), plan.dispatch());
    let body = move || run(dispatch, fleet, parts);
    let running = start_thread("amped".to_owned(), &config.cpus, stop, board, addresses, body)?;
    Ok(Started { loops: vec![running], opened })
}

/// Runs the main process's loop. The helpers live as long as it does.
fn run(dispatch: &str, fleet: Fleet, parts: Parts<Costly<LoopSites>>) -> io::Result<()> {
    let helpers = Rc::new(RefCell::new(Helpers::start(fleet)?));
    let helped = |costly: Costly<LoopSites>| {
        Ok(Costly {
            site: AmpedSite::new(costly.site.0, Rc::clone(&helpers))?,
            burn: costly.burn,
            observer: None,
            reports: costly.reports,
            refusal: costly.refusal,
        })
    };
    run_on::<_, ByPhases, _>(dispatch, parts.serving(helped)?)?;
    helpers.borrow_mut().end()
}
