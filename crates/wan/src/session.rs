//! A command on the client's side of a path, perhaps with a server on the other.
//!
//! Owns the order of things: path, server, command; then the command's end, what it left behind, the
//! server's end, the path's. The command is in the terminal's foreground: a Ctrl-C there reaches it as it would
//! without us, and we end when it does. A signal that is sent to us alone is handed on to it; after SIGTERM
//! and SIGHUP it has [`PATIENCE`] to end.
//!
//! Invariant: when [`run`] returns, however it returns, no process is left in either network. When we are
//! killed (SIGKILL), the kernel kills server and command and removes the links; only what they themselves had
//! put into the background goes on, in a network that leads nowhere.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, channel};

use base::{Clock, Nanos, RealClock};
use rustix::process::{Pid, Signal as KernelSignal, kill_process_group};
use sys::netlink::SocketDiagnostics;
use sys::process::{Child, Program, Streams};
use sys::signal::{self, Origin, Signal};

use crate::error::{WanError, system};
use crate::network::{Network, Side};
use crate::path::{Path, PathConfig};
use crate::report::Report;

/// How long a server has to begin to listen.
const SERVER_START: Nanos = Nanos::from_secs(10);
/// How long a program that was asked to end has for it.
const PATIENCE: Nanos = Nanos::from_secs(3);
/// How often signals and the engine are looked at. The end of the command is noticed at once.
const TICK: Nanos = Nanos::from_millis(50);
/// How often a server that starts is looked at.
const SERVER_TICK: Nanos = Nanos::from_millis(5);

/// What to run over which path.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The path.
    pub path: PathConfig,
    /// For the shell, on the server's side; the command is started when somebody listens there.
    pub server: Option<String>,
    /// Program and arguments, on the client's side.
    pub command: Vec<OsString>,
}

type Signals = Receiver<(Signal, Origin)>;

/// Runs the command over the path. `ready` is told the networks when the path is there. To be called
/// before this process has a second thread. Blocks until the command has ended.
///
/// # Errors
/// Every one of [`WanError`].
pub fn run(config: SessionConfig, ready: impl FnOnce(&Network)) -> Result<Report, WanError> {
    let signals = receive_signals().map_err(system("wait for signals"))?;
    let path = Path::start(config.path)?;
    ready(&path.network);
    let outcome = run_programs(&path, config.server.as_deref(), &config.command, &signals);
    // Whatever the outcome is: first nobody is left, then there is no path.
    let cleaned = [&path.network.client, &path.network.server]
        .map(|side| side.namespace.kill_processes().map_err(system("end what was left behind")));
    let report = path.end();
    let (status, mut report) = (outcome?, report?);
    cleaned.into_iter().collect::<Result<Vec<_>, _>>()?;
    report.exit_code = Some(exit_code(status));
    Ok(report)
}

/// Signals from now on come out of a channel.
fn receive_signals() -> io::Result<Signals> {
    signal::block()?;
    let (sender, signals) = channel();
    let wait = move || {
        while let Ok(received) = signal::wait_with_origin(None) {
            if received.is_some_and(|received| sender.send(received).is_err()) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(signals)
}

fn run_programs(
    path: &Path,
    server: Option<&str>,
    command: &[OsString],
    signals: &Signals,
) -> Result<ExitStatus, WanError> {
    let server = server.map(|line| start_server(&path.network.server, line, signals)).transpose()?;
    let (program, arguments) = command.split_first().expect("a command has at least its program");
    let mut command = Program::new(program)
        .arguments(arguments)
        .in_namespace(Some(path.network.client.namespace.as_fd()))
        .with_streams(Streams::Ours)
        .start()
        .map_err(|source| WanError::NoProgram { program: program.to_string_lossy().into_owned(), source })?;
    let status = attend(&mut command, path, signals).map_err(system("wait for the command"))?;
    if let Some(server) = server {
        end_server(server).map_err(system("end the server"))?;
    }
    Ok(status)
}

/// Waits for the command's end, hands signals on, and ends it when the path fails.
fn attend(command: &mut Child, path: &Path, signals: &Signals) -> io::Result<ExitStatus> {
    loop {
        if let Some(exit) = command.wait(TICK)? {
            return Ok(exit.status);
        }
        if !path.works() {
            return Ok(command.terminate(PATIENCE)?.status);
        }
        for (signal, origin) in signals.try_iter() {
            match (signal, origin) {
                // It got that one itself, and decides by itself whether it ends.
                (Signal::Interrupt | Signal::HangUp, Origin::Terminal) => {}
                (Signal::Interrupt, Origin::Process) => command.signal(KernelSignal::INT)?,
                (Signal::Terminate | Signal::HangUp, _) => return Ok(command.terminate(PATIENCE)?.status),
            }
        }
    }
}

/// Starts a server and waits until it listens.
fn start_server(side: &Side, line: &str, signals: &Signals) -> Result<Child, WanError> {
    let mut server = Program::new("sh")
        .arguments(["-c", line])
        .in_namespace(Some(side.namespace.as_fd()))
        .with_streams(Streams::Messages)
        .start()
        .map_err(|source| WanError::NoProgram { program: "sh".to_owned(), source })?;
    let looking = system("look for the server's sockets");
    let mut sockets =
        side.namespace.enter(SocketDiagnostics::open).and_then(|opened| opened).map_err(&looking)?;
    let clock = RealClock::new();
    let until = clock.now() + SERVER_START;
    while !sockets.anybody_serves().map_err(&looking)? {
        if let Some(exit) = server.wait(SERVER_TICK).map_err(system("wait for the server"))? {
            return Err(WanError::ServerEnded(exit.status.to_string()));
        }
        if signals.try_recv().is_ok() {
            return Err(WanError::Interrupted);
        }
        if clock.now() > until {
            return Err(WanError::ServerSilent(SERVER_START));
        }
    }
    Ok(server)
}

/// Asks the server's whole process group to end: the shell may have started more than one program.
fn end_server(mut server: Child) -> io::Result<()> {
    let group = Pid::from_raw(server.id() as i32).expect("a child has a number above zero");
    match kill_process_group(group, KernelSignal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    server.terminate(PATIENCE).map(drop)
}

/// As a shell gives it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(libc_sigkill())), 137);
    }

    fn libc_sigkill() -> i32 {
        KernelSignal::KILL.as_raw()
    }
}
