//! SEDA, staged event-driven architecture (Welsh, Culler and Brewer, SOSP 2001; SMPED, section 2).
//!
//! ```text
//!           ┌─────────┐   ┌──────┐   ┌───────┐   ┌──────┐   ┌───────┐
//!   queue ─>│ accept  │   │ read │──>│ parse │──>│ file │──>│ write │   each a queue of events,
//!           └────┬────┘   └──^───┘   └───────┘   └──────┘   └──┬────┘   a thread pool, and a
//!                v           │        admits,                  │        controller of its size
//!           ┌────────────────┴────────or refuses───────────────v────┐
//!           │ source: waits for sockets, keeps what is idle         │
//!           └───────────────────────────────────────────────────────┘
//! ```
//!
//! A stage whose queue passes the threshold gets a thread, and an idle stage loses one. If the smoothed 90th
//! percentile of the response time passes its target, fewer requests are admitted, and the others get 503
//! with `Retry-After`. SEDA wins if load comes in surges and a late answer is worth no more than a refusal.
//! It also wins if files come from a disk, because only the threads of the file stage wait. It loses if
//! requests are cheap: each pays for five queues and as many switches, and moves between processors.
//!
//! Deviations: the read and write stages get their events from one `source` thread, on any event mechanism.
//! The stages have the five names of SMPED. The file stage has the page cache of Haboob. Large files leave by
//! sendfile from the write stage, which then may wait for the disk. The rest is in `driver/stages`.

use std::sync::Arc;

use base::Limit;
use base::setting::{Declaration, Setting};
use sys::thread::stop::Stop;

use super::Architecture;
use crate::connections::accept::AcceptLimit;
use crate::connections::slots::Share;
use crate::driver::stages::{Parts, Pipeline, SedaSettings};
use crate::ground::choices::Choice;
use crate::ground::counters::Board;
use crate::ground::error::{ServeError, system};
use crate::ground::threads::start_thread;
use crate::plan::{Opening, Plan, Started, addresses, on_mechanism};
use crate::service::SharedSite;

static CONTROLLERS: Setting<SedaSettings> = Setting::new(Declaration {
    flag: "--seda",
    value: "NAME=VALUE,...",
    help: "settings of the controllers [default: target=100ms,max-threads=20,queue-threshold=16,percentile=anew]",
    more: Some(
        "percentile=kept keeps the response times from before a cut of the admission rate, as in the paper.",
    ),
    without: "has no stages to control",
    in_kernel: None,
});

pub const SEDA: Architecture = Architecture {
    name: "seda",
    summary: "stages with a queue and a thread pool each, which refuse what would be late",
    accept_limit: AcceptLimit::Fixed(Limit::AtMost(10)),
    descriptors: |config| config.open_files(),
    spreads: true,
    uses: &[Choice::Dispatch, Choice::LoadReports, Choice::ClientLimits],
    settings: &[&CONTROLLERS],
    wakes: &[],
    fits: |config| config.no_workers("seda's pools size themselves; --seda max-threads=N bounds them"),
    start,
    work: None,
};

fn start(plan: &Plan, opening: Opening) -> Result<Started, ServeError> {
    let config = plan.config();
    let (mut sets, opened) = opening.listen_uncontrolled(plan, 1)?;
    let listeners = sets.remove(0);
    let addresses = addresses(&listeners);
    let pipeline = Pipeline::new(Parts {
        listeners,
        acceptor: plan.acceptor(Share::alone(config.max_connections)),
        service: plan.costly(SharedSite::new(plan.hosts())),
        settings: plan.settings(),
        log: plan.log(),
        mechanism: config.mechanism.clone(),
        drain_timeout: config.drain_timeout,
        seda: config.chosen.get(&CONTROLLERS).unwrap_or_default(),
    });
    let pipeline = Arc::new(pipeline.map_err(system("make an eventfd"))?);
    // The board outlives the pipeline, and must not keep its listeners open.
    let gauges = Arc::downgrade(&pipeline);
    let board = Board::with_live(move |counters| {
        if let Some(pipeline) = gauges.upgrade() {
            pipeline.add_gauges(counters);
        }
    });
    let stop = Stop::new().map_err(system("make an eventfd"))?;
    let (dispatch, asked, published) = (plan.dispatch(), stop.clone(), board.clone());
    let body = move || on_mechanism!(dispatch, Found => pipeline.run::<Found>(&asked, &published));
    let running = start_thread("seda".to_owned(), &config.cpus, stop, board, addresses, body)?;
    Ok(Started { loops: vec![running], opened })
}
