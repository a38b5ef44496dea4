//! A server from start to end: sockets, loops, admin interface, signals, shutdown.
//!
//! The main thread only waits for signals. A loop that ends although nobody asked it to raises SIGTERM in
//! this process, so that the others finish in order and the failure is reported.

use std::net::SocketAddr;
use std::sync::Arc;

use base::{Nanos, RealClock};
use site::Root;
use sys::signal::{self, Signal};

use crate::accept::LiveLimit;
use crate::access_log::{self, LogEnd, LogSender};
use crate::admin::Admin;
use crate::architecture::Architecture;
use crate::aside;
use crate::choices::Choice;
use crate::config::{LogFormat, LogTarget, ServeConfig};
use crate::counters::Counters;
use crate::error::{ServeError, system};
use crate::plan::{LoopHandle, Plan};

/// How long the end of the server waits for the access log to take its last lines.
const LOG_PATIENCE: Nanos = Nanos::SECOND;

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that had not finished when the time was over.
    pub cut_off: u64,
}

/// A server that runs.
pub struct Server {
    loops: Vec<LoopHandle>,
    admin: Option<LoopHandle>,
    log: Option<(LogSender, LogEnd)>,
}

impl Server {
    /// Opens everything and starts every thread. From here on SIGTERM, SIGINT and SIGHUP are seen only by
    /// [`Server::wait`].
    ///
    /// # Errors
    /// [`ServeError`]; nothing is left running then but threads that end with the process.
    pub fn start(architecture: &'static Architecture, config: ServeConfig) -> Result<Server, ServeError> {
        architecture.check(&config)?;
        signal::block().map_err(system("block signals"))?;
        let allowed = sys::cpu::allowed().map_err(system("read the processor affinity"))?;
        let log = match &config.access_log {
            Some((target, format)) => Some(start_log(target, *format)?),
            None => None,
        };
        let plan = Plan {
            cpus: usable(&config.cpus, allowed)?,
            root: Arc::new(Root::open(&config.root)?),
            settings: Arc::new(config.http.clone()),
            limit: LiveLimit::new(config.accept_limit.unwrap_or(architecture.accept_limit)),
            log: log.as_ref().map(|(sender, _)| sender.clone()),
            config,
        };
        let loops = (architecture.start)(&plan)?;
        let admin = match plan.config.admin {
            Some(address) => Some(start_admin(architecture, &plan, address, &loops)?),
            None => None,
        };
        Ok(Server { loops, admin, log })
    }

    /// The addresses that are listened on.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.loops.first().map_or(&[], |first| &first.addresses)
    }

    /// The address of the admin interface.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|admin| admin.addresses.first().copied())
    }

    /// Waits for SIGTERM or SIGINT, then shuts down; a second one ends the process at once. Opens the access
    /// log anew at SIGHUP. Blocks.
    ///
    /// # Errors
    /// [`ServeError::Loop`] where a loop ended by itself.
    pub fn wait(self) -> Result<Drained, ServeError> {
        loop {
            match signal::wait(None).map_err(system("wait for signals"))? {
                Some(Signal::HangUp) => {
                    if let Some((sender, _)) = &self.log {
                        sender.reopen();
                    }
                }
                Some(Signal::Terminate | Signal::Interrupt) => {
                    end_at_the_next_signal();
                    return self.shut_down();
                }
                None => {}
            }
        }
    }

    /// What all loops have counted so far; at most 10 ms old.
    pub fn counters(&self) -> Counters {
        let mut total = Counters::default();
        for running in &self.loops {
            total.add(&running.board.read());
        }
        total
    }

    /// Stops accepting, lets connections finish, and ends every thread. Blocks, for the drain time-out at
    /// most.
    ///
    /// # Errors
    /// [`ServeError::Loop`] where a loop ended by itself.
    pub fn shut_down(self) -> Result<Drained, ServeError> {
        for running in &self.loops {
            running.stop.ask();
        }
        let mut total = Counters::default();
        let mut failure = None;
        for (index, running) in self.loops.into_iter().enumerate() {
            let result = running.thread.join();
            total.add(&running.board.read());
            let cause = match result {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it panicked".to_owned(),
            };
            failure = Some(ServeError::Loop { index, cause });
        }
        if let Some(admin) = self.admin {
            admin.stop.ask();
            // Its end changes nothing any more.
            let _ = admin.thread.join();
        }
        if let Some((sender, end)) = self.log {
            drop(sender);
            if !end.wait(LOG_PATIENCE) {
                eprintln!("inrush: the access log did not take its last lines within {LOG_PATIENCE}");
            }
        }
        failure.map_or(Ok(Drained { cut_off: total.loops.cut_off_at_shutdown }), Err)
    }
}

/// The processors to tie loops to: those asked for, or all that are allowed.
fn usable(asked: &[usize], allowed: Vec<usize>) -> Result<Vec<usize>, ServeError> {
    if asked.is_empty() {
        return Ok(allowed);
    }
    // What is allowed now may be widened, so that only the kernel knows: it is asked here, where a
    // refusal is still a wrong setting and not the end of a loop.
    for cpu in asked {
        sys::cpu::pin(&[*cpu]).map_err(|_| ServeError::Setting {
            setting: "--cpus",
            given: cpu.to_string(),
            accepted: format!("not a processor that this process may use; accepted are {}", list(&allowed)),
        })?;
    }
    sys::cpu::pin(&allowed).map_err(system("restore the processor affinity"))?;
    Ok(asked.to_vec())
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Whoever asks twice does not want to wait for connections to finish.
fn end_at_the_next_signal() {
    let body = || {
        while let Ok(signal) = signal::wait(None) {
            if matches!(signal, Some(Signal::Terminate | Signal::Interrupt)) {
                eprintln!("inrush: asked to end twice: not waiting for connections to finish");
                std::process::exit(1);
            }
        }
    };
    // Without the thread a second signal has no effect, as if it had not been sent.
    let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(body);
}

fn start_log(target: &LogTarget, format: LogFormat) -> Result<(LogSender, LogEnd), ServeError> {
    access_log::start(target.clone(), format).map_err(|cause| match target {
        LogTarget::File(path) => ServeError::Log { path: path.clone(), cause },
        LogTarget::Stdout => ServeError::System { what: "start the access log", cause },
    })
}

/// The admin interface is one more loop, aside.
fn start_admin(
    architecture: &Architecture,
    plan: &Plan,
    address: SocketAddr,
    loops: &[LoopHandle],
) -> Result<LoopHandle, ServeError> {
    let dispatches = architecture.uses.contains(&Choice::Dispatch);
    let admin = Admin {
        architecture: architecture.name,
        dispatch: if dispatches { plan.dispatch() } else { "none" },
        limit: plan.limit.clone(),
        boards: loops.iter().map(|running| running.board.clone()).collect(),
        log: plan.log.clone(),
        clock: RealClock::new(),
    };
    aside::start("admin", address, admin)
}
