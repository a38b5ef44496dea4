//! `inrush lab`: experiments by file or by name, reported on the terminal; `compare` sets two runs side by side.
//!
//! `demo` hands its experiment to [`carry_out`].

mod compare;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use base::{Nanos, RealClock, nearest};
use clap::Parser;
use experiment::Experiment;
use lab::library::{self, Known};
use lab::progress::Progress;
use lab::run::{self, RunOptions, RunSummary, Surroundings, schedule};
use record::experiment::{FAMILIES, Form, METRICS};
use stage::leftovers;
use sys::thread::signal;

use crate::cli::{Cli, Command, LabCommand, LabFlags, LabRunFlags};
use crate::exit::Exit;
use crate::output::out;

/// Carries out a command of the lab.
pub fn run(flags: LabFlags) -> Result<(), Exit> {
    match flags.command {
        LabCommand::List => list(),
        LabCommand::Metrics => metrics(),
        LabCommand::Check { experiments } => check(&experiments),
        LabCommand::Run { experiments, flags } => {
            let found: Vec<Found> = experiments.iter().map(|path| find(path)).collect::<Result<_, _>>()?;
            carry_out(&in_folders(&found, &flags))
        }
        LabCommand::Paper { flags } => {
            let all: Vec<Found> = library::ALL.iter().copied().map(Found::from).collect();
            let outcome = carry_out(&in_folders(&all, &flags));
            // The finished experiments are reported, even if some failed or the user interrupted the run.
            let names: Vec<String> = all.iter().map(|found| found.name.clone()).collect();
            let written = report::paper::write(&flags.out, &names).map_err(failed);
            outcome.and(written.and_then(|()| out!("{}", where_the_report_is(&flags.out))))
        }
        LabCommand::Report { folder } => {
            fs::read_dir(&folder)
                .map_err(|cause| Exit::Usage(format!("cannot read {}: {cause}", folder.display())))?;
            report::write(&folder).map_err(failed)?;
            out!("{}", where_the_report_is(&folder))
        }
        LabCommand::Compare(flags) => compare::run(&flags),
        LabCommand::Clean => clean(),
    }
}

/// An experiment's name and text.
struct Found {
    name: String,
    text: String,
}

impl From<Known> for Found {
    fn from(known: Known) -> Found {
        Found { name: known.name.to_owned(), text: known.text.to_owned() }
    }
}

/// The file at a path, or the experiment with that name.
fn find(path: &Path) -> Result<Found, Exit> {
    if let Some(known) = path.to_str().and_then(library::by_name) {
        return Ok(Found::from(known));
    }
    let text = fs::read_to_string(path).map_err(|cause| {
        let names = library::each().map(|known| known.name);
        let meant = path.to_str().and_then(|name| nearest(name, names));
        let meant = meant.map_or(String::new(), |name| format!("; did you mean {name}?"));
        Exit::Usage(format!("{}: cannot read it: {cause}{meant}", path.display()))
    })?;
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    Ok(Found { name, text })
}

fn list() -> Result<(), Exit> {
    let longest = library::each().map(|known| known.name.len()).max().unwrap_or(0);
    let mut sums = [Nanos::ZERO; 2];
    for known in library::each() {
        let experiment = Experiment::parse(known.text).map_err(|wrong| Exit::Failed(wrong.to_string()))?;
        let times =
            [Form::Full, Form::Quick].map(|form| schedule::estimate(&experiment.in_form(form), form).time);
        if library::ALL.contains(&known) {
            sums = [sums[0] + times[0], sums[1] + times[1]];
        }
        let [full, quick] = times.map(in_minutes);
        out!("{:longest$}  {full:>8}  {quick:>8} quick  {}", known.name, experiment.title)?;
    }
    let [full, quick] = sums.map(in_minutes);
    let first = library::ALL[0].name;
    out!("{:longest$}  {full:>8}  {quick:>8} quick  from {first} on, by lab paper", "all of them")
}

fn metrics() -> Result<(), Exit> {
    let longest = METRICS.iter().map(|metric| metric.name.len()).max().unwrap_or(0);
    for metric in METRICS {
        out!("{:longest$}  {:6}  {}", metric.name, metric.unit.word(), metric.title)?;
    }
    let more = FAMILIES.map(|family| format!("{family}NAME")).join(", ");
    out!("{more}: outcomes of the client, counters of our server, populations (see docs/lab.md)")
}

/// A time such as `40 s` or `14 min`.
fn in_minutes(time: Nanos) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 100.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

fn check(paths: &[PathBuf]) -> Result<(), Exit> {
    let mut wrong = 0;
    for path in paths {
        let found = find(path)?;
        let mistakes = match Experiment::parse(&found.text) {
            Ok(experiment) => {
                let mistakes = wrong_flags(&experiment);
                if mistakes.is_empty() {
                    describe(&found.name, &experiment)?;
                }
                mistakes
            }
            Err(mistakes) => mistakes.0,
        };
        for mistake in &mistakes {
            out!("{}: {mistake}", found.name)?;
        }
        wrong += mistakes.len();
    }
    match wrong {
        0 => Ok(()),
        1 => Err(Exit::Usage("1 mistake".to_owned())),
        many => Err(Exit::Usage(format!("{many} mistakes"))),
    }
}

