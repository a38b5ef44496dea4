//! Distributes each interval of a run in progress.
//!
//! An interval goes to a live view on a terminal, to a line on stdout for a program, and to an entry of a
//! log. It also updates the states for Prometheus and a collector. None of these outputs can end the run:
//! their errors are reported afterwards.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ::load::{AgentStanding, Observer, Snapshot, Stop, Tempo};
use base::{Clock, RealClock, lock};
use record::LoadResult;
use serde::Serialize;
use server::ServeError;
use side_servers::{Page, Shown};
use sys::say;

use super::hdr_log::HdrLog;
use super::live::Live;
use crate::cli::WatchFlags;
use crate::commands::serve::next_step::{Occupants, with_next_step};
use crate::exit::Exit;
use crate::meters::{self, Exporter, Meters};

/// A line of NDJSON.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line<'a> {
    /// An interval.
    Point(&'a record::Point),
    /// The whole run.
    Result(&'a LoadResult),
}

/// Writes a line.
pub fn line(out: &mut (impl Write + ?Sized), line: &Line<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// All outputs of a run in progress.
pub struct Watcher {
    /// True if each interval is a line on standard output.
    tells_points: bool,
    live: Option<Live>,
    /// Opens the live view of a fleet at its first interval, after the agents' messages on the same terminal.
    opening: Option<Box<dyn FnOnce() -> Option<Live>>>,
    hdr: Option<HdrLog>,
    meters: Arc<Mutex<Meters>>,
    /// Serves the meters until it is dropped.
    page: Option<Page>,
    exporter: Option<Exporter>,
}

impl Watcher {
    /// Opens the outputs that the user requested, with lines for the populations and agents.
    pub fn new(
        tells_points: bool,
        title: &str,
        (populations, agents): (usize, usize),
        tempo: Option<Tempo>,
        stop: &Stop,
        flags: WatchFlags,
    ) -> Result<Watcher, Exit> {
        let meters = Arc::default();
        let page = flags.prometheus.map(|address| open_page(address, &meters)).transpose()?;
        let exporter = flags.otlp.map(Exporter::start).transpose();
        let exporter = exporter.map_err(|cause| Exit::Failed(format!("cannot start a thread: {cause}")))?;
        let hdr = flags.hdr.map(|path| HdrLog::create(&path, RealClock::new().wall())).transpose()?;
        let (title, stop) = (title.to_owned(), stop.clone());
        let open = move || Live::new(&title, populations, agents, tempo, &stop);
        let (live, opening): (_, Option<Box<dyn FnOnce() -> _>>) = match (io::stderr().is_terminal(), agents)
        {
            (false, _) => (None, None),
            (true, 0) => (open(), None),
            (true, _) => (None, Some(Box::new(open))),
        };
        Ok(Watcher { tells_points, live, opening, hdr, meters, page, exporter })
    }

    /// Closes all outputs.
    ///
    /// # Errors
    /// The log is incomplete. A failure to reach a collector is only reported, because the result exists.
    pub fn end(self) -> Result<(), Exit> {
        if let Some(live) = self.live {
            live.end();
        }
        if let Some(failure) = self.exporter.and_then(Exporter::end) {
            say!("inrush: {failure}");
        }
        self.hdr.map_or(Ok(()), HdrLog::end)
    }
}

/// Opens the page that Prometheus reads.
fn open_page(address: SocketAddr, meters: &Arc<Mutex<Meters>>) -> Result<Page, Exit> {
    let shown = Arc::clone(meters);
    let read = move || meters::page(&lock(&shown));
    let shown = Shown::new("/metrics", "text/plain; version=0.0.4; charset=utf-8", read);
    let page = Page::open(address, vec![shown]).map_err(|error| {
        let next = with_next_step(&ServeError::from(error), &Occupants::find([address]));
        Exit::Failed(format!("--prometheus: {next}"))
    })?;
    say!("inrush: metrics on http://{}/metrics", page.address());
    Ok(page)
}

impl Observer for Watcher {
    fn interval(&mut self, snapshot: &Snapshot<'_>) {
        if self.tells_points {
            // A reader that is gone does not end the run; writing the result meets the same reader.
            let _ = line(&mut io::stdout().lock(), &Line::Point(snapshot.point));
        }
        if let Some(open) = self.opening.take() {
            self.live = open();
        }
        if let Some(live) = &mut self.live {
            live.show(snapshot);
        }
        if let Some(hdr) = &mut self.hdr {
            hdr.interval(snapshot);
        }
        if self.page.is_some() || self.exporter.is_some() {
            let mut meters = lock(&self.meters);
            meters.add(snapshot);
            if let Some(exporter) = &self.exporter {
                exporter.send_state(&meters);
            }
        }
    }

    fn agents(&mut self, agents: &[AgentStanding]) {
        if let Some(live) = &mut self.live {
            live.show_agents(agents);
        }
    }
}
