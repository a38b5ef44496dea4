//! `inrush load`: turns flags into a configuration, carries out the run, and prints its output.
//!
//! The modules: `outputs` writes results, `summary` and `hdr_log` have formats of their own. `live` is the live view,
//! and `watch` hands each interval to all outputs. `dry_run`, `calibrate` and `compare` are tasks beside a run.
//! `full_listener` is the target of a calibration, and `facilities` has the rates of this machine. `stopping`
//! ends a run at a signal.

mod calibrate;
mod compare;
mod dry_run;
mod facilities;
mod full_listener;
mod hdr_log;
mod live;
mod outputs;
mod placement;
mod stopping;
pub mod summary;
mod watch;

use std::ffi::OsString;
use std::io;
use std::num::NonZeroU32;

use ::load::{
    Assignment, Config, Link, LinkError, LoadError, Observer, Plan, Process, Processes, RequestFile, Sockets,
    Stop, Threshold, Url,
};
use base::{PerSecond, RealClock};
use record::{LoadResult, Verdict};
use sys::process::Program;
use sys::say;

use crate::cli::{Client, LoadCommand, LoadFlags, Output, OutputTo, Stack, WatchFlags};
use crate::exit::Exit;
pub use calibrate::{Generator, state_folder};
pub use facilities::findings;
pub use full_listener::FullListener;
use placement::{Placed, place};
pub use stopping::stop_at_signal;
use watch::Watcher;

/// Default number of clients of a closed loop, as wrk users expect.
const CLOSED_CLIENTS: NonZeroU32 = NonZeroU32::new(64).expect("64 is not 0");

/// Carries out the task of the flags: a run, a dry run, or one of the other commands. Other processes of a run are started
/// with `arguments`.
pub fn run(flags: LoadFlags, arguments: &[OsString]) -> Result<(), Exit> {
    let flags = flags.with_spike()?;
    match flags.command {
        Some(LoadCommand::Compare(flags)) => return compare::run(&flags),
        Some(LoadCommand::Report(flags)) => return outputs::report(&flags),
        Some(LoadCommand::Calibrate(flags)) => return calibrate::run(&flags),
        None => {}
    }
    check_stack(&flags)?;
    flags.request.check()?;
    check_cleartext(flags.tls.first_setting(), &flags.urls)?;
    if let Some(assignment) = flags.part {
        return run_assignment(flags, assignment);
    }
    check_rate(&flags)?;
    check_processes(&flags)?;
    if flags.dry_run { plan(flags) } else { offer(flags, arguments) }
}

/// Prints the plan of a run. Files that the run would write are left out.
fn plan(flags: LoadFlags) -> Result<(), Exit> {
    let mut outputs = flags.output.clone();
    outputs.retain(|output| output.file.is_none());
    let output = match outputs[..] {
        [] => Output::Text,
        [OutputTo { form: form @ (Output::Text | Output::Json), .. }] => form,
        _ => {
            let why = "--dry-run has no series to write; expected --output text or json";
            return Err(Exit::Usage(why.to_owned()));
        }
    };
    dry_run::print(&prepare(flags)?, output)
}

fn prepare(flags: LoadFlags) -> Result<Plan, Exit> {
    // The clean rate was measured with an open loop over HTTP/1.1, and over TUN in user space.
    let is_over_tun = matches!(flags.link, None | Some(Link::Tun));
    let calibrated = (flags.client == Client::Open
        && is_over_tun
        && !flags.request.http2
        && flags.request.connections.is_none())
    .then(|| calibrate::kept(&Generator::of(&flags)))
    .flatten();
    let clean_rate = calibrated.map(|kept| PerSecond(kept.clean_per_s));
    ::load::prepare(Config { clean_rate, ..configuration(flags) }).map_err(exit)
}

