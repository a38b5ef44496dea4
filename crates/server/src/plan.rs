//! The plan of a server: the configuration and everything that an architecture starts its loops with.
//!
//! Owns what does not change from the start on. Opens no socket: that is an [`Opening`], which a start consumes.
//! `refusal_loop` is the loop that answers refused connections, the same beside every architecture.

mod opening;
pub mod refusal_loop;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;

use base::{Nanos, RealClock};
use connection::clients::Clients;
use connection::{Custody, LiveSettings, SocketService};
use site::Hosts;
use sys::completion::CompletionRing;
use sys::thread::stop::Stop;
use tls::Sessions;

use crate::config::serve::ServeConfig;
use crate::connections::accept::{Acceptor, LiveLimit};
use crate::connections::overload_control::{AcceptControl, ControlledQueue};
use crate::connections::refusals::Refusals;
use crate::connections::slots::Share;
use crate::driver::completion;
use crate::driver::event_loop::{Arrivals, Listeners, Parts};
use crate::driver::readiness::{self, ByPhases, Discipline};
use crate::ground::choices::{Driver, Switch, URING};
use crate::ground::config_text::ConfigText;
use crate::ground::counters::Board;
use crate::ground::error::{ServeError, system};
use crate::ground::listener::{Inheritance, Listener};
use crate::ground::threads::{LoopHandle, start_thread};
use crate::kernel_cache::Materials;
use crate::observation::access_log::{LogSender, LoopLog};
use crate::observation::load_report::{LoadReports, ReportStarter};
use crate::service::{Costly, LoopSites, Refusal};

pub use opening::{Opened, Opening, Started};

/// The event mechanism without `--dispatch`.
pub const DEFAULT_DISPATCH: &str = "epoll";

/// The configuration and everything that an architecture starts its loops with.
pub struct Plan {
    pub(super) config: ServeConfig,
    pub(super) cpus: Vec<usize>,
    hosts: Hosts,
    pub(super) settings: LiveSettings,
    pub(super) limit: LiveLimit,
    pub(super) log: Option<LogSender>,
    refusals: Option<Refusals>,
    text: Option<ConfigText>,
    load_reports: Option<LoadReports>,
}

impl Plan {
    /// Makes a plan and checks its processors. Worker processes need `text`. Without `refusals` no connection is
    /// turned away, and without `tls` connections are plain.
    ///
    /// # Errors
    /// [`ServeError::Setting`] for processors that this process may not use.
    pub fn new(
        config: ServeConfig,
        hosts: Hosts,
        limit: LiveLimit,
        log: Option<LogSender>,
        refusals: Option<Refusals>,
        text: Option<ConfigText>,
        tls: Option<Sessions>,
    ) -> Result<Plan, ServeError> {
        // Only this process knows the key, so no attacker can choose addresses that share the cells of another
        // client.
        let key = [0, 1].map(|half: u8| RandomState::new().hash_one(half));
        let clients = Clients::new(&config.clients, config.max_connections, tls.is_some(), key);
        let allowed = sys::cpu::allowed().map_err(system("read the processor affinity"))?;
        Ok(Plan {
            cpus: usable(&config.cpus, allowed)?,
            hosts,
            settings: LiveSettings::new(config.http.clone())
                .with_tls(tls, &config.listen_http)
                .with_clients(clients),
            limit,
            log,
            refusals,
            text,
            load_reports: None,
            config,
        })
    }

    /// Returns the same plan with load reports, and the value that starts them; `None` if they are off.
    pub fn with_load_reports(self) -> (Plan, Option<ReportStarter>) {
        let (load_reports, starter) = self.config.load_reports.then(LoadReports::with_starter).unzip();
        (Plan { load_reports, ..self }, starter)
    }

    /// Returns the same plan, and the opening of its sockets, which takes over these listeners. Until the opening is
    /// consumed, the plan's loops know no address without TLS.
    pub fn with_opening(self, inheritance: Inheritance) -> (Plan, Opening) {
        let (settings, plain) = self.settings.until_bound();
        (Plan { settings, ..self }, Opening::new(inheritance, plain))
    }

    /// Returns the same plan for listening sockets in this custody.
    pub fn in_custody(self, custody: Custody) -> Plan {
        Plan { settings: self.settings.with_custody(custody), ..self }
    }

