//! A server from start to end: sockets, loops, admin interface, signals, shutdown.
//!
//! The main thread only waits for signals. A loop that ends although nobody asked it to raises SIGTERM in
//! this process, so that the others finish in order and the failure is reported.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use base::{Bytes, Nanos, RealClock};
use http1::server::Settings;
use rustix::process::{Signal as Kill, getpid, kill_process};
use site::{Root, Site};
use sys::signal::{self, Signal};

use crate::accept::{Acceptor, LiveLimit};
use crate::access_log::{self, LogSender, LoopLog};
use crate::admin::Admin;
use crate::config::{LogTarget, ServeConfig};
use crate::counters::{Board, Counters};
use crate::driver::Stop;
use crate::driver::readiness::{self, ByPhases, Discipline, Parts, SocketService};
use crate::listener::{Listener, listen};
use crate::service::Costly;

/// Connections that the admin interface takes at once.
const ADMIN_CONNECTIONS: usize = 64;
/// The longest body that the admin interface reads.
const ADMIN_BODY: Bytes = Bytes(64);

/// Why a server could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Settings that make no sense together.
    #[error("{setting} {given}: {accepted}")]
    Setting {
        /// The flag.
        setting: &'static str,
        /// What it was given.
        given: String,
        /// What it accepts, and why.
        accepted: String,
    },
    /// The directory cannot be served.
    #[error(transparent)]
    Root(#[from] site::RootError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The access log cannot be opened.
    #[error("--access-log {path}: cannot open it for appending: {cause}")]
    Log {
        /// Where it was to be.
        path: PathBuf,
        /// What the file system said.
        cause: io::Error,
    },
    /// A call that hardly ever fails has failed.
    #[error("cannot {what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// A loop ended by itself.
    #[error("event loop {index} failed: {cause}")]
    Loop {
        /// Which one.
        index: usize,
        /// Why.
        cause: String,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |cause| ServeError::System { what, cause }
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that had not finished when the time was over.
    pub cut_off: u64,
}

/// A loop that runs.
pub struct LoopHandle {
    thread: JoinHandle<io::Result<()>>,
    stop: Stop,
    board: Board,
    addresses: Vec<SocketAddr>,
}

/// What an architecture builds from.
pub struct Plan {
    config: ServeConfig,
    cpus: Vec<usize>,
    root: Arc<Root>,
    settings: Arc<Settings>,
    limit: LiveLimit,
    log: Option<LogSender>,
}

impl Plan {
    /// What was asked for.
    pub fn config(&self) -> &ServeConfig {
        &self.config
    }

    /// The processors that loops may be tied to, at least one.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Refuses a number of workers other than 1 to an architecture that is one loop.
    ///
    /// # Errors
    /// [`ServeError::Setting`].
    pub fn only_one_loop(&self, architecture: &str) -> Result<(), ServeError> {
        match self.config.workers {
            None | Some(1) => Ok(()),
            Some(workers) => Err(ServeError::Setting {
                setting: "--workers",
                given: workers.to_string(),
                accepted: format!("{architecture} is one loop; --arch per-core has many"),
            }),
        }
    }

    /// Starts so many loops, each with an accept queue of its own for every address, and tied to a
    /// processor: in turn, where there are more loops than processors.
    pub fn start_loops<D: Discipline>(&self, count: usize) -> Result<Vec<LoopHandle>, ServeError> {
        let mut queues: Vec<Vec<Listener>> = (0..count).map(|_| Vec::new()).collect();
        for address in &self.config.listen {
            let listeners = listen(*address, self.config.backlog, count)
                .map_err(|cause| ServeError::Listen { address: *address, cause })?;
            for (queue, listener) in queues.iter_mut().zip(listeners) {
                queue.push(listener);
            }
        }
        let each = self.config.max_connections.div_ceil(count);
        let placed = queues.into_iter().enumerate();
        placed.map(|(index, queue)| self.start_loop::<D>(index, queue, each)).collect()
    }

    fn start_loop<D: Discipline>(
        &self,
        index: usize,
        listeners: Vec<Listener>,
        max_connections: usize,
    ) -> Result<LoopHandle, ServeError> {
        let site = Site::new(self.root.clone(), self.config.site.clone(), RealClock::new());
        let parts = Parts {
            listeners,
            acceptor: Acceptor::new(self.limit.clone()).map_err(system("keep a reserve descriptor"))?,
            service: Costly { site, burn: self.config.burn },
            settings: self.settings.clone(),
            max_connections,
            read_after_accept: self.config.read_after_accept,
            log: self.log.clone().map(LoopLog::new),
            board: Board::default(),
            stop: Stop::new().map_err(system("make an eventfd"))?,
            drain_timeout: self.config.drain_timeout,
        };
        let cpu = self.cpus[index % self.cpus.len()];
        start_thread::<_, D>(format!("loop-{index}"), self.config.dispatch, Some(cpu), parts)
    }
}

/// Starts a thread that runs a loop.
fn start_thread<S: SocketService + Send + 'static, D: Discipline>(
    name: String,
    dispatch: &'static str,
    cpu: Option<usize>,
    parts: Parts<S>,
) -> Result<LoopHandle, ServeError> {
    let (stop, board) = (parts.stop.clone(), parts.board.clone());
    let addresses = parts.listeners.iter().map(|listener| listener.address).collect();
    let asked = stop.clone();
    let body = move || {
        let result =
            cpu.map_or(Ok(()), |cpu| sys::cpu::pin(&[cpu])).and_then(|()| run_on::<S, D>(dispatch, parts));
        if !asked.asked() {
            // The main thread waits for signals, and for nothing else.
            let _ = kill_process(getpid(), Kill::TERM);
        }
        result
    };
    let thread = std::thread::Builder::new().name(name).spawn(body).map_err(system("start a thread"))?;
    Ok(LoopHandle { thread, stop, board, addresses })
}

