//! `inrush wan`: turns flags into a path, and prints the path's report as text or JSON.
//!
//! The command keeps its own streams. The path's report goes to a place where it does not mix with the
//! command's output.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use ::wan::check::{CheckConfig, check as check_path};
use ::wan::{
    CLIENT_ADDRESS, Changes, Conditions, Engine, Network, PathConfig, SERVER_ADDRESS, SessionConfig, WanError,
};
use serde::Serialize;
use sys::say;

use crate::cli::{PathFlags, TextOrJson, WanCheckFlags, WanCommand, WanFlags, WanRunFlags};
use crate::exit::Exit;
use crate::output;

/// Runs a command over a path, or checks a path.
pub fn run(flags: WanFlags) -> Result<(), Exit> {
    match flags.command {
        WanCommand::Run(flags) => run_command(flags),
        WanCommand::Check(flags) => check(&flags),
    }
}

fn run_command(flags: WanRunFlags) -> Result<(), Exit> {
    let path = path(&flags.path)?;
    // After the run, a wrong name would cost the report and the command's exit code.
    let file = flags.report.map(|name| match output::open_early(&name) {
        Ok((file, is_new)) => Ok((file, name, is_new)),
        Err(error) => Err(Exit::Usage(unwritable(&name, &error))),
    });
    let file = file.transpose()?;
    let config = SessionConfig { path, server: flags.server, command: flags.command };
    let report = ::wan::run(config, print_addresses).map_err(|error| {
        if let Some((_, name, true)) = &file {
            // The error of the run is the one to name.
            let _ = std::fs::remove_file(name);
        }
        exit(error)
    })?;
    let text = match flags.output {
        TextOrJson::Text => report.text(),
        TextOrJson::Json => json(&report)?,
    };
    match (file, flags.output) {
        (Some((mut file, name, _)), _) => {
            replace(&mut file, &text).map_err(|error| Exit::Failed(unwritable(&name, &error)))?;
        }
        (None, TextOrJson::Text) => say!("{}", text.trim_end()),
        (None, TextOrJson::Json) => output::text("the path's report", &text)?,
    }
    match report.exit_code {
        None | Some(0) => Ok(()),
        Some(code) => Err(Exit::OfCommand(code)),
    }
}

fn replace(file: &mut File, text: &str) -> io::Result<()> {
    // A pipe or a terminal has no length.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())
}

fn unwritable(file: &Path, error: &io::Error) -> String {
    format!("--report {}: cannot write the path's report: {error}", file.display())
}

fn check(flags: &WanCheckFlags) -> Result<(), Exit> {
    let config = CheckConfig { path: path(&flags.path)?, probes: flags.probes, interval: flags.every };
    let checked = check_path(config).map_err(exit)?;
    output::result("the result", flags.output, &checked, || checked.text())
}

fn path(flags: &PathFlags) -> Result<PathConfig, Exit> {
    if let (Engine::Netem, Some(cpu)) = (flags.engine, flags.cpu) {
        return Err(Exit::Usage(format!("--cpu {cpu} ties the router; leave it out with --engine netem")));
    }
    let both = Changes {
        delay: flags.delay,
        jitter: flags.jitter,
        loss: flags.loss,
        reorder: flags.reorder,
        rate: flags.rate,
        queue: flags.queue,
    };
    Ok(PathConfig {
        up: conditions("client to server", &flags.up, &both)?,
        down: conditions("server to client", &flags.down, &both)?,
        engine: flags.engine,
        seed: flags.seed,
        router_cpu: flags.cpu,
    })
}

fn conditions(direction: &str, own: &Changes, both: &Changes) -> Result<Conditions, Exit> {
    own.laid_over(both).check().map_err(|error| Exit::Usage(format!("{direction}: {error}")))
}

/// Prints the addresses of both sides and a command for the server's side to a terminal.
fn print_addresses(network: &Network) {
    if io::stderr().is_terminal() {
        // The networks of an ordinary user belong to a user namespace, in which nsenter cannot become root.
        let user = match rustix::process::geteuid().is_root() {
            true => String::new(),
            false => format!(" --preserve-credentials --user=/proc/{}/ns/user", std::process::id()),
        };
        say!(
            "inrush: the client is at {CLIENT_ADDRESS}, the server at {SERVER_ADDRESS}; to run a \
             command on the server's side: nsenter{user} --net={} COMMAND",
            network.server.namespace.path().display()
        );
    }
}

fn json(value: &impl Serialize) -> Result<String, Exit> {
    let line = serde_json::to_string(value).map_err(|error| Exit::Failed(error.to_string()))?;
    Ok(line + "\n")
}

fn exit(error: WanError) -> Exit {
    match error {
        WanError::NoNetem(_) => Exit::Usage(format!("--engine netem: {error}")),
        WanError::NoProcessor { .. } => Exit::Usage(format!("--cpu: {error}")),
        WanError::NoProgram { .. } => Exit::Usage(error.to_string()),
        WanError::ServerEnded(_) | WanError::ServerSilent(_) => Exit::Failed(format!("--server: {error}")),
        _ => Exit::Failed(error.to_string()),
    }
}
