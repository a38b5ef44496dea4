//! `inrush load calibrate`: measures the clean rate of this machine, prints it and keeps it.
//!
//! The target is a [`FullListener`] of this process. Kernel sockets and TCP in user space have a clean rate each.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ::load::Stop;
use ::load::calibrate::{Offered, clean_rate};
use base::{Clock, Nanos, RealClock, Seed};
use clap::Parser;
use experiment::Stack as Carrier;
use record::clean_rate::{CleanRate, SCHEMA};
use record::{LoadResult, Manifest, TopologyKind};
use stage::topology::Topology;

use super::full_listener::FullListener;
use super::placement::{Placed, place};
use super::stopping::stop_at_signal;
use super::summary::rate;
use super::{ONLY_USER, carry_out, configuration, exit};
use crate::cli::{Cli, Command, CpuList, LoadCalibrateFlags, LoadFlags, Stack};
use crate::exit::Exit;
use crate::output;

/// Measured time of a step, and its warm-up, in seconds.
const STEP_S: f64 = 1.0;
const WARMUP_S: f64 = 0.3;

/// Time after which a connect is abandoned, in seconds.
const CONNECT_TIMEOUT_S: f64 = 0.05;

/// A rate that no thread can offer, in sessions a second.
const TOO_MUCH_PER_S: f64 = 1_000_000.0;

const LOCALHOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The generator that a clean rate belongs to.
#[derive(Clone, Debug)]
pub struct Generator {
    threads: u32,
    stack: Stack,
    server_cpus: Option<CpuList>,
    /// True if the program has chosen the server's CPUs.
    has_chosen_cpus: bool,
    /// The flags of a stack with a link to another network namespace, in place of `stack` alone.
    link: Vec<String>,
}

impl Generator {
    /// The generator of these flags.
    pub fn of(flags: &LoadFlags) -> Generator {
        let LoadFlags { threads, stack, server_cpus, .. } = flags;
        Generator { threads: threads.get(), server_cpus: server_cpus.clone(), ..Generator::of_stack(*stack) }
    }

    /// The generator to calibrate. Over TUN it gets CPUs of its own, as in a run.
    fn placed(flags: &LoadCalibrateFlags) -> Result<Generator, Exit> {
        let LoadCalibrateFlags { threads, stack, server_cpus, .. } = flags;
        let generator = Generator {
            threads: threads.get(),
            server_cpus: server_cpus.clone(),
            ..Generator::of_stack(*stack)
        };
        match (stack, server_cpus) {
            (Stack::Kernel, Some(_)) => Err(Exit::Usage(format!("--server-cpus {ONLY_USER}"))),
            (Stack::User, None) => {
                let Placed { server, remark } = place(*threads)?;
                sys::say!("inrush: {remark}");
                Ok(Generator { has_chosen_cpus: server.is_some(), server_cpus: server, ..generator })
            }
            _ => Ok(generator),
        }
    }

    /// A generator over kernel sockets.
    pub fn of_kernel(threads: u32) -> Generator {
        Generator { threads, ..Generator::of_stack(Stack::Kernel) }
    }

    /// One thread with TCP in user space, over TUN.
    pub fn of_user() -> Generator {
        Generator::of_stack(Stack::User)
    }

    fn of_stack(stack: Stack) -> Generator {
        Generator { threads: 1, stack, server_cpus: None, has_chosen_cpus: false, link: Vec::new() }
    }

    /// Its TCP, as the record names it.
    fn tcp(&self) -> String {
        match (self.stack, &self.server_cpus) {
            (Stack::Kernel, _) => "kernel".to_owned(),
            (Stack::User, None) => "user".to_owned(),
            (Stack::User, Some(cpus)) => format!("user, server on CPUs {cpus}"),
        }
    }
}

/// Measures, prints and stores the clean rate.
pub fn run(flags: &LoadCalibrateFlags) -> Result<(), Exit> {
    let generator = Generator::placed(flags)?;
    let listener = listen(LOCALHOST)?;
    let (stop, threads) = (stop_at_signal()?, generator.threads);
    let offer = |per_s: f64, processes: u32| step(&listener, &generator, per_s, processes, &stop);
    let (clean_per_s, trials) = clean_rate(threads, offer)?;
    let manifest = Manifest::of_this_machine(RealClock::new().wall(), Default::default(), None::<Seed>);
    let found = CleanRate {
        schema: SCHEMA.to_owned(),
        clean_per_s,
        threads,
        stack: generator.tcp(),
        trials,
        manifest,
    };
    output::result("the result", flags.output, &found, || text(&found))?;
    if clean_per_s <= 0.0 {
        return Err(Exit::GeneratorLimited(
            "no rate is clean here: the machine is too busy, or too small".to_owned(),
        ));
    }
    keep(&found, generator.stack)
}