fn describe(name: &str, experiment: &Experiment) -> Result<(), Exit> {
    out!("{name}: {}", experiment.title)?;
    for (form, label) in [(Form::Full, "full"), (Form::Quick, "quick")] {
        let form_of_it = experiment.in_form(form);
        let estimate = schedule::estimate(&form_of_it, form);
        out!(
            "  {label}: {} trials of {} and {} searches for a capacity; about {}, or {} with trials run again",
            estimate.trials,
            schedule::trial_run(&form_of_it).total(),
            estimate.searches,
            in_minutes(estimate.time),
            in_minutes(estimate.at_most),
        )?;
        warn_of_undecidable(name, &form_of_it, label)?;
    }
    for (one, other) in run::judgeable::bounds_within_tolerances(experiment) {
        out!(
            "  warning: a bound of '{other}' lies inside the tolerance of '{one}'; give them the same, or no tolerance"
        )?;
    }
    for choice in open_choices(experiment) {
        out!("  warning: {choice}, which the machine chooses; name it, so that records stay comparable")?;
    }
    let figures: Vec<&str> = experiment.figures.iter().map(|figure| figure.id.as_str()).collect();
    for name in run::command_lines::not_installed(experiment) {
        out!("  {name} is not installed here, so its server will be left out")?;
    }
    out!("  figures: {}; claims: {}", figures.join(", "), experiment.claims.len())
}

/// Names the claims that the plan of a form cannot judge among those of their document.
fn warn_of_undecidable(name: &str, experiment: &Experiment, form: &str) -> Result<(), Exit> {
    let together = library::claims_together(name, experiment);
    let claims = run::judgeable::undecidable(experiment, together);
    if claims.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = claims
        .iter()
        .map(|one| format!("'{}' ({} of {})", one.claim, one.measurements, one.needed))
        .collect();
    out!(
        "  warning: with trials = {}, the {form} form leaves {} of {} claims undecided, for too few measurements: {}",
        experiment.plan.trials,
        claims.len(),
        experiment.claims.len(),
        names.join(", "),
    )
}

/// The errors of `inrush serve`, `load` and `herd` for the flags that an experiment gives them.
fn wrong_flags(experiment: &Experiment) -> Vec<String> {
    let lines = run::command_lines::command_lines(experiment);
    let wrong = lines.into_iter().filter_map(|(whose, words)| {
        let parse = |words| Cli::try_parse_from(["inrush".to_owned()].into_iter().chain(words));
        match words.map(|words| parse(words).map_err(Exit::from)) {
            Err(message) | Ok(Err(Exit::Usage(message))) => Some(format!("{whose}: {message}")),
            Ok(Err(_)) => Some(format!("{whose}: --help and --version run nothing; leave them out")),
            Ok(Ok(Cli { command: Command::Serve(flags) })) if flags.check || flags.config.is_some() => {
                Some(format!("{whose}: --check and --config are not for experiments; leave them out"))
            }
            Ok(Ok(_)) => None,
        }
    });
    wrong.collect()
}

/// The choices that our servers in an experiment leave to the machine, in words.
fn open_choices(experiment: &Experiment) -> BTreeSet<String> {
    let left = |words: Vec<String>| {
        let words = ["inrush".to_owned()].into_iter().chain(words);
        match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Command::Serve(flags)) => crate::commands::serve::left_to_the_machine(*flags),
            _ => Vec::new(),
        }
    };
    let lines = run::command_lines::command_lines(experiment).into_iter();
    let lines = lines.filter_map(|(whose, words)| Some((whose, words.ok()?)));
    let open = |(whose, words): (String, Vec<String>)| {
        left(words).into_iter().map(move |flag| format!("{whose} has no {flag}")).collect::<Vec<_>>()
    };
    lines.flat_map(open).collect()
}

/// Each experiment in a folder of its own.
fn in_folders(experiments: &[Found], flags: &LabRunFlags) -> Vec<RunOptions> {
    let options = |found: &Found| RunOptions {
        name: found.name.clone(),
        text: found.text.clone(),
        form: if flags.quick { Form::Quick } else { Form::Full },
        trials: flags.trials.map(u32::from),
        out: flags.out.join(&found.name),
    };
    experiments.iter().map(options).collect()
}