/// Offers load, prints the result, and judges it.
fn offer(mut flags: LoadFlags, arguments: &[OsString]) -> Result<(), Exit> {
    let mut arguments = arguments.to_vec();
    let placed = choose_cpus(&mut flags)?;
    if let Some(cpus) = flags.server_cpus.as_ref().filter(|_| flags.has_chosen_cpus) {
        // The processes of a run do not choose again.
        arguments.insert(2, format!("--server-cpus={cpus}").into());
    }
    let outputs = Outputs::of(&flags)?;
    let plan = prepare(flags)?;
    check_names("--fail-if", &outputs.thresholds, &plan)?;
    placed.iter().for_each(|placed| say!("inrush: {}", placed.remark));
    outputs.watch(&plan, |observer, stop| carry_out(&plan, &arguments, observer, stop))
}

/// Chooses the CPUs of TCP in user space over TUN, unless the user has.
fn choose_cpus(flags: &mut LoadFlags) -> Result<Option<Placed>, Exit> {
    let is_over_tun = flags.stack == Stack::User && matches!(flags.link, None | Some(Link::Tun));
    if !is_over_tun || flags.server_cpus.is_some() {
        return Ok(None);
    }
    let placed = place(flags.threads)?;
    (flags.has_chosen_cpus, flags.server_cpus) = (placed.server.is_some(), placed.server.clone());
    Ok(Some(placed))
}

/// Offers load from the agents of a fleet, which `carry_out` leads.
pub fn offer_from_fleet(
    flags: LoadFlags,
    agents: NonZeroU32,
    carry_out: impl FnOnce(&Config, &Plan, &mut dyn Observer, &Stop) -> Result<LoadResult, Exit>,
) -> Result<(), Exit> {
    let flags = flags.with_spike()?;
    check_fleet(&flags)?;
    flags.request.check()?;
    check_cleartext(flags.tls.first_setting(), &flags.urls)?;
    check_rate(&flags)?;
    let outputs = Outputs { agents: agents.get() as usize, ..Outputs::of(&flags)? };
    let (config, plan) = prepare_for_fleet(flags, agents)?;
    check_names("--fail-if", &outputs.thresholds, &plan)?;
    outputs.watch(&plan, |observer, stop| carry_out(&config, &plan, observer, stop))
}

/// The plan of a run by agents, and its configuration.
pub fn prepare_for_fleet(flags: LoadFlags, agents: NonZeroU32) -> Result<(Config, Plan), Exit> {
    let config = Config { processes: Processes::Agents(agents), ..configuration(flags) };
    let plan = ::load::prepare(config.clone()).map_err(exit)?;
    Ok((config, plan))
}

/// The outputs that the flags ask for.
struct Outputs {
    outputs: Vec<OutputTo>,
    thresholds: Vec<Threshold>,
    watching: WatchFlags,
    title: String,
    populations: usize,
    /// The agents of a fleet; 0 on one machine.
    agents: usize,
}

impl Outputs {
    /// Checks that they can be written.
    fn of(flags: &LoadFlags) -> Result<Outputs, Exit> {
        outputs::check(&flags.output)?;
        Ok(Outputs {
            outputs: flags.output.clone(),
            thresholds: flags.fail_if.clone(),
            watching: flags.watching.clone(),
            title: title(flags),
            populations: flags.population.len(),
            agents: 0,
        })
    }

    /// Watches a run, prints the result, and judges it.
    fn watch(
        self,
        plan: &Plan,
        carry_out: impl FnOnce(&mut dyn Observer, &Stop) -> Result<LoadResult, Exit>,
    ) -> Result<(), Exit> {
        let too_early = ::load::round_trip_warning(plan, &RealClock::new());
        for warning in plan.warnings().iter().chain(&too_early) {
            say!("inrush: {warning}");
        }
        if let Some((shown, expected)) = plan.hurst() {
            say!("inrush: {}", hurst_line(shown, expected));
        }
        // This comes before any thread starts: a signal that a thread does not block would kill the process.
        let stop = stop_at_signal()?;
        let Outputs { outputs, thresholds, watching, title, populations, agents } = self;
        let mut watcher = Watcher::new(
            tells_points(&outputs),
            &title,
            (populations, agents),
            plan.tempo(),
            &stop,
            watching,
        )?;
        let result = carry_out(&mut watcher, &stop);
        // In any case the terminal gets its cursor back.
        let watched = watcher.end();
        let mut result = result?;
        result.balance().map_err(|error| Exit::Failed(error.to_string()))?;
        ::load::fail_if::judge_all(&thresholds, &mut result);
        outputs::write(&result, &outputs)?;
        watched?;
        judge(&result)
    }
}

