//! The starter: a process that starts the successor of a confined server.
//!
//! ```text
//!   server ── start, with the channel ──> starter ──> successor
//!          ── stop ────────────────────>           kills it
//!          <── failed: why ─────────────           it ended, or could not be started
//! ```
//!
//! The program and its arguments are on the starter's own command line, made before the server meets a client. Nothing that
//! the server says later changes them.
//!
//! Invariant: the starter ends with its server. A successor that has not become independent ends with the starter.

use std::ffi::OsString;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use base::Nanos;
use sys::process::{Child, Program, Streams, find_program, inherited, this_program, this_very_program};
use sys::readiness::poll::{self, PollFd, bits};
use sys::thread::signal;

use super::VARIABLE;
use crate::ground::error::{ServeError, system};
use crate::processes::{Control, Heard, Message, Sent};

const START: &[u8] = b"start";
const STOP: &[u8] = b"stop";
const FAILED: &[u8] = b"failed ";

/// The server's side of its starter.
pub struct Starter {
    /// Never dropped, because a confined server may not kill the process or wait for it. The process ends when
    /// `control` closes, and in any case with the server.
    _process: ManuallyDrop<Child>,
    control: Control,
    program: PathBuf,
}

impl Starter {
    /// Starts the starter, with the rights that the calling thread has now. It will start this program with the
    /// arguments of this process. Call it from a thread that stays.
    ///
    /// # Errors
    /// The program is no longer at its path; no free process or descriptor.
    pub fn start() -> io::Result<Starter> {
        let mut words = std::env::args_os();
        let name = words.next().unwrap_or_default();
        let program = program(&name)?;
        let (control, theirs) = Control::pair()?;
        let process = Program::new(this_very_program())
            .called("inrush: starter")
            .arguments([OsString::from("starter"), program.clone().into(), name])
            .arguments(words)
            .reading_from(theirs.as_fd())
            .with_streams(Streams::Ours)
            .start()?;
        Ok(Starter { _process: ManuallyDrop::new(process), control, program })
    }

    /// Returns the path of the program to start.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Asks the starter for a successor, which finds `channel` as its standard input.
    ///
    /// # Errors
    /// The starter has ended, or does not listen.
    pub fn ask(&self, channel: &Control) -> io::Result<()> {
        match self.control.send(START, &[channel.as_fd()])? {
            Sent::Yes => Ok(()),
            Sent::Full | Sent::Gone => Err(io::Error::other("the process that starts it has ended")),
        }
    }

    /// Asks the starter to kill the successor.
    pub fn give_up(&self) {
        // A starter that has ended took the successor with it.
        let _ = self.control.send(STOP, &[]);
    }

    /// Returns the reason why there is no successor, once it is known. Never blocks.
    pub fn failure(&self) -> Option<String> {
        match self.control.receive() {
            Ok(Heard::Message(Message { bytes, .. })) => {
                bytes.strip_prefix(FAILED).map(|why| String::from_utf8_lossy(why).into_owned())
            }
            Ok(Heard::Nothing) => None,
            _ => Some("the process that starts the new program has ended".to_owned()),
        }
    }
}

/// Returns the path by which this program was called, if the program is there, so that a symbolic link is followed anew.
fn program(name: &OsString) -> io::Result<PathBuf> {
    let running = this_program()?;
    let named = if Path::new(name).components().count() > 1 {
        std::path::absolute(name).ok()
    } else {
        name.to_str().and_then(find_program)
    };
    let leads_here = |path: &PathBuf| std::fs::canonicalize(path).is_ok_and(|path| path == running);
    Ok(named.filter(leads_here).unwrap_or(running))
}

/// Runs the starter: `words` are the program's path, the name to call it by, and its arguments. The standard input is the
/// control socket. Blocks until its server ends.
///
/// # Errors
/// [`ServeError::NoParent`] if no server started the process; [`ServeError::System`] if waiting fails.
pub fn run(words: &[OsString]) -> Result<(), ServeError> {
    signal::block().map_err(system("block signals"))?;
    let [path, name, arguments @ ..] = words else { return Err(ServeError::NoParent) };
    let control = Control::from_inherited(inherited(0).map_err(|_| ServeError::NoParent)?);
    let mut successor: Option<Child> = None;
    loop {
        wait(&control, successor.as_ref()).map_err(system("wait"))?;
        match control.receive() {
            Ok(Heard::Message(message)) if message.bytes == START => {
                successor = None;
                match start(path, name, arguments, &message) {
                    Ok(child) => successor = Some(child),
                    Err(error) => report(&control, &format!("{} cannot be started: {error}", path.display())),
                }
            }
            Ok(Heard::Message(message)) if message.bytes == STOP => successor = None,
            Ok(Heard::Nothing) => {}
            // The server has ended. No destructor runs: a successor that is ready lives on.
            _ => std::process::exit(0),
        }
        let ended = match &mut successor {
            Some(child) => child.wait(Nanos::ZERO).map_err(system("wait"))?,
            None => None,
        };
        if let Some(exit) = ended {
            successor = None;
            report(&control, &reason(exit.status));
        }
    }
}

fn start(path: &OsString, name: &OsString, arguments: &[OsString], message: &Message) -> io::Result<Child> {
    let channel = message.descriptors.first().ok_or(io::ErrorKind::InvalidInput)?;
    Program::new(path)
        .called(name)
        .arguments(arguments)
        .environment(VARIABLE, "1")
        .reading_from(channel.as_fd())
        .with_streams(Streams::Ours)
        .start()
}

/// Sleeps until the server has said something or the successor has ended.
fn wait(control: &Control, successor: Option<&Child>) -> io::Result<()> {
    let descriptors = [Some(control.as_fd()), successor.map(Child::end)];
    let mut set: Vec<PollFd> =
        descriptors.iter().flatten().map(|fd| PollFd::new(fd.as_raw_fd(), bits::IN)).collect();
    match poll::wait(&mut set, None) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

fn report(control: &Control, why: &str) {
    // A server that has ended needs no report.
    let _ = control.send(&[FAILED, why.as_bytes()].concat(), &[]);
}

/// Describes the end of a successor.
fn reason(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("the new program was killed by signal {signal}"),
        None => format!("the new program ended with exit code {}", status.code().unwrap_or_default()),
    }
}