/// Runs experiments one after another, and reports on each. SIGINT, SIGTERM and SIGHUP end the runs, but for a SIGHUP that
/// nohup(1) ignores.
pub fn carry_out(all: &[RunOptions]) -> Result<(), Exit> {
    signal::block().map_err(|error| Exit::Failed(format!("cannot take over signals: {error}")))?;
    // Checks all files first, so that a mistake in the last one does not show after an hour.
    for (place, options) in all.iter().enumerate() {
        run::experiment(options).map_err(|wrong| Exit::Usage(format!("{wrong:#}")))?;
        if all[..place].iter().any(|earlier| earlier.out == options.out) {
            return Err(Exit::Usage(format!(
                "{}: two experiments have this name, so both would write to {}; rename a file, or run them apart",
                options.name,
                options.out.display()
            )));
        }
    }
    let (clock, progress) = (RealClock::new(), Progress::on_stderr());
    let stop = std::cell::Cell::new(false);
    let interrupted = || {
        let received = signal::wait_heeding_nohup(Some(Nanos::ZERO)).ok().flatten();
        stop.set(stop.get() || received.is_some());
        stop.get()
    };
    let cpus = sys::cpu::allowed()
        .map_err(|error| Exit::Failed(format!("cannot read the list of CPUs: {error}")))?;
    let surroundings =
        Surroundings { clock: &clock, cpus: &cpus, progress: &progress, interrupted: &interrupted };
    let mut failures = Vec::new();
    for options in all {
        match run::run(options, &surroundings) {
            Ok(summary) => {
                print_summary(&options.name, &summary)?;
                match report_on(&options.out) {
                    Ok(told) => out!("{told}")?,
                    Err(error) => failures.push(format!("{}: no report: {error:#}", options.name)),
                }
                if summary.results == 0 {
                    failures.push(format!("{}: no trial has a result", options.name));
                }
            }
            Err(error) if stop.get() => return Err(Exit::Failed(format!("{error:#}"))),
            Err(error) => failures.push(format!("{}: {error:#}", options.name)),
        }
    }
    progress.finish();
    if failures.is_empty() { Ok(()) } else { Err(Exit::Failed(failures.join("; "))) }
}

/// Writes an experiment's report. Returns its findings in a few lines, with the path of the report.
fn report_on(out: &Path) -> anyhow::Result<String> {
    report::experiment::write(out)?;
    let text = report::experiment::text(&analysis::Analysed::read(out)?);
    Ok(format!("{text}  {}", where_the_report_is(out)))
}

/// Names the report, and notes if this build draws no PNG.
fn where_the_report_is(folder: &Path) -> String {
    let png = if report::DRAWS_PNG { "" } else { " (figures as SVG; PNG needs a build with --features png)" };
    format!("report: {}{png}", folder.join("report.html").display())
}

fn failed(error: anyhow::Error) -> Exit {
    Exit::Failed(format!("{error:#}"))
}

fn print_summary(name: &str, summary: &RunSummary) -> Result<(), Exit> {
    out!(
        "{name}: of {} trials {} have a result, {} of them without a flaw; records in {}",
        summary.planned,
        summary.results,
        summary.valid,
        summary.out.display()
    )?;
    summary.excluded.iter().try_for_each(|(server, reason)| out!("  {server} was left out: {reason}"))
}

fn clean() -> Result<(), Exit> {
    let cleaned = leftovers::clean();
    for gone in &cleaned.gone {
        out!("removed {gone}")?;
    }
    if cleaned.gone.is_empty() && cleaned.left.is_empty() {
        out!("nothing was left behind")?;
    }
    if cleaned.left.is_empty() { Ok(()) } else { Err(Exit::Failed(cleaned.left.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::ServerKind;

    #[test]
    fn experiments_leave_no_choice_to_the_machine() {
        for known in library::each() {
            let experiment = Experiment::parse(known.text).unwrap();
            assert_eq!(open_choices(&experiment), BTreeSet::new(), "{}", known.name);
        }
    }

    /// The flags that a server with these flags leaves open.
    fn open(flags: &[&str]) -> Vec<&'static str> {
        let mut experiment = Experiment::parse(library::DEMO.text).unwrap();
        experiment.servers.retain(|server| server.kind == ServerKind::Inrush);
        experiment.servers[0].flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let open = open_choices(&experiment);
        ["--driver", "--overload-hook"]
            .into_iter()
            .filter(|flag| open.iter().any(|line| line.ends_with(&format!(" has no {flag}"))))
            .collect()
    }

    #[test]
    fn choices_are_open_unless_a_setting_selects_them() {
        for flags in [&[][..], &["--arch", "smped"], &["--driver", "auto", "--overload-hook", "auto"]] {
            assert_eq!(open(flags), ["--driver", "--overload-hook"], "{flags:?}");
        }
        let selects = ["--driver=completion", "--dispatch=poll", "--wait=spin", "--kernel-cache=on"];
        for flag in selects.into_iter().chain(["--read-after-accept", "--arch=mt"]) {
            assert_eq!(open(&[flag]), ["--overload-hook"], "{flag}");
        }
        for flag in ["--overload=off", "--overload-hook=sink", "--overload-hook=tc"] {
            assert_eq!(open(&[flag]), ["--driver"], "{flag}");
        }
        assert_eq!(open(&["--arch=seda"]), Vec::<&str>::new());
    }
}