/// Offers far too much over TUN for a moment, from one thread. Returns the connects a second that arrived.
///
/// # Errors
/// The errors of a run.
pub fn most_over_tun() -> Result<f64, Exit> {
    Ok(step(&listen(LOCALHOST)?, &Generator::of_user(), TOO_MUCH_PER_S, 1, &Stop::new())?.arrived_per_s)
}

/// As [`most_over_tun`] over AF_XDP, on a link between two network namespaces that are gone afterwards.
///
/// # Errors
/// The errors of a run, and a machine without network namespaces.
pub fn most_over_af_xdp() -> Result<f64, Exit> {
    let failed = |error: io::Error| Exit::Failed(format!("cannot make a link to measure: {error}"));
    let topology = Topology::best().map_err(failed)?;
    if topology.kind != TopologyKind::Namespaces {
        return Err(Exit::Failed(topology.warnings.join(" ")));
    }
    let link = topology.place_of_connections(Carrier::AfXdp);
    let generator = Generator { link, ..Generator::of_user() };
    let listener = topology.server.enter(|| Ok(listen(topology.server.addresses[0]))).map_err(failed)??;
    let offer = || Ok(step(&listener, &generator, TOO_MUCH_PER_S, 1, &Stop::new()));
    Ok(topology.client.enter(offer).map_err(failed)??.arrived_per_s)
}

/// The stored result of an earlier calibration, if it holds for this generator on this machine.
pub fn kept(generator: &Generator) -> Option<CleanRate> {
    let path = path(generator.stack)?;
    let found: CleanRate = record::file::read(&path).ok()?;
    let here = Manifest::of_this_machine(RealClock::new().wall(), Default::default(), None::<Seed>);
    found.holds_for(generator.threads, &generator.tcp(), &here).then_some(found)
}

fn listen(address: Ipv4Addr) -> Result<FullListener, Exit> {
    FullListener::listen((address, 0).into())
}

/// Offers a rate for a moment, with the flags of a user, and counts the arrivals.
fn step(
    listener: &FullListener,
    generator: &Generator,
    per_s: f64,
    processes: u32,
    stop: &Stop,
) -> Result<Offered, Exit> {
    let arguments = arguments(listener.address()?, generator, per_s, processes);
    let Command::Load(mut flags) = Cli::try_parse_from(&arguments)?.command else {
        unreachable!("the arguments are those of load")
    };
    flags.has_chosen_cpus = generator.has_chosen_cpus;
    let plan = ::load::prepare(configuration(*flags)).map_err(exit)?;
    let before = listener.dropped()?;
    let arguments: Vec<_> = arguments.iter().map(Into::into).collect();
    let result = carry_out(&plan, &arguments, &mut |_: &::load::Snapshot<'_>| {}, stop)?;
    if stop.is_requested() {
        return Err(Exit::Failed("interrupted; what was kept of an earlier calibration stays".to_owned()));
    }
    Ok(offered(&result, listener.dropped()?.wrapping_sub(before)))
}

fn arguments(address: SocketAddr, generator: &Generator, per_s: f64, processes: u32) -> Vec<String> {
    let Generator { threads, stack, server_cpus, link, .. } = generator;
    let stack = match stack {
        _ if !link.is_empty() => None,
        Stack::Kernel => Some("--stack=kernel".to_owned()),
        Stack::User => Some("--stack=user".to_owned()),
    };
    let server_cpus = server_cpus.iter().map(|cpus| format!("--server-cpus={cpus}"));
    let always = [
        "inrush".to_owned(),
        "load".to_owned(),
        format!("http://{address}/"),
        format!("--rate={per_s}"),
        format!("--duration={}ms", STEP_S * 1e3),
        format!("--warmup={}ms", WARMUP_S * 1e3),
        // The listener answers nothing, so a short timeout keeps D small, and the number of descriptors with
        // it. Half as much again covers stalls as long as lateness may be.
        format!("--connect-timeout={}ms", CONNECT_TIMEOUT_S * 1e3),
        format!("--sockets={}", (per_s * CONNECT_TIMEOUT_S * 1.5).ceil() as u64 + 64),
        format!("--threads={threads}"),
        format!("--processes={processes}"),
    ];
    always.into_iter().chain(stack).chain(server_cpus).chain(link.iter().cloned()).collect()
}

fn offered(result: &LoadResult, arrived: u32) -> Offered {
    Offered {
        arrived_per_s: f64::from(arrived) / (STEP_S + WARMUP_S),
        lateness_p99_ns: result.lateness_ns.p99,
        generator_cpu: result.generator_cpu,
        kept_up: result.verdict.is_valid(),
    }
}

fn text(found: &CleanRate) -> String {
    let mut out = format!(
        "{:<12} {:>9} {:>12} {:>13} {:>7}\n",
        "sessions", "processes", "arrived", "lateness p99", "cores"
    );
    for trial in &found.trials {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<12} {:>9} {:>12} {:>13} {:>7.2}{}",
            rate(trial.per_s),
            trial.processes,
            rate(trial.arrived_per_s),
            Nanos(trial.lateness_p99_ns).approximate(),
            trial.generator_cpu,
            if trial.clean { "" } else { "  not clean" },
        );
    }
    let threads =
        if found.threads == 1 { "one thread".to_owned() } else { format!("{} threads", found.threads) };
    let clean = rate(found.clean_per_s);
    let _ = writeln!(out, "\nclean rate   {clean} from {threads}, a connect each; TCP: {}", found.stack);
    out
}

