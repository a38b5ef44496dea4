//! A command on the client's side of a path, with an optional server on the other side.
//!
//! Owns the order of events: path, server, command; then the end of the command, of its leftover processes,
//! of the server and of the path. The command runs in the terminal's foreground, so Ctrl-C reaches it
//! directly, and this process ends when the command does. A signal sent to this process alone is passed on to
//! the command. After SIGTERM and SIGHUP the command has [`PATIENCE`] to end. A SIGHUP that nohup(1) ignores ends nothing.
//!
//! Invariant: when [`run`] returns, with or without an error, no process is left in either network. If this
//! process is killed (SIGKILL), the kernel kills the command, and a guard kills the server's process group.
//! Only background processes of the command go on, in a network without a link.

use std::ffi::OsString;
use std::io::{self, PipeWriter};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, channel};

use base::{Clock, Nanos, RealClock};
use rustix::process::{Pid, Signal as KernelSignal, kill_process_group};
use sys::network::netlink::SocketDiagnostics;
use sys::process::{Child, Program, Streams};
use sys::thread::signal::{self, Origin, Signal};

use crate::error::{WanError, system};
use crate::network::{Network, Side};
use crate::path::{Path, PathConfig};
use crate::report::Report;

/// Timeout for the server to begin to listen.
const SERVER_START: Nanos = Nanos::from_secs(10);
/// Timeout for a program that was asked to end.
const PATIENCE: Nanos = Nanos::from_secs(3);
/// The interval between two checks of signals and engine. The end of the command is noticed at once.
const TICK: Nanos = Nanos::from_millis(50);
/// The interval between two checks of a server that starts.
const SERVER_TICK: Nanos = Nanos::from_millis(5);

/// The configuration of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The path.
    pub path: PathConfig,
    /// A shell command for the server's side; the client's command starts when the server listens.
    pub server: Option<String>,
    /// Program and arguments of the command on the client's side.
    pub command: Vec<OsString>,
}

type Signals = Receiver<(Signal, Origin)>;

/// Runs the command over the path. `ready` is called with the networks once the path exists. The caller must
/// have no second thread yet. Blocks until the command has ended.
///
/// # Errors
/// Every variant of [`WanError`].
pub fn run(config: SessionConfig, ready: impl FnOnce(&Network)) -> Result<Report, WanError> {
    let signals = receive_signals().map_err(system("wait for signals"))?;
    let path = Path::start(config.path)?;
    ready(&path.network);
    let outcome = run_programs(&path, config.server.as_deref(), &config.command, &signals);
    // For every outcome: first end all processes, then the path.
    let cleaned = [&path.network.client, &path.network.server]
        .map(|side| side.namespace.kill_processes().map_err(system("end what was left behind")));
    let report = path.end();
    let (status, mut report) = (outcome?, report?);
    cleaned.into_iter().collect::<Result<Vec<_>, _>>()?;
    report.exit_code = Some(exit_code(status));
    Ok(report)
}

/// Sends signals into a channel from now on.
fn receive_signals() -> io::Result<Signals> {
    signal::block()?;
    let (sender, signals) = channel();
    let wait = move || {
        while let Ok(received) = signal::wait_heeding_nohup(None) {
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
    if signals.try_iter().any(|(signal, _)| signal != Signal::Upgrade) {
        return Err(WanError::Interrupted);
    }
    let (program, arguments) = command.split_first().expect("a command has at least its program");
    let mut command = Program::new(program)
        .arguments(arguments)
        .in_namespace(Some(path.network.client.namespace.as_fd()))
        .with_streams(Streams::Ours)
        .start()
        .map_err(|source| WanError::NoProgram { program: program.to_string_lossy().into_owned(), source })?;
    let status = await_command(&mut command, path, signals).map_err(system("wait for the command"))?;
    if let Some(server) = server {
        end_server(server).map_err(system("end the server"))?;
    }
    Ok(status)
}

/// Waits for the command's end, passes signals on, and ends the command when the path fails.
fn await_command(command: &mut Child, path: &Path, signals: &Signals) -> io::Result<ExitStatus> {
    loop {
        if let Some(exit) = command.wait(TICK)? {
            return Ok(exit.status);
        }
        if !path.works() {
            return Ok(command.terminate(PATIENCE)?.status);
        }
        for (signal, origin) in signals.try_iter() {
            match (signal, origin) {
                // The terminal sent this signal to the command too, which decides whether to end.
                (Signal::Interrupt | Signal::HangUp, Origin::Terminal) => {}
                (Signal::Interrupt, Origin::Process) => command.signal(KernelSignal::INT)?,
                // The command may be a server that hands over.
                (Signal::Upgrade, _) => command.signal(KernelSignal::USR2)?,
                (Signal::Terminate | Signal::HangUp, _) => return Ok(command.terminate(PATIENCE)?.status),
            }
        }
    }
}

/// A server, and the end of the pipe whose other end its guard reads.
struct Server {
    child: Child,
    _guarded: PipeWriter,
}

/// The first lines of the server's shell. They start a guard that kills the server's process group when the standard
/// input ends, and leave the server no input. The signal at this process's death reaches the shell alone.
const GUARD: &str = "exec 3<&0 </dev/null\n((read -r _ <&3; kill -KILL 0) &)\nexec 3<&-\n";

/// Starts a server and waits until it listens.
fn start_server(side: &Side, line: &str, signals: &Signals) -> Result<Server, WanError> {
    let (reading, guarded) = std::io::pipe().map_err(system("make a pipe"))?;
    let mut server = Program::new("sh")
        .arguments(["-c", &format!("{GUARD}{line}")])
        .reading_from(reading.as_fd())
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
    Ok(Server { child: server, _guarded: guarded })
}

/// Asks the server's whole process group to end: the shell may have started more than one program.
fn end_server(mut server: Server) -> io::Result<()> {
    let group = Pid::from_raw(server.child.id() as i32).expect("a child has a number above zero");
    match kill_process_group(group, KernelSignal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    server.child.terminate(PATIENCE).map(drop)
}

/// The exit code as a shell reports it.
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