    /// Returns the custody of the listening sockets.
    pub fn custody(&self) -> &Custody {
        self.settings.custody()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ServeConfig {
        &self.config
    }

    /// Returns the processors that loops may be tied to, at least one.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Returns the limits and timeouts of the protocol.
    pub fn settings(&self) -> LiveSettings {
        self.settings.clone()
    }

    /// Returns the configuration for worker processes; `None` if the architecture cannot start them.
    pub fn text(&self) -> Option<ConfigText> {
        self.text.clone()
    }

    /// Returns the hosts, for separate [`Sites`](site::Sites).
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Returns the log, hosts and settings for the keeper of the kernel cache.
    pub fn keepers_materials(&self) -> Materials {
        Materials { log: self.log(), hosts: self.hosts.clone(), settings: self.settings() }
    }

    /// Returns the access log, if there is one.
    pub fn log(&self) -> Option<LogSender> {
        self.log.clone()
    }

    /// Makes an acceptor with the accept-limit and a connection limit.
    pub fn acceptor(&self, share: Share) -> Acceptor {
        Acceptor::new(self.limit(), share, self.refusals.clone()).limited_by(self.settings.clients().cloned())
    }

    /// Returns the event mechanism of readiness loops: the configured one, or the default.
    pub fn dispatch(&self) -> &'static str {
        self.config.dispatch.filter(|name| *name != URING).unwrap_or(DEFAULT_DISPATCH)
    }

    /// Returns the name of the mechanism by which event loops wait.
    pub fn waits_by(&self) -> &'static str {
        if self.config.driver() == Driver::Completion { URING } else { self.dispatch() }
    }

    /// Runs the event loop of a worker process on the driver of the parent process, which tried the same and has said so.
    ///
    /// # Errors
    /// The loop fails by a mistake of ours.
    pub fn run_worker<S: SocketService, A: Arrivals>(&self, parts: Parts<S, A>) -> io::Result<()> {
        let wants_ring = self.config.selected_driver().is_none_or(|(driver, _)| driver == Driver::Completion);
        if wants_ring && let Ok(ring) = CompletionRing::new() {
            return completion::run(parts, ring);
        }
        run_on::<S, ByPhases, A>(self.dispatch(), parts)
    }

    /// Returns the accept-limit, which may change during use.
    pub fn limit(&self) -> LiveLimit {
        self.limit.clone()
    }

    /// Returns the target delay of overload control; `None` while it is off.
    pub fn queue_target(&self) -> Option<Nanos> {
        let target = self.config.queue_target.unwrap_or(overload::Settings::default().target);
        (self.config.overload != Some(Switch::Off)).then_some(target)
    }

    /// Makes overload control by the backlog alone, for the accept queue of a worker process; `None` while it is off.
    pub fn control_by_backlog(&self, name: String, listeners: &[Listener]) -> Option<AcceptControl> {
        let backlog = self.config.backlog;
        self.queue_target().map(|target| AcceptControl::by_backlog(name, target, backlog, listeners))
    }

    /// Starts a loop for each accept queue, tied to a processor. Loops share processors in turn if there are more
    /// loops. They also share one connection limit.
    ///
    /// # Errors
    /// [`ServeError`]: descriptors, threads.
    pub fn start_loops<D: Discipline>(
        &self,
        queues: Vec<ControlledQueue>,
        opened: &Opened,
    ) -> Result<Vec<LoopHandle>, ServeError> {
        let stops = queues.iter().map(|_| stop()).collect::<Result<Vec<_>, _>>()?;
        let shares = Share::among(self.config.max_connections, stops.clone());
        let loops = queues.into_iter().zip(shares.into_iter().zip(stops)).enumerate();
        let start = |(index, (queue, (share, stop))): (usize, (ControlledQueue, (Share, Stop)))| {
            let parts = Parts { stop, ..self.parts(queue, share, opened)? };
            let cpu = self.cpus[index % self.cpus.len()];
            let name = format!("loop-{index}");
            match self.config.driver() {
                Driver::Readiness => start_readiness::<_, D>(name, self.dispatch(), &[cpu], parts),
                Driver::Completion => start_completion(name, &[cpu], parts),
            }
        };
        loops.map(start).collect()
    }

    /// Makes the parts of a loop that is alone.
    ///
    /// # Errors
    /// [`ServeError::System`]: descriptors.
    pub fn parts_alone(
        &self,
        queue: ControlledQueue,
        opened: &Opened,
    ) -> Result<Parts<Costly<LoopSites>>, ServeError> {
        self.parts(queue, Share::alone(self.config.max_connections), opened)
    }

    /// Makes the parts of a loop with counters of its own, which reports its files to the kernel cache.
    fn parts(
        &self,
        queue: ControlledQueue,
        share: Share,
        opened: &Opened,
    ) -> Result<Parts<Costly<LoopSites>>, ServeError> {
        let mut parts = self.parts_for(Listeners::new(queue, self.acceptor(share)))?;
        parts.service.observer = opened.kernel_cache.as_ref().map(|cache| cache.observer(self.hosts.clone()));
        Ok(parts)
    }

    /// Makes the service of a site, which tells the kernel cache nothing.
    pub fn costly<S>(&self, site: S) -> Costly<S> {
        Costly {
            site,
            burn: self.config.burn,
            observer: None,
            reports: self.load_reports.clone(),
            refusal: Refusal::default(),
        }
    }

    /// Makes the parts of a loop whose connections come from `arrivals`.
    ///
    /// # Errors
    /// [`ServeError::System`]: descriptors.
    pub fn parts_for<A>(&self, arrivals: A) -> Result<Parts<Costly<LoopSites>, A>, ServeError> {
        Ok(Parts {
            arrivals,
            service: self.costly(LoopSites(self.hosts.sites(RealClock::new()))),
            settings: self.settings(),
            read_after_accept: self.config.read_after_accept,
            log: self.log.clone().map(LoopLog::new),
            board: Board::default(),
            mechanism: self.config.mechanism.clone(),
            stop: stop()?,
            drain_timeout: self.config.drain_timeout,
        })
    }
}