/// The file of the stored result, with the user's other state (XDG base directories).
fn path(stack: Stack) -> Option<PathBuf> {
    let name = match stack {
        Stack::Kernel => "clean-rate.json",
        Stack::User => "clean-rate-user.json",
    };
    Some(state_folder()?.join(name))
}

/// The folder of this program's state.
pub fn state_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("inrush"))
}

fn keep(found: &CleanRate, stack: Stack) -> Result<(), Exit> {
    let Some(path) = path(stack) else {
        return Err(Exit::Failed(
            "the clean rate is not kept: neither XDG_STATE_HOME nor HOME is set".to_owned(),
        ));
    };
    let failed = |error: &dyn std::fmt::Display| Exit::Failed(format!("cannot keep the clean rate: {error}"));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    }
    record::file::write(&path, found).map_err(|error| failed(&error))?;
    sys::say!("inrush: kept in {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::choose_cpus;
    use super::*;
    use crate::cli::LoadCommand;

    fn load_flags(arguments: &[&str]) -> Box<LoadFlags> {
        match Cli::try_parse_from(["inrush", "load"].iter().chain(arguments)).unwrap().command {
            Command::Load(flags) => flags,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn calibrated_stack_is_that_of_a_run() {
        // Each ties a thread to the CPUs that it chooses.
        let calibrated = thread::spawn(|| {
            let Some(LoadCommand::Calibrate(flags)) = load_flags(&["calibrate", "--stack=user"]).command
            else {
                panic!("calibrate is another command");
            };
            Generator::placed(&flags).unwrap().tcp()
        });
        let run = thread::spawn(|| {
            let mut flags = load_flags(&["http://127.0.0.1/", "--stack=user"]);
            choose_cpus(&mut flags).unwrap();
            Generator::of(&flags).tcp()
        });
        assert_eq!(calibrated.join().unwrap(), run.join().unwrap());
    }

    #[test]
    fn the_flags_of_a_step_are_flags() {
        let address = "127.0.0.1:80".parse().unwrap();
        let steered = Generator { server_cpus: Some(CpuList(vec![0, 2])), ..Generator::of_user() };
        let link =
            ["--stack=user", "--link=af-xdp:client", "--source-net=10.0.0.0/16", "--i-own-this-server"];
        let linked = Generator { link: link.map(str::to_owned).into(), ..Generator::of_user() };
        for generator in [Generator::of_kernel(2), Generator::of_user(), steered, linked] {
            for per_s in [2_000.0, 1_234.567_8, TOO_MUCH_PER_S] {
                let parsed = Cli::try_parse_from(arguments(address, &generator, per_s, 1));
                let Ok(Cli { command: Command::Load(flags), .. }) = parsed else { panic!("{parsed:?}") };
                assert_eq!(Generator::of(&flags).tcp(), generator.tcp());
            }
        }
    }
}
