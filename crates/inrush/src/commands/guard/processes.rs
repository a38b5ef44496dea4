//! The processes of a guard: this one keeps the rights, and starts and ends the other two.
//!
//! ```text
//!   SIGTERM, SIGINT, the server's end ──> end the controller ──> detach ──> end the server
//!   the controller is killed, or panics ──> detach ──> a second later, another controller
//!   this process is killed ──> the kernel detaches, and kills the controller; the server goes on
//! ```
//!
//! The server gets the rights of the start, because it is started before any are given up.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ::guard::{Rights, Starter};
use base::Nanos;
use sys::process::{Child, Exit as Ended, Program, Streams, this_very_program};
use sys::readiness::poll::{self, PollFd, bits};
use sys::say;
use sys::socket::passing;

use super::{ends, failed};
use crate::cli::GuardFlags;
use crate::exit::Exit;

/// The time that a started process has to end after SIGTERM.
const ENDING: Nanos = Nanos::from_secs(30);
/// The time that a controller may take to start.
const PATIENCE: Nanos = Nanos::from_secs(60);
/// The time between two looks at the processes.
const LOOK: Nanos = Nanos::from_millis(100);

/// The exit code of a process that panics.
const PANIC: i32 = 101;

/// Serves controllers until a signal, or until the started server ends. An error of the first controller is that of the
/// guard. Errors of later ones, and of the starter, only have it start another controller, because the end of the guard ends
/// the started server.
pub fn keep(mut starter: Starter, mut child: Option<&mut Started>) -> Result<(), Exit> {
    let rights = starter.give_up_rights(child.is_some()).map_err(failed("give up rights"))?;
    let mut is_first = true;
    loop {
        let reason = match begin() {
            Ok(begun) => {
                let Served { ended, is_over, has_failed } = serve(&mut starter, &rights, begun, &mut child)?;
                // The controller ends because of a failed starter, even after days.
                is_first &= !has_failed;
                match ended.status.code() {
                    Some(0) => return Ok(()),
                    None if is_over => return Ok(()),
                    // It has said why.
                    Some(code) if is_over || is_first && code != PANIC => {
                        return Err(Exit::OfCommand(u8::try_from(code).unwrap_or(1)));
                    }
                    Some(code) => format!("the guard ended with exit code {code}"),
                    None => "the guard was killed".to_owned(),
                }
            }
            Err(error) if is_first => return Err(error),
            Err(error) => error.into_message(),
        };
        say!("inrush: {reason}, and everything is admitted; it starts again");
        is_first = false;
        if is_to_end(Nanos::SECOND, &mut child)? {
            return Ok(());
        }
    }
}

/// The end of a controller, and its reasons.
struct Served {
    ended: Ended,
    /// A signal, or the server's end, has ended it.
    is_over: bool,
    /// The starter could not answer it.
    has_failed: bool,
}

/// Answers a controller until it ends.
fn serve(
    starter: &mut Starter,
    rights: &Rights,
    (ours, mut controller): (OwnedFd, Child),
    server: &mut Option<&mut Started>,
) -> Result<Served, Exit> {
    std::thread::scope(|scope| {
        // Its end closes our end of the socket, so that the controller hears of it.
        let answering = scope.spawn(move || {
            let served = starter.serve(&ours, Some(rights.clone()));
            served.inspect_err(|error| say!("inrush: everything is admitted: {error}")).is_err()
        });
        let (ended, is_over) = watch(&mut controller, server).inspect_err(|_| {
            // The thread above ends with it.
            let _ = controller.kill();
        })?;
        let has_failed = answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Served { ended, is_over, has_failed })
    })
}

/// Starts a controller, and waits until it asks for something. Returns our end of its socket.
fn begin() -> Result<(OwnedFd, Child), Exit> {
    let (ours, theirs) = passing::pair().map_err(failed("make a socket"))?;
    let controller = start(theirs).map_err(failed("start the process that decides"))?;
    wait_until_it_asks(&ours, &controller).map_err(failed("wait for the process that decides"))?;
    Ok((ours, controller))
}

/// Starts this program again as the controller, with the same flags. It finds the socket as its standard input.
fn start(theirs: OwnedFd) -> io::Result<Child> {
    let flags = std::env::args_os().skip(2);
    Program::new(this_very_program())
        .called("inrush: guard")
        .arguments([OsString::from("guard-controller")])
        .arguments(flags)
        .reading_from(theirs.as_fd())
        .with_streams(Streams::Ours)
        .start()
}

/// Waits until a controller has blocked its signals and asks its first question, or has ended.
fn wait_until_it_asks(ours: &OwnedFd, controller: &Child) -> io::Result<()> {
    let both = [ours.as_raw_fd(), controller.end().as_raw_fd()];
    poll::wait(&mut both.map(|descriptor| PollFd::new(descriptor, bits::IN)), Some(PATIENCE)).map(drop)
}

/// Waits for the end of the controller. Ends it at a signal, or with the server; returns true then.
fn watch(controller: &mut Child, server: &mut Option<&mut Started>) -> Result<(Ended, bool), Exit> {
    loop {
        if let Some(ended) =
            controller.wait(Nanos::ZERO).map_err(failed("wait for the process that decides"))?
        {
            return Ok((ended, false));
        }
        if is_to_end(LOOK, server)? {
            let ended = controller.terminate(ENDING).map_err(failed("end the process that decides"))?;
            return Ok((ended, true));
        }
    }
}

/// Waits, and returns true if a signal asks to end, or if the server has ended.
fn is_to_end(timeout: Nanos, server: &mut Option<&mut Started>) -> Result<bool, Exit> {
    Ok(ends(timeout)? || server.as_mut().is_some_and(|server| server.has_ended()))
}

/// A server that this command has started.
pub struct Started(Child);

impl Started {
    /// Starts the server of the flags, if they name one.
    pub fn start(flags: &GuardFlags) -> Result<Option<Started>, Exit> {
        let [program, arguments @ ..] = flags.command.as_slice() else { return Ok(None) };
        let child =
            Program::new(program).arguments(arguments).with_streams(Streams::Ours).outliving().start();
        let failed = |error: io::Error| {
            Exit::Usage(format!("-- {}: cannot start the server: {error}", program.to_string_lossy()))
        };
        child.map(Started).map(Some).map_err(failed)
    }

    /// True once the server has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.wait(Nanos::ZERO), Ok(None))
    }

    /// Asks the server to end, if it has not, and takes its exit code.
    pub fn end(mut self) -> Result<(), Exit> {
        let ended = self.has_ended();
        let exit =
            self.0.terminate(ENDING).map_err(|error| Exit::Failed(format!("end the server: {error}")))?;
        match exit.status.code() {
            Some(0) => Ok(()),
            // The signal was ours.
            None if !ended => Ok(()),
            Some(code) => Err(Exit::OfCommand(u8::try_from(code).unwrap_or(1))),
            None => Err(Exit::Failed(format!("the server ended: {}", exit.status))),
        }
    }
}