/// Refuses a threshold of this flag for requests of a name that none has.
pub fn check_names(flag: &str, thresholds: &[Threshold], plan: &Plan) -> Result<(), Exit> {
    let names = plan.request_names();
    let mut about = thresholds.iter().filter_map(|threshold| Some((threshold, threshold.request()?)));
    match about.find(|(_, name)| !names.iter().any(|known| known == name)) {
        None => Ok(()),
        Some((threshold, name)) => Err(Exit::Usage(format!(
            "{flag} '{threshold}': no request has the name '{name}'; known are {}",
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        ))),
    }
}

/// Refuses settings that belong to one machine.
fn check_fleet(flags: &LoadFlags) -> Result<(), Exit> {
    let task = flags.command.as_ref().map(LoadCommand::name);
    let settings = [
        ("--dry-run", flags.dry_run),
        ("--part", flags.part.is_some()),
        ("--client s-client-pair", flags.client == Client::Pair),
        ("--processes", flags.processes != Processes::Auto),
        ("--stack user", flags.stack == Stack::User || flags.link.is_some() || flags.source_net.is_some()),
        ("--server-cpus", flags.server_cpus.is_some()),
        ("--source-ip", flags.source_ip.is_some()),
        ("--cert", flags.tls.cert.is_some()),
        ("--requests", flags.request.requests.is_some()),
    ];
    let setting = settings.into_iter().find_map(|(setting, is_given)| is_given.then_some(setting));
    match task.or(setting) {
        Some(given) => Err(Exit::Usage(format!("{given} is for one machine; leave it out of a fleet's run"))),
        None => Ok(()),
    }
}

/// The clean rate of this generator on this machine, if it has been measured.
pub fn clean_rate(generator: &Generator) -> Option<f64> {
    calibrate::kept(generator).map(|kept| kept.clean_per_s)
}

/// Runs one of the processes of a run.
fn run_assignment(flags: LoadFlags, assignment: Assignment) -> Result<(), Exit> {
    let plan = ::load::prepare(configuration(flags)).map_err(exit)?;
    // A handler ends with its establisher, or by the signal.
    let stop = if assignment.is_handler() { Stop::new() } else { stop_at_signal()? };
    ::load::run_assignment(&plan, assignment, &mut io::stdout().lock(), &stop).map_err(exit)
}

