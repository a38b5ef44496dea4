//! `inrush fleet`: serves as an agent, or carries out a run with a fleet. [`calibrate`] is a search of many short runs.

mod calibrate;

use std::num::NonZeroU32;

use ::fleet::{Access, AgentSettings, FleetError, LocalFleet};
use base::PerSecond;
use clap::Parser;
use sys::say;

use crate::cli::{Cli, Command, FleetAgentFlags, FleetCommand, FleetFlags, FleetRunFlags, NatsFlags};
use crate::commands::load::{self, stop_at_signal};
use crate::config_file;
use crate::exit::Exit;

/// Carries out the task of the flags.
pub fn run(flags: FleetFlags) -> Result<(), Exit> {
    match flags.command {
        FleetCommand::Agent(flags) => serve(flags),
        FleetCommand::Run(flags) => offer(flags),
        FleetCommand::Calibrate(flags) => calibrate::run(flags),
    }
}

fn serve(flags: FleetAgentFlags) -> Result<(), Exit> {
    let kept = load::state_folder()
        .ok_or_else(|| Exit::Usage("an agent keeps results: set XDG_STATE_HOME or HOME".to_owned()))?;
    let settings = AgentSettings {
        access: access(flags.nats)?,
        name: flags.name,
        once: flags.once,
        kept: kept.join("fleet"),
        clean_rate: |threads| Some(PerSecond(load::clean_rate(&load::Generator::of_kernel(threads))?)),
    };
    let stop = stop_at_signal()?;
    let name = settings.name.clone();
    ::fleet::serve(&settings, &stop, &|remark| say!("inrush: {name}: {remark}")).map_err(exit)
}

fn offer(flags: FleetRunFlags) -> Result<(), Exit> {
    let words = [std::ffi::OsString::from("inrush")].into_iter().chain(flags.load);
    let Command::Load(run) = Cli::try_parse_from(config_file::expand(words.collect())?)?.command else {
        return Err(Exit::Usage("a fleet carries out only load; give it after --: -- load URL".to_owned()));
    };
    let agents = flags.local.or(flags.agents).unwrap_or(NonZeroU32::MIN);
    let remote = match flags.local {
        None => Some(access(flags.nats)?),
        Some(_) => {
            check_local(&flags.nats)?;
            None
        }
    };
    load::offer_from_fleet(*run, agents, |config, plan, observer, stop| {
        // A local fleet ends with the run.
        let (local, access);
        let access = match &remote {
            Some(remote) => remote,
            None => {
                let program = sys::process::this_program()
                    .map_err(|error| Exit::Failed(format!("cannot find this program's own file: {error}")))?;
                local = LocalFleet::start(&program, agents.get()).map_err(exit)?;
                access = local.access.clone();
                &access
            }
        };
        ::fleet::run(access, config, plan, observer, stop).map_err(exit)
    })
}

/// Refuses --nats for a local fleet. NATS_URL may be set for other runs.
fn check_local(flags: &NatsFlags) -> Result<(), Exit> {
    match &flags.nats {
        Some(url) if std::env::var("NATS_URL").as_ref() != Ok(url) => {
            Err(Exit::Usage("--local starts a nats-server of its own; leave --nats out".to_owned()))
        }
        _ => Ok(()),
    }
}

fn access(flags: NatsFlags) -> Result<Access, Exit> {
    let missing = "--nats is missing: expected a URL such as nats://HOST:4222, here or in NATS_URL";
    let access = Access {
        url: flags.nats.ok_or_else(|| Exit::Usage(missing.to_owned()))?,
        creds: flags.creds,
        tls_ca: flags.tlsca,
        tls_identity: flags.tlscert.zip(flags.tlskey),
    };
    access.check().map_err(exit)?;
    Ok(access)
}

fn exit(error: FleetError) -> Exit {
    match error {
        FleetError::Load(error) => load::exit(error),
        FleetError::Access(_)
        | FleetError::Settings(_)
        | FleetError::NotYours(_)
        | FleetError::NameTaken(_) => Exit::Usage(error.to_string()),
        _ => Exit::Failed(error.to_string()),
    }
}