/// Runs the readiness loop on the mechanism of a name.
fn run_on<S: SocketService, D: Discipline>(dispatch: &str, parts: Parts<S>) -> io::Result<()> {
    macro_rules! by_name {
        ($($name:literal => $mechanism:ty,)*) => {
            match dispatch {
                $($name => readiness::run::<$mechanism, S, D>(parts),)*
                other => Err(io::Error::other(format!("no event mechanism is called {other}"))),
            }
        };
    }
    dispatch::for_each_mechanism!(by_name)
}

/// A server that runs.
pub struct Server {
    loops: Vec<LoopHandle>,
    admin: Option<LoopHandle>,
    log: Option<(LogSender, JoinHandle<()>)>,
}

impl Server {
    /// Opens everything and starts every thread. From here on SIGTERM, SIGINT and SIGHUP are seen only by
    /// [`Server::wait`].
    ///
    /// # Errors
    /// [`ServeError`]; nothing is left running then but threads that end with the process.
    pub fn start(config: ServeConfig) -> Result<Server, ServeError> {
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
            limit: LiveLimit::new(config.accept_limit),
            log: log.as_ref().map(|(sender, _)| sender.clone()),
            config,
        };
        let loops = (plan.config.architecture.start)(&plan)?;
        let admin = match plan.config.admin {
            Some(address) => Some(start_admin(&plan, address, &loops)?),
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

    /// Waits for SIGTERM or SIGINT, then shuts down; opens the access log anew at SIGHUP. Blocks.
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
                Some(Signal::Terminate | Signal::Interrupt) => return self.shut_down(),
                None => {}
            }
        }
    }

    /// Stops accepting, lets connections finish, and ends every thread.
    fn shut_down(self) -> Result<Drained, ServeError> {
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
        if let Some((sender, thread)) = self.log {
            drop(sender);
            let _ = thread.join();
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

fn start_log(
    target: &LogTarget,
    format: crate::LogFormat,
) -> Result<(LogSender, JoinHandle<()>), ServeError> {
    access_log::start(target.clone(), format).map_err(|cause| match target {
        LogTarget::File(path) => ServeError::Log { path: path.clone(), cause },
        LogTarget::Stdout => ServeError::System { what: "start the access log", cause },
    })
}

/// The admin interface is one more loop, on plain poll and on whatever processor is free.
fn start_admin(plan: &Plan, address: SocketAddr, loops: &[LoopHandle]) -> Result<LoopHandle, ServeError> {
    let listeners = listen(address, 16, 1).map_err(|cause| ServeError::Listen { address, cause })?;
    let mut settings = Settings::default();
    settings.limits.keep_body = true;
    settings.limits.body_bytes = ADMIN_BODY.0;
    let parts = Parts {
        listeners,
        acceptor: Acceptor::new(LiveLimit::new(base::Limit::Infinite))
            .map_err(system("keep a reserve descriptor"))?,
        service: Admin {
            architecture: plan.config.architecture.name,
            dispatch: plan.config.dispatch,
            limit: plan.limit.clone(),
            boards: loops.iter().map(|running| running.board.clone()).collect(),
            log: plan.log.clone(),
            clock: RealClock::new(),
        },
        settings: Arc::new(settings),
        max_connections: ADMIN_CONNECTIONS,
        read_after_accept: false,
        log: None,
        board: Board::default(),
        stop: Stop::new().map_err(system("make an eventfd"))?,
        drain_timeout: Nanos::MILLISECOND * 100,
    };
    start_thread::<_, ByPhases>("admin".to_owned(), "poll", None, parts)
}