/// Carries out a run in this process, or in as many processes as it needs.
fn carry_out(
    plan: &Plan,
    arguments: &[OsString],
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<LoadResult, Exit> {
    if plan.processes() == 1 && !plan.is_pair() {
        return ::load::run(plan, observer, stop).map_err(exit);
    }
    let program = sys::process::this_program()
        .map_err(|error| Exit::Failed(format!("cannot find this program's own file: {error}")))?;
    let (load, flags) = arguments[1..].split_first().expect("the command line has this command");
    // The user's flags may end with two dashes and the URLs, so the part stands in front of them.
    let command = |assignment: Assignment| {
        Program::new(&program).arguments([load]).arguments([format!("--part={assignment}")]).arguments(flags)
    };
    ::load::run_in_processes(plan, &command, observer, stop).map_err(exit)
}

/// Refuses --rate and --arrivals if the client has no use for them, and --rate if the arrivals have none.
fn check_rate(flags: &LoadFlags) -> Result<(), Exit> {
    const WHY: &str = "because it waits for the server; use --sockets";
    let LoadFlags { client, arrivals, .. } = flags;
    let wrong = match (client, flags.rate) {
        (Client::Closed, Some(rate)) => format!("--rate {rate}: a closed loop has no rate, {WHY}"),
        (Client::Closed, None) if *arrivals != Process::constant() => {
            format!("--arrivals {arrivals}: a closed loop has no arrivals, {WHY}")
        }
        (Client::Open | Client::Pair, Some(rate)) if arrivals.has_own_rate() => {
            format!("--rate {rate}: {arrivals} has rates of its own; leave --rate out")
        }
        _ => return check_times(flags),
    };
    Err(Exit::Usage(wrong))
}

/// Refuses other times for requests that have times of their own. Those of a recording can be left out.
fn check_times(flags: &LoadFlags) -> Result<(), Exit> {
    let Some(file) = flags.request.requests.as_ref().filter(|file| !file.is_recording()) else {
        return Ok(());
    };
    let has_times = flags.urls.first().is_some_and(|url| file.has_times(url));
    let given = match flags {
        LoadFlags { rate: Some(rate), .. } => format!("--rate {rate}"),
        LoadFlags { client: Client::Closed, .. } => "--client closed".to_owned(),
        LoadFlags { arrivals, .. } if *arrivals != Process::constant() => format!("--arrivals {arrivals}"),
        _ => return Ok(()),
    };
    if !has_times {
        return Ok(());
    }
    Err(Exit::Usage(format!(
        "{given}: the requests of --requests have times of their own (\"at\"); leave {given} out"
    )))
}

/// Tells whether each interval is written to standard output during the run.
fn tells_points(outputs: &[OutputTo]) -> bool {
    outputs.contains(&OutputTo { form: Output::Ndjson, file: None })
}

/// Why the kernel's stack refuses a setting.
const ONLY_USER: &str = "is for TCP in user space; add --stack user";

/// Refuses settings of one TCP stack that the other would silently ignore.
fn check_stack(flags: &LoadFlags) -> Result<(), Exit> {
    match flags {
        LoadFlags { stack: Stack::Kernel, link: Some(link), .. } => {
            Err(Exit::Usage(format!("--link {link} {ONLY_USER}")))
        }
        LoadFlags { stack: Stack::Kernel, source_net: Some(net), .. } => {
            Err(Exit::Usage(format!("--source-net {net} {ONLY_USER}")))
        }
        LoadFlags { stack: Stack::Kernel, server_cpus: Some(_), .. } => {
            Err(Exit::Usage(format!("--server-cpus {ONLY_USER}")))
        }
        _ => Ok(()),
    }
}

/// Refuses a setting of TLS for a server in cleartext.
pub fn check_cleartext(setting: Option<&str>, urls: &[Url]) -> Result<(), Exit> {
    match (setting, urls.iter().find(|url| !url.is_secure())) {
        (Some(setting), Some(url)) => {
            Err(Exit::Usage(format!("{setting} is for https; leave it out of a run against {url}")))
        }
        _ => Ok(()),
    }
}

/// Refuses --processes with a pair, which always has two processes.
fn check_processes(flags: &LoadFlags) -> Result<(), Exit> {
    match (flags.client, flags.processes) {
        (Client::Pair, processes @ Processes::Count(_)) => Err(Exit::Usage(format!(
            "--processes {processes}: s-client-pair is two, an establisher and a handler; leave --processes out"
        ))),
        _ => Ok(()),
    }
}

fn hurst_line(shown: Option<f64>, expected: f64) -> String {
    match shown {
        Some(shown) => {
            format!("the Hurst parameter of this schedule is {shown:.2}, of the process {expected:.2}")
        }
        None => format!(
            "the Hurst parameter of the process is {expected:.2}; this schedule is too short to estimate its own"
        ),
    }
}

/// The title of the live view: the target and the load.
fn title(flags: &LoadFlags) -> String {
    let more =
        if flags.urls.len() > 1 { format!(" and {} more", flags.urls.len() - 1) } else { String::new() };
    let how = match flags.client {
        Client::Open | Client::Pair if flags.arrivals.has_own_rate() => flags.arrivals.to_string(),
        Client::Open | Client::Pair if replayed(flags).is_some() => "requests at their own times".to_owned(),
        Client::Open | Client::Pair => match pending(flags) {
            Some(connects) => format!("{connects} connects pending"),
            None => {
                let over =
                    flags.request.connections.map(|connections| format!(" over {connections} connections"));
                format!(
                    "{} {}{}",
                    flags.rate.unwrap_or(LoadFlags::RATE),
                    flags.arrivals,
                    over.unwrap_or_default()
                )
            }
        },
        Client::Closed => "closed loop".to_owned(),
    };
    format!("{}{more}  {how}", flags.urls[0])
}

/// The connects of an S-client without a rate.
fn pending(flags: &LoadFlags) -> Option<NonZeroU32> {
    match flags.sockets {
        Sockets::AtMost(connects)
            if flags.rate.is_none() && flags.arrivals == Process::constant() && replayed(flags).is_none() =>
        {
            Some(connects)
        }
        _ => None,
    }
}

/// The file of --requests and its server, if the run makes the requests at their own times.
fn replayed(flags: &LoadFlags) -> Option<(&RequestFile, &Url)> {
    let LoadFlags { client: Client::Open | Client::Pair, rate: None, arrivals, urls, .. } = flags else {
        return None;
    };
    let file = flags.request.requests.as_ref().filter(|_| *arrivals == Process::constant())?;
    let url = urls.first()?;
    file.has_times(url).then_some((file, url))
}

fn configuration(flags: LoadFlags) -> Config {
    let client = match (flags.client, flags.sockets) {
        (Client::Open | Client::Pair, sockets) => match pending(&flags) {
            Some(connects) => ::load::Client::Pending { connects },
            None => {
                let rate = flags.rate.unwrap_or(LoadFlags::RATE);
                let replay = replayed(&flags).and_then(|(file, url)| file.replay(url));
                let arrivals = replay.map_or(flags.arrivals, |replay| Process::replay(&replay));
                ::load::Client::SClient { rate, arrivals, sockets }
            }
        },
        (Client::Closed, Sockets::Auto) => ::load::Client::Closed { clients: CLOSED_CLIENTS },
        (Client::Closed, Sockets::AtMost(clients)) => ::load::Client::Closed { clients },
    };
    let mut config = Config {
        threads: flags.threads,
        duration: flags.duration,
        warmup: flags.warmup,
        retry: flags.retry,
        populations: flags.population,
        addressing: flags.reach.addressing(),
        tls: flags.tls.options(),
        seed: flags.seed,
        source: flags.source_ip,
        stack: match flags.stack {
            Stack::Kernel => ::load::Stack::Kernel,
            Stack::User => ::load::Stack::User {
                link: flags.link.unwrap_or_default(),
                net: flags.source_net,
                server_cpus: flags.server_cpus.map_or_else(Vec::new, |list| list.0),
                must_steer: !flags.has_chosen_cpus,
            },
        },
        processes: match flags.client {
            Client::Pair => Processes::Pair,
            Client::Open | Client::Closed => flags.processes,
        },
        own_this_server: flags.i_own_this_server,
        ..flags.request.apply(Config::new(flags.urls, client))
    };
    config.expected.deadline = flags.deadline;
    config
}

fn judge(result: &LoadResult) -> Result<(), Exit> {
    match result.verdict {
        Verdict::Unreachable => Err(Exit::Unreachable(result.reasons.join(" "))),
        Verdict::NotMeasured => {
            Err(Exit::Failed(format!("nothing was measured: {}", result.reasons.join(" "))))
        }
        Verdict::GeneratorLimited => Err(Exit::GeneratorLimited(format!(
            "the generator was the limit, so the result is not valid: {}",
            result.reasons.join(" ")
        ))),
        Verdict::Valid | Verdict::Degraded => {
            let crossed = result.thresholds.iter().filter(|judged| judged.crossed);
            let crossed: Vec<String> =
                crossed.map(|judged| format!("{}: measured {}", judged.threshold, judged.measured)).collect();
            match result.total_failure() {
                Some(cause) => Err(Exit::Threshold(format!("every request failed: {cause}"))),
                None if crossed.is_empty() => Ok(()),
                None => Err(Exit::Threshold(crossed.join("; "))),
            }
        }
    }
}

/// The exit for an error of the generator.
pub fn exit(error: LoadError) -> Exit {
    match error {
        LoadError::Resolve { .. } | LoadError::Link(LinkError::NoNeighbour { .. }) => {
            Exit::Unreachable(error.to_string())
        }
        LoadError::System { .. } | LoadError::Link(LinkError::System { .. } | LinkError::Program(_)) => {
            Exit::Failed(error.to_string())
        }
        _ => Exit::Usage(error.to_string()),
    }
}
