//! `inrush guard`: turns flags into a guard.
//!
//! ```text
//!   inrush guard    finds the listener, attaches, and keeps the rights     processes
//!     ├─ the server, with --                                               processes
//!     └─ inrush: guard    decides and prints, without rights               controller
//! ```
//!
//! The modules: `processes` starts and ends both children, `controller` is the loop of the second. `table` is the text of
//! the figures, and the live table on a terminal. `survey` lists all listeners.

mod controller;
mod processes;
mod survey;
mod table;

use std::hash::{BuildHasher, RandomState};
use std::io;

use ::guard::{
    Exempt, GuardError, HookChoice, Place, Refusal, Server, Settings, SignalChoice, Starter, Wanted,
};
use base::{Clock, Nanos, RealClock};
use doctor::{Finding, finding};
use sys::thread::signal::{self, Signal};

use crate::cli::{GuardFlags, GuardHook, GuardRefusal, GuardSignal};
use crate::exit::Exit;
pub use controller::run as run_controller;
use processes::Started;

/// The time that a started server may take to listen.
const PATIENCE: Nanos = Nanos::from_secs(60);
/// The time between two looks for the listener of a started server.
const LOOK: Nanos = Nanos::from_millis(20);

/// The best signal and hook of a guard on this machine.
pub fn findings() -> Vec<Finding> {
    let what = "guard";
    let best = match ::guard::probe() {
        Ok(()) => {
            let found = "counts requests, and refuses at the server's cgroup; its starter alone keeps rights";
            finding(what, found, None)
        }
        Err(error) => finding(what, "reads the accept queue, and refuses by a sink", Some(error.to_string())),
    };
    vec![best]
}

/// Guards a listener until a signal, or lists all listeners.
pub fn run(flags: GuardFlags) -> Result<(), Exit> {
    let server = server(&flags);
    if server == Server::AtAddress && flags.address.is_none() {
        return match flags.observe {
            true => survey::run(flags.output),
            false => Err(Exit::Usage(GuardError::NoAddress.to_string())),
        };
    }
    let settings = settings(&flags)?;
    signal::block().map_err(failed("block signals"))?;
    let mut child = Started::start(&flags)?;
    let outcome = match open(&flags, &server, &settings, child.as_mut()) {
        Ok(Some(starter)) => processes::keep(starter, child.as_mut()),
        Ok(None) => Ok(()),
        Err(exit) => Err(exit),
    };
    match child {
        Some(child) => outcome.and(child.end()),
        None => outcome,
    }
}

fn server(flags: &GuardFlags) -> Server {
    match (&flags.pid, &flags.unit, &flags.cgroup, &flags.container) {
        (Some(pid), ..) => Server::Process(*pid),
        (_, Some(unit), ..) => Server::Unit(unit.clone()),
        (_, _, Some(path), _) => Server::Cgroup(path.clone()),
        (_, _, _, Some(id)) => Server::Container(id.clone()),
        (None, None, None, None) => Server::AtAddress,
    }
}

fn settings(flags: &GuardFlags) -> Result<Settings, Exit> {
    let hook = match flags.hook {
        GuardHook::Auto => HookChoice::Auto,
        GuardHook::Cgroup => HookChoice::Cgroup,
        GuardHook::Tc => HookChoice::Tc,
        GuardHook::Xdp => HookChoice::Xdp,
        GuardHook::Sink => HookChoice::Sink,
    };
    let signal = match flags.signal {
        GuardSignal::Auto => SignalChoice::Auto,
        GuardSignal::Requests => SignalChoice::Requests,
        GuardSignal::Queue => SignalChoice::Queue,
    };
    let refusal = match flags.refuse {
        GuardRefusal::Drop => Refusal::Drop,
        GuardRefusal::Rst => Refusal::Reset,
    };
    let exempt = Exempt::new(flags.allow.clone())
        .map_err(|error| Exit::Usage(format!("--allow: {error}")))?
        .with_steady_sources(flags.allow_probe);
    let hook = (!flags.observe).then_some(hook);
    let salt = RandomState::new().hash_one(0) as u32;
    Ok(Settings { target: flags.queue_target, wanted: Wanted { signal, hook, refusal, exempt, salt } })
}

/// Finds the listener and attaches to it. Waits for the listener of a started server. `None` if the user ended the
/// wait.
fn open(
    flags: &GuardFlags,
    server: &Server,
    settings: &Settings,
    mut child: Option<&mut Started>,
) -> Result<Option<Starter>, Exit> {
    let clock = RealClock::new();
    let until = clock.now() + PATIENCE;
    loop {
        let place = Place::find(server, flags.address).map_err(exit)?;
        match (Starter::open(place, settings.wanted.clone()), &mut child) {
            (Ok(starter), _) => return Ok(Some(starter)),
            (Err(GuardError::NoListener { .. }), Some(child)) if clock.now() < until => {
                if child.has_ended() {
                    return Err(Exit::Failed("the server ended before it listened".to_owned()));
                }
                if ends(LOOK)? {
                    return Ok(None);
                }
            }
            (Err(error), _) => return Err(exit(error)),
        }
    }
}

/// Waits, and returns true if a signal asks to end.
fn ends(timeout: Nanos) -> Result<bool, Exit> {
    let signal = signal::wait(Some(timeout)).map_err(failed("wait for signals"))?;
    Ok(matches!(signal, Some(Signal::Terminate | Signal::Interrupt)))
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Exit {
    move |error| Exit::Failed(format!("{what}: {error}"))
}

fn exit(error: GuardError) -> Exit {
    let message = error.to_string();
    match error {
        GuardError::NoAddress | GuardError::ManyPorts { .. } | GuardError::CannotReset => {
            Exit::Usage(message)
        }
        GuardError::NoServer(_) | GuardError::NoListener { .. } => Exit::Unreachable(message),
        _ => Exit::Failed(message),
    }
}
