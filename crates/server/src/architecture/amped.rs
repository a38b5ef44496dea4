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
//! SPED that does not stop for a cold file. The main process answers what is in memory; where a name, an inode or
//! contents are not, the connection waits, a helper reads them, and its notice is one more event of the loop. It
//! wins over [`sped`](super::sped) with more files than memory, and costs little more where all are in memory; like
//! SPED it loses where one processor is not enough.
//!
//! A helper that dies is replaced, and what it was to fetch is fetched by another. It never has a connection, so
//! that none is lost with it.
//!
//! Deviations: what is in memory is asked of the kernel with each call (RESOLVE_CACHED, RWF_NOWAIT), not by
//! mincore; there are no mappings, as files leave by sendfile. What a helper has found stays in the kernel's caches,
//! and it says nothing but that it is done. The number of helpers is fixed. The main process looks at its
//! directory's own name once a second, and starts a helper in place of a dead one, by itself.

mod errands;
mod helper;
mod helpers;
mod need;
mod service;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use base::Limit;
use site::Site;

use super::Architecture;
use crate::choices::Choice;
use crate::config::ServeConfig;
use crate::driver::readiness::{ByPhases, Parts};
use crate::error::ServeError;
use crate::plan::{LoopHandle, Plan, addresses, run_on, start_thread};
use crate::processes::{Fleet, Role};
use crate::service::Costly;
pub(crate) use helpers::HelperCounts;
use helpers::Helpers;
use service::AmpedSite;

/// Unless told otherwise: enough to keep a disk's queue busy.
const HELPERS: usize = 8;
/// Of the main process: a pidfd and a control socket for each helper.
const DESCRIPTORS_PER_HELPER: usize = 2;

pub const AMPED: Architecture = Architecture {
    name: "amped",
    summary: "one event loop, and helper processes that wait for the disk in its place",
    accept_limit: Limit::AtMost(10),
    descriptors: |config| config.site.cache.open_files + helpers(config) * DESCRIPTORS_PER_HELPER,
    uses: &[Choice::Dispatch, Choice::ReadAfterAccept, Choice::Helpers, Choice::Overload],
    start,
    work: Some(helper::work),
};

fn helpers(config: &ServeConfig) -> usize {
    config.helpers.unwrap_or(HELPERS)
}

fn start(plan: &Plan) -> Result<Vec<LoopHandle>, ServeError> {
    let config = plan.config();
    plan.no_workers("amped is one loop; --helpers is how many processes wait for the disk")?;
    let role = Role {
        architecture: AMPED.name,
        noun: "helper",
        places: helpers(config),
        service: Vec::new(),
        own_words: 0,
    };
    let fleet = Fleet::new(plan, role, Vec::new())?;
    let queue = plan.listen_once()?;
    let addresses = addresses(&queue.listeners);
    let mut parts = plan.parts_alone(queue)?;
    parts.board = fleet.board();
    let (stop, board, dispatch) = (parts.stop.clone(), parts.board.clone(), plan.dispatch());
    let body = move || run(dispatch, fleet, parts);
    Ok(vec![start_thread("amped".to_owned(), &config.cpus, stop, board, addresses, body)?])
}

/// The main process's loop, and the helpers as long as it.
fn run(dispatch: &str, fleet: Fleet, parts: Parts<Costly<Site>>) -> io::Result<()> {
    let helpers = Rc::new(RefCell::new(Helpers::start(fleet)?));
    let helped = |costly: Costly<Site>| {
        Ok(Costly {
            site: AmpedSite::new(costly.site, Rc::clone(&helpers))?,
            burn: costly.burn,
            observer: None,
        })
    };
    run_on::<_, ByPhases, _>(dispatch, parts.serving(helped)?)?;
    helpers.borrow_mut().end()
}
