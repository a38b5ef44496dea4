//! The demonstration: our server with three accept limits, and nginx, past their capacities, in one
//! report (Brecht 2004, figures 2 and 8, with the loads of Banga 1997).
//!
//! Owns the choices: which servers, which load, how much time for what. For each server its capacity is
//! found; then every server is offered 0.5 to 3 times its own capacity, in random order. Every trial is
//! written to a file when it ends; an interrupted demonstration leaves those behind. (One that is killed
//! by SIGKILL leaves its generated files behind too.)
//!
//! The workload is the SPECweb99-like one, because a session of several requests costs a server that is
//! overloaded more than the client that offers it: one client CPU can offer three times what even nginx
//! takes. Our server burns CPU time on each request for the same reason, and because without it a demo
//! would compare how fast it copies files; nginx runs as it is, so the absolute capacities of the two
//! are not to be compared, only what becomes of each past its own.

mod content;
mod contest;
mod kind;
mod plan;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base::{Clock, Nanos, Seed};
use record::{Manifest, Study, TopologyKind};

use self::content::Content;
use self::contest::Contest;
use crate::progress::Progress;
use crate::stage::kernel::Observer;
use crate::stage::server_under_test::Settings;
use crate::stage::topology::Topology;
use crate::trial::Conductor;
use crate::trial::RunTime;
use plan::Shares;

/// Brecht 2004, section 5: the backlog that Linux had, and userver's connection limit.
const BACKLOG: u32 = 128;
const CONNECTIONS: u32 = 15_000;

/// What a person must know from the start who cannot have namespaces.
const LOOPBACK: &str = "warning: over the loopback interface the client's CPU does the server's packet work, so \
                        a dropped connection costs the server nothing and it looks better past its capacity \
                        than it is";

/// What to demonstrate, and where to put the result.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The folder to serve; a SPECweb99-like file set is generated where there is none.
    pub dir: Option<PathBuf>,
    /// Within 25 s instead of 2 minutes, with less certainty.
    pub quick: bool,
    /// The folder for records and report; made if need be.
    pub out: PathBuf,
    /// Decides the file contents, the arrivals and the order of trials.
    pub seed: Seed,
}

/// What came of it. Displays as a table for the terminal and where the report is.
#[derive(Debug)]
pub struct DemoSummary {
    /// The report: one HTML file that needs no network.
    pub report: PathBuf,
    /// Everything the report is drawn from; also in `study.json` beside it.
    pub study: Study,
}

impl fmt::Display for DemoSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", report::study::text(&self.study))?;
        write!(f, "report: {}", self.report.display())
    }
}

/// How much time there is for what.
struct Pace {
    /// For everything, from the start to the report.
    whole: Nanos,
    /// One run of the search for a capacity.
    capacity_run: RunTime,
    /// Runs of the search between doubling and confirming.
    narrowing_runs: usize,
    /// How often each load is repeated.
    repeats: u32,
    /// What is left, shared among the trials.
    shares: Shares,
    /// Between two trials, at most.
    settle: Nanos,
    /// Directories of the generated file set.
    directories: u32,
}

/// Everything in 25 s; some of it is kept for starting up and for a machine slower or busier than ours.
const QUICK: Pace = Pace {
    whole: Nanos::from_millis(22_500),
    capacity_run: RunTime { warmup: Nanos::from_millis(60), measured: Nanos::from_millis(140) },
    narrowing_runs: 3,
    repeats: 1,
    shares: Shares {
        overhead: Nanos::from_millis(80),
        shortest: RunTime { warmup: Nanos::from_millis(60), measured: Nanos::from_millis(200) },
        longest: RunTime { warmup: Nanos::from_millis(200), measured: Nanos::from_millis(500) },
    },
    settle: Nanos::from_millis(100),
    directories: 4,
};

/// Everything in two minutes; the file set has the paper's size.
const FULL: Pace = Pace {
    whole: Nanos::from_secs(110),
    capacity_run: RunTime { warmup: Nanos::from_millis(100), measured: Nanos::from_millis(300) },
    narrowing_runs: 5,
    repeats: 3,
    shares: Shares {
        overhead: Nanos::from_millis(120),
        shortest: RunTime { warmup: Nanos::from_millis(100), measured: Nanos::from_millis(400) },
        longest: RunTime { warmup: Nanos::from_millis(500), measured: Nanos::from_millis(2000) },
    },
    settle: Nanos::from_millis(500),
    directories: 20,
};

