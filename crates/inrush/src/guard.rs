//! `inrush guard`: turns flags into a guard, runs its loop, and prints its lines and figures.
//!
//! The modules: `table` is the text of the figures, and the live table on a terminal. `survey` lists all listeners.

mod survey;
mod table;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex};

use ::guard::{
    Exempt, Guard, GuardError, HookChoice, Place, Refusal, Server, Settings, SignalChoice, Status, Wanted,
};
use ::server::{Page, Shown};
use base::{Clock, Nanos, RealClock, lock};
use sys::process::{Program, Streams};
use sys::say;
use sys::signal::{self, Signal};

use crate::cli::{GuardFlags, GuardHook, GuardOutput, GuardRefusal, GuardSignal};
use crate::exit::Exit;
use crate::output;
use table::Table;

/// The time that a started server may take to listen.
const PATIENCE: Nanos = Nanos::from_secs(60);
/// The time between two looks for the listener of a started server.
const LOOK: Nanos = Nanos::from_millis(20);
/// The time that a started server has to end after SIGTERM.
const ENDING: Nanos = Nanos::from_secs(30);

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
    signal::block().map_err(|error| Exit::Failed(error.to_string()))?;
    let mut child = Started::start(&flags)?;
    let opened = open(&flags, &server, settings, child.as_mut());
    let outcome = match opened {
        Ok(Some(guard)) => keep(guard, &flags, child.as_mut()),
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
    let exempt =
        Exempt::new(flags.allow.clone()).map_err(|error| Exit::Usage(format!("--allow: {error}")))?;
    let hook = (!flags.observe).then_some(hook);
    let salt = RandomState::new().hash_one(0) as u32;
    Ok(Settings { target: flags.queue_target, wanted: Wanted { signal, hook, refusal, exempt, salt } })
}

/// Finds the listener and begins to guard it. Waits for the listener of a started server. `None` if the user ended the
/// wait.
fn open(
    flags: &GuardFlags,
    server: &Server,
    settings: Settings,
    mut child: Option<&mut Started>,
) -> Result<Option<Guard>, Exit> {
    let clock = RealClock::new();
    let until = clock.now() + PATIENCE;
    loop {
        let place = Place::find(server, flags.address).map_err(exit)?;
        match (Guard::open(place, settings.clone(), clock.now()), &mut child) {
            (Ok(guard), _) => return Ok(Some(guard)),
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
    let signal = signal::wait(Some(timeout)).map_err(|error| Exit::Failed(error.to_string()))?;
    Ok(matches!(signal, Some(Signal::Terminate | Signal::Interrupt)))
}

/// Guards until a signal, or until the started server ends.
fn keep(mut guard: Guard, flags: &GuardFlags, mut child: Option<&mut Started>) -> Result<(), Exit> {
    let verb = if flags.observe { "observing" } else { "guarding" };
    say!("inrush: {verb} {}; target {}", guard.description(), flags.queue_target);
    let shown = Arc::new(Mutex::new(guard.status()));
    let _page = flags.admin.map(|address| open_page(address, &shown)).transpose()?;
    let mut table = Table::new(flags);
    let clock = RealClock::new();
    let mut shown_at = clock.now();
    loop {
        // A tick that is due now may wait for a signal that is there already.
        if ends(guard.due().saturating_sub(clock.now()))? {
            break;
        }
        let now = clock.now();
        for event in guard.tick(now) {
            table.line(&format!("inrush: {event}"));
        }
        if now >= shown_at + Nanos::SECOND {
            shown_at = now;
            if child.as_mut().is_some_and(|child| child.has_ended()) {
                break;
            }
            *lock(&shown) = guard.status();
            table.show(&lock(&shown))?;
        }
    }
    table.end();
    let status = guard.status();
    guard.close();
    match flags.output {
        GuardOutput::Json => output::json("the figures", &status),
        _ => Ok(()),
    }
}

fn open_page(address: std::net::SocketAddr, status: &Arc<Mutex<Status>>) -> Result<Page, Exit> {
    let (metrics, figures) = (Arc::clone(status), Arc::clone(status));
    let texts = vec![
        Shown::new("/metrics", "text/plain; version=0.0.4; charset=utf-8", move || {
            lock(&metrics).prometheus()
        }),
        Shown::new("/status", "application/json", move || {
            serde_json::to_string(&*lock(&figures)).unwrap_or_default() + "\n"
        }),
    ];
    let page =
        Page::open(address, texts).map_err(|error| Exit::Failed(format!("--admin {address}: {error}")))?;
    if let Some(address) = page.address() {
        say!("inrush: figures on http://{address}/metrics and /status");
    }
    Ok(page)
}

/// A server that this command has started.
struct Started(sys::process::Child);

impl Started {
    fn start(flags: &GuardFlags) -> Result<Option<Started>, Exit> {
        let [program, arguments @ ..] = flags.command.as_slice() else { return Ok(None) };
        let child =
            Program::new(program).arguments(arguments).with_streams(Streams::Ours).outliving().start();
        let failed = |error: io::Error| {
            Exit::Usage(format!("-- {}: cannot start the server: {error}", program.to_string_lossy()))
        };
        child.map(Started).map(Some).map_err(failed)
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.0.wait(Nanos::ZERO), Ok(None))
    }

    /// Asks the server to end, if it has not, and takes its exit code.
    fn end(mut self) -> Result<(), Exit> {
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
