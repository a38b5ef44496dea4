//! The process of a guard that decides: it reads the signals, tells the hook, prints, and answers at `--admin`.
//!
//! It has no capability, opens no file, and makes no system call but those of its loop. Descriptors come from the
//! starter, which is its parent.

use std::sync::{Arc, Mutex};

use ::guard::{Confinement, Event, Guard, Status};
use base::{Clock, Nanos, RealClock, lock};
use side_servers::{Page, Shown};
use sys::process::take_inherited;
use sys::say;
use sys::thread::signal;

use super::table::Table;
use super::{ends, exit, failed, settings};
use crate::cli::{GuardFlags, GuardOutput};
use crate::exit::Exit;
use crate::output;

/// Runs the controller. Its standard input is the socket of its starter. Blocks until a signal, or the starter's end.
pub fn run(flags: GuardFlags) -> Result<(), Exit> {
    let no_starter = |_| Exit::Usage("only `inrush guard` starts this process".to_owned());
    let starter = take_inherited(0).map_err(no_starter)?;
    signal::block().map_err(failed("block signals"))?;
    let settings = settings(&flags)?;
    let confinement = Confinement::begin().map_err(failed("give up rights"))?;
    let clock = RealClock::new();
    let mut guard = Guard::connect(starter, settings, clock.now()).map_err(exit)?;
    let shown = Arc::new(Mutex::new(guard.status()));
    let page = flags.admin.map(|address| open_page(address, &shown)).transpose()?;
    let (line, rights) = confinement.finish().map_err(failed("give up rights"))?;
    guard.set_rights(rights);
    let verb = if flags.observe { "observing" } else { "guarding" };
    match guard.status().state {
        // A controller that is started again may find the server away.
        "gone" => say!("inrush: {}", Event::Gone),
        _ => say!("inrush: {verb} {}; target {}", guard.description(), flags.queue_target),
    }
    if let Some(split) = guard.status().rights {
        say!("inrush: confined: {line}; its starter keeps {}", split.starter);
    }
    if let Some(address) = page.as_ref().map(Page::address) {
        say!("inrush: figures on http://{address}/metrics and /status");
    }
    keep(guard, &flags, &shown, &clock)
}

/// Guards until a signal.
fn keep(mut guard: Guard, flags: &GuardFlags, shown: &Mutex<Status>, clock: &RealClock) -> Result<(), Exit> {
    let mut table = Table::new(flags);
    let mut shown_at = clock.now();
    *lock(shown) = guard.status();
    // A tick that is due now may wait for a signal that is there already.
    while !ends(guard.due().saturating_sub(clock.now()))? {
        let now = clock.now();
        for event in guard.tick(now) {
            table.line(&format!("inrush: {event}"));
        }
        if now >= shown_at + Nanos::SECOND {
            shown_at = now;
            if guard.is_alone() {
                table.end();
                return Err(Exit::Failed("the guard's starter has ended: everything is admitted".to_owned()));
            }
            *lock(shown) = guard.status();
            table.show(&lock(shown));
        }
    }
    table.end();
    let status = guard.status();
    guard.close();
    match flags.output {
        GuardOutput::Json => output::json("the figures", &status),
        _ => Ok(()),
    }
}

fn open_page(address: std::net::SocketAddr, status: &Arc<Mutex<Status>>) -> Result<Page, Exit> {
    let (metrics, figures) = (Arc::clone(status), Arc::clone(status));
    let texts = vec![
        Shown::new("/metrics", "text/plain; version=0.0.4; charset=utf-8", move || {
            lock(&metrics).prometheus()
        }),
        Shown::new("/status", "application/json", move || {
            serde_json::to_string(&*lock(&figures)).unwrap_or_default() + "\n"
        }),
    ];
    Page::open(address, texts).map_err(|error| Exit::Failed(format!("--admin {address}: {error}")))
}