/// Runs the demonstration. Blocks for as long as the pace says, and takes over SIGINT and SIGTERM of
/// the process: either ends it early, with the children stopped and the records so far kept. To be
/// called before other threads are started.
///
/// # Errors
/// When the folder cannot be served or the results not be written, when no server could be measured,
/// or when it was interrupted. A server or a trial that fails is left out with its reason, not an error.
pub fn run(options: &DemoOptions, clock: &dyn Clock, progress: &Progress) -> anyhow::Result<DemoSummary> {
    sys::signal::block().context("cannot take over signals")?;
    let pace = if options.quick { QUICK } else { FULL };
    let deadline = clock.now() + pace.whole;
    let records = prepare_out(&options.out)?;
    let topology = Topology::best().context("cannot find out which CPUs there are")?;
    for warning in &topology.warnings {
        progress.say(&format!("warning: {warning}"));
    }
    if topology.kind == TopologyKind::Loopback {
        progress.say(LOOPBACK);
    }
    let content = Content::of(options, pace.directories)?;
    let settings = Settings { root: content.root.clone(), backlog: BACKLOG, connections: CONNECTIONS };
    let manifest = manifest(options, &topology, &settings, &content, clock)?;
    // We are part of the client: what we do must not take time from the server.
    sys::cpu::pin(&topology.client.cpus).context("cannot move to the client's CPUs")?;
    let observer = Observer::of(&topology).context("cannot look at the server's side")?;
    let stop = Cell::new(false);
    let interrupted = || {
        stop.set(stop.get() || signal_came());
        stop.get()
    };
    let mut contest = Contest {
        settings,
        workload: content.workload.clone(),
        conductor: Conductor { topology: &topology, observer, clock, interrupted: &interrupted },
        progress,
        pace: &pace,
        deadline,
        seed: options.seed,
        contenders: Vec::new(),
        warnings: topology.warnings.clone(),
    };
    let trials = contest.find_capacities().and_then(|()| contest.run_trials(&records));
    progress.finish();
    let trials = trials?;
    let study = contest.into_study(content.title.clone(), trials, manifest);
    record::file::write(&options.out.join("study.json"), &study)?;
    let report = options.out.join("report.html");
    record::file::write_whole(&report, report::study::html(&study).as_bytes())?;
    Ok(DemoSummary { report, study })
}

/// Whether SIGINT, SIGTERM or SIGHUP has come; true once for each.
fn signal_came() -> bool {
    matches!(sys::signal::wait(Some(Nanos::ZERO)), Ok(Some(_)))
}

/// What was run and where: the kernel settings are those of the server's side.
fn manifest(
    options: &DemoOptions,
    topology: &Topology,
    settings: &Settings,
    content: &Content,
    clock: &dyn Clock,
) -> anyhow::Result<Manifest> {
    let list = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let workload = &content.workload;
    let config = [
        ("root", settings.root.display().to_string()),
        ("backlog", settings.backlog.to_string()),
        ("max_connections", settings.connections.to_string()),
        ("burn", contest::BURN.to_string()),
        ("workload", workload.name.clone()),
        ("connect_timeout", workload.connect_timeout.to_string()),
        ("request_timeout", workload.request_timeout.to_string()),
        ("quick", options.quick.to_string()),
        ("server_cpus", list(&topology.server.cpus)),
        ("client_cpus", list(&topology.client.cpus)),
    ];
    let config: BTreeMap<String, String> =
        config.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let (wall, seed) = (clock.wall(), Some(options.seed));
    let manifest = topology.server.enter(|| Ok(Manifest::of_this_machine(wall, config, seed)));
    manifest.context("cannot look at the server's side")
}

/// Makes the folders for the results, and takes away what an earlier demonstration left in them: nobody
/// is to find its report beside other records.
fn prepare_out(out: &Path) -> anyhow::Result<PathBuf> {
    let records = out.join("records");
    fs::create_dir_all(&records).with_context(|| format!("cannot make {}", records.display()))?;
    let earlier = fs::read_dir(&records)?.flatten().map(|entry| entry.path());
    let earlier = earlier.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    for path in earlier.chain([out.join("study.json"), out.join("report.html")]) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_demonstration_is_taken_away_and_nothing_else() {
        let out = tempfile::tempdir().unwrap();
        let records = prepare_out(&out.path().join("a/b")).unwrap();
        fs::write(records.join("000-nginx-x1-0.json"), "{}").unwrap();
        fs::write(records.join("notes.txt"), "mine").unwrap();
        fs::write(out.path().join("a/b/report.html"), "old").unwrap();
        assert_eq!(prepare_out(&out.path().join("a/b")).unwrap(), records);
        let left: Vec<_> = fs::read_dir(&records).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
        assert!(!out.path().join("a/b/report.html").exists());
        assert!(prepare_out(Path::new("/dev/null/out")).is_err());
    }

    #[test]
    fn the_time_is_enough_for_the_shortest_trials_of_four_servers() {
        // Beside the narrowing, a search takes three confirmations and on average four doublings: each
        // server but the first starts near the capacity of the one before it.
        for pace in [QUICK, FULL] {
            let searches = pace.shares.estimate(pace.capacity_run, 4 * (4 + pace.narrowing_runs + 3));
            let trials = pace.shares.estimate(pace.shares.shortest, 4 * 6 * pace.repeats as usize);
            assert!(searches + trials <= pace.whole, "{searches} + {trials}");
        }
    }
}