fn stop() -> Result<Stop, ServeError> {
    Stop::new().map_err(system("make an eventfd"))
}

/// Returns the processors to tie loops to: the configured ones, or all allowed ones.
fn usable(asked: &[usize], allowed: Vec<usize>) -> Result<Vec<usize>, ServeError> {
    if asked.is_empty() {
        return Ok(allowed);
    }
    // The present set may be widened, so only the kernel knows the allowed processors. Pinning to each one here
    // reports a wrong setting before any loop starts.
    for cpu in asked {
        sys::cpu::pin(&[*cpu]).map_err(|_| ServeError::Setting {
            setting: "--cpus",
            given: cpu.to_string(),
            accepted: format!("not a processor that this process may use; expected {}", list(&allowed)),
        })?;
    }
    sys::cpu::pin(&allowed).map_err(system("restore the processor affinity"))?;
    Ok(asked.to_vec())
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Starts a thread that runs a readiness loop. An empty `cpus` means any processor.
///
/// # Errors
/// [`ServeError::System`]: no thread.
pub fn start_readiness<S: SocketService + Send + 'static, D: Discipline>(
    name: String,
    dispatch: &'static str,
    cpus: &[usize],
    parts: Parts<S>,
) -> Result<LoopHandle, ServeError> {
    let (stop, board) = (parts.stop.clone(), parts.board.clone());
    let addresses = addresses(&parts.arrivals.listeners);
    start_thread(name, cpus, stop, board, addresses, move || run_on::<S, D, _>(dispatch, parts))
}

/// Starts a thread that runs a completion loop. An empty `cpus` means any processor.
fn start_completion<S: SocketService + Send + 'static>(
    name: String,
    cpus: &[usize],
    parts: Parts<S>,
) -> Result<LoopHandle, ServeError> {
    let (stop, board) = (parts.stop.clone(), parts.board.clone());
    let addresses = addresses(&parts.arrivals.listeners);
    // The ring belongs to the thread that makes it.
    start_thread(name, cpus, stop, board, addresses, move || completion::run(parts, CompletionRing::new()?))
}

/// Returns the addresses of these listeners, without duplicates.
pub fn addresses(listeners: &[Listener]) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for Listener { address, .. } in listeners {
        if !addresses.contains(address) {
            addresses.push(*address);
        }
    }
    addresses
}

/// Runs an expression with the type of the event mechanism that has a name.
macro_rules! on_mechanism {
    (($wanted:expr, $mechanism:ident => $run:expr) $($name:literal => $type:ty,)*) => {
        match $wanted {
            $($name => {
                type $mechanism = $type;
                $run
            })*
            other => Err(std::io::Error::other(format!("no event mechanism is called {other}"))),
        }
    };
    ($wanted:expr, $mechanism:ident => $run:expr) => {
        dispatch::for_each_mechanism!(on_mechanism, ($wanted, $mechanism => $run))
    };
}
pub(crate) use on_mechanism;

/// Runs the readiness loop on the mechanism of this name.
pub fn run_on<S: SocketService, D: Discipline, A: Arrivals>(
    dispatch: &str,
    parts: Parts<S, A>,
) -> io::Result<()> {
    on_mechanism!(dispatch, Found => readiness::run::<Found, S, D, A>(parts))
}
