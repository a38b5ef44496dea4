//! The plan of a server: the configuration and everything that an architecture starts its loops with.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, OnceLock};

use base::{Nanos, RealClock, lock};
use overload::hook::Routing;
use site::{Hosts, Sites};
use sys::completion::CompletionRing;
use sys::socket::steer_by_cpu;
use tls::Sessions;

use crate::config::serve::ServeConfig;
use crate::connections::accept::{Acceptor, LiveLimit};
use crate::connections::clients::Clients;
use crate::connections::overload_control::{AcceptControl, ControlledQueue, Overload};
use crate::connections::refusals::Refusals;
use crate::connections::settings::LiveSettings;
use crate::connections::slots::Share;
use crate::driver::completion;
use crate::driver::event_loop::{Arrivals, Listeners, Parts};
use crate::driver::readiness::{self, ByPhases, Discipline};
use crate::driver::socket_service::SocketService;
use crate::ground::choices::{Driver, Switch, URING};
use crate::ground::config_text::ConfigText;
use crate::ground::counters::Board;
use crate::ground::error::{ServeError, system};
use crate::ground::listener::{Inheritance, Listener, bind_group, listen, take_over};
use crate::ground::stop::Stop;
use crate::ground::threads::{LoopHandle, start_thread};
use crate::kernel_cache::{Materials, SharedCache};
use crate::observation::access_log::{LogSender, LoopLog};
use crate::observation::load_report::LoadReports;
use crate::service::{Costly, Refusal};

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
    kernel_cache: OnceLock<SharedCache>,
    overload: OnceLock<Overload>,
    driver: OnceLock<Driver>,
    inheritance: Mutex<Inheritance>,
    copies: Mutex<Vec<(SocketAddr, Vec<OwnedFd>)>>,
    reports: LoadReports,
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
            settings: LiveSettings::new(config.http.clone()).with_tls(tls).with_clients(clients),
            limit,
            log,
            refusals,
            text,
            kernel_cache: OnceLock::new(),
            overload: OnceLock::new(),
            driver: OnceLock::new(),
            inheritance: Mutex::default(),
            copies: Mutex::default(),
            reports: LoadReports::default(),
            config,
        })
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

    /// Returns the hosts, for separate [`Sites`].
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
        if self.driver() == Driver::Completion { URING } else { self.dispatch() }
    }

    /// Returns the driver of event loops. If the kernel refuses io_uring, this is readiness, and a line says why.
    pub fn driver(&self) -> Driver {
        *self.driver.get_or_init(|| match self.config.driver() {
            Driver::Readiness => Driver::Readiness,
            Driver::Completion => match try_completions() {
                Ok(()) => Driver::Completion,
                Err(error) => {
                    sys::say!(
                        "inrush: --driver completion needs io_uring of Linux 6.1 ({error}); using --driver readiness"
                    );
                    Driver::Readiness
                }
            },
        })
    }

    /// Runs the event loop of a worker process on the configured driver. Without io_uring the loop uses readiness; the
    /// parent process has said so.
    ///
    /// # Errors
    /// The loop fails by a mistake of ours.
    pub fn run_worker<S: SocketService, A: Arrivals>(&self, parts: Parts<S, A>) -> io::Result<()> {
        if self.config.driver() == Driver::Completion
            && let Ok(ring) = CompletionRing::new()
        {
            return completion::run(parts, ring);
        }
        run_on::<S, ByPhases, A>(self.dispatch(), parts)
    }

    /// Returns the accept-limit, which may change during use.
    pub fn limit(&self) -> LiveLimit {
        self.limit.clone()
    }

    /// Returns the kernel cache of the listeners, if it is configured and could be loaded.
    pub fn kernel_cache(&self) -> Option<&SharedCache> {
        self.kernel_cache.get()
    }

    /// Returns the target delay of overload control; `None` while it is off.
    pub fn queue_target(&self) -> Option<Nanos> {
        let target = self.config.queue_target.unwrap_or(overload::Settings::default().target);
        (self.config.overload != Some(Switch::Off)).then_some(target)
    }

    /// Returns the load reports; `None` while they are off.
    pub fn load_reports(&self) -> Option<LoadReports> {
        self.config.load_reports.then(|| self.reports.clone())
    }

    /// Returns the overload control of this server; `None` while it is off.
    pub fn overload(&self) -> Option<Overload> {
        self.overload.get().cloned()
    }

    /// Listens on every address with `queues` accept queues, and with overload control unless it is off. Call it
    /// once.
    ///
    /// # Errors
    /// [`ServeError::Listen`]; [`ServeError::System`] if the kernel rejects the routing.
    pub fn listen(&self, queues: usize, routing: Routing) -> Result<Vec<ControlledQueue>, ServeError> {
        let target = self.queue_target();
        let takes_over = lock(&self.inheritance).has_predecessor();
        let sets = self.listen_in(queues, target.is_some())?;
        let inherited = takes_over.then(|| lock(&self.inheritance).take_sinks());
        // With sinks in the group, the program of before stays until that of the sinks replaces it.
        if let Routing::ByCpu(cpus) = &routing
            && inherited.as_ref().is_none_or(Vec::is_empty)
        {
            for listener in &sets[0] {
                steer_by_cpu(listener.socket.as_fd(), cpus)
                    .map_err(system("steer connections by processor"))?;
            }
        }
        let mut controls = Vec::new();
        if let Some(target) = target {
            let overload;
            let (backlog, hook) = (self.config.backlog, self.config.overload_hook);
            (overload, controls) = Overload::control(inherited, target, backlog, &sets, routing, hook);
            self.overload.get_or_init(|| overload);
        }
        let controls = controls.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        Ok(sets
            .into_iter()
            .zip(controls)
            .map(|(listeners, control)| ControlledQueue { listeners, control })
            .collect())
    }

    /// Listens on every address once, with overload control unless it is off.
    ///
    /// # Errors
    /// The errors of [`Plan::listen`].
    pub fn listen_once(&self) -> Result<ControlledQueue, ServeError> {
        Ok(self.listen(1, Routing::Even)?.remove(0))
    }

    /// Listens on every address with `queues` sets of listeners, without overload control.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub fn listen_uncontrolled(&self, queues: usize) -> Result<Vec<Vec<Listener>>, ServeError> {
        self.listen_in(queues, false)
    }

    /// Binds a group of `workers` sockets at every address, for the hand-off by the kernel. Returns a set for each
    /// worker. None of them listens yet.
    ///
    /// # Errors
    /// [`ServeError::Listen`]; [`ServeError::Setting`] if another process has opened the sockets.
    pub fn bind_groups(&self, workers: usize) -> Result<Vec<Vec<Listener>>, ServeError> {
        refuse_inherited(&lock(&self.inheritance))?;
        let mut sets: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
        for address in &self.config.listen {
            let group = bind_group(*address, workers)
                .map_err(|cause| ServeError::Listen { address: *address, cause })?;
            sets.iter_mut().zip(group).for_each(|(set, listener)| set.push(listener));
        }
        Ok(sets)
    }

    /// Makes overload control by the backlog alone, for the accept queue of a worker process; `None` while it is off.
    pub fn control_by_backlog(&self, name: String, listeners: &[Listener]) -> Option<AcceptControl> {
        let backlog = self.config.backlog;
        self.queue_target().map(|target| AcceptControl::by_backlog(name, target, backlog, listeners))
    }

    fn listen_in(&self, queues: usize, group: bool) -> Result<Vec<Vec<Listener>>, ServeError> {
        let mut sets: Vec<Vec<Listener>> = (0..queues).map(|_| Vec::new()).collect();
        for listeners in self.open(queues, group)? {
            // There are more listeners than queues if a predecessor had more.
            for (index, listener) in listeners.into_iter().enumerate() {
                sets[index % queues].push(listener);
            }
        }
        if self.config.kernel_cache
            && let Some(cache) = SharedCache::load(&sets)
        {
            let _ = self.kernel_cache.set(cache);
        }
        Ok(sets)
    }

    /// Opens the listeners of every address, or takes over those of a predecessor. Every address gets the same number
    /// of listeners, at least `queues`.
    fn open(&self, queues: usize, group: bool) -> Result<Vec<Vec<Listener>>, ServeError> {
        let (config, upgrades) = (&self.config, self.config.upgrade == Switch::On);
        let mut inheritance = std::mem::take(&mut *lock(&self.inheritance));
        let inherited: Vec<Vec<OwnedFd>> =
            config.listen.iter().map(|address| inheritance.take(*address)).collect();
        let count = inherited.iter().map(Vec::len).fold(queues, usize::max);
        let failed = |address: SocketAddr| move |cause| ServeError::Listen { address, cause };
        let mut opened: Vec<Option<Vec<Listener>>> = Vec::new();
        for (address, inherited) in config.listen.iter().zip(&inherited) {
            // A successor of this server may have more queues.
            let own = || listen(*address, config.backlog, count, group || upgrades).map_err(failed(*address));
            opened.push(if inherited.is_empty() { Some(own()?) } else { None });
        }
        // Comes after the steps that may fail, because from here on the predecessor refuses no connection.
        inheritance.settle().map_err(system("take over from the running server"))?;
        let mut sinks = inheritance.take_sinks();
        let stay = group
            && config.overload_hook.is_none()
            && inherited.iter().all(|sockets| [0, count].contains(&sockets.len()));
        if !stay {
            // New listeners must precede the sinks in their group, so the sinks leave it first.
            sinks.clear();
        }
        let mut all = Vec::new();
        for ((address, inherited), own) in config.listen.iter().zip(inherited).zip(opened) {
            let listeners = match own {
                Some(own) => own,
                None => take_over(inherited, config.backlog, count, !sinks.is_empty())
                    .map_err(failed(*address))?,
            };
            if upgrades {
                let copies = listeners.iter().map(|listener| listener.socket.try_clone());
                let copies = copies.collect::<io::Result<_>>().map_err(system("copy the listeners"))?;
                lock(&self.copies).push((*address, copies));
            }
            all.push(listeners);
        }
        lock(&self.inheritance).add_sinks(sinks);
        Ok(all)
    }

    /// Takes over the listeners of another process, instead of opening new ones at their addresses.
    pub fn inheriting(self, listeners: Inheritance) -> Plan {
        Plan { inheritance: Mutex::new(listeners), ..self }
    }

    /// Takes the copies of the listening sockets that a successor will get, by configured address.
    pub fn take_copies(&self) -> Vec<(SocketAddr, Vec<OwnedFd>)> {
        std::mem::take(&mut *lock(&self.copies))
    }

    /// Starts a loop for each accept queue, tied to a processor. Loops share processors in turn if there are more
    /// loops. They also share one connection limit.
    ///
    /// # Errors
    /// [`ServeError`]: descriptors, threads.
    pub fn start_loops<D: Discipline>(
        &self,
        queues: Vec<ControlledQueue>,
    ) -> Result<Vec<LoopHandle>, ServeError> {
        let stops = queues.iter().map(|_| stop()).collect::<Result<Vec<_>, _>>()?;
        let shares = Share::among(self.config.max_connections, stops.clone());
        let loops = queues.into_iter().zip(shares.into_iter().zip(stops)).enumerate();
        let driver = self.driver();
        let start = |(index, (queue, (share, stop))): (usize, (ControlledQueue, (Share, Stop)))| {
            let parts = Parts { stop, ..self.parts(queue, share)? };
            let cpu = self.cpus[index % self.cpus.len()];
            let name = format!("loop-{index}");
            match driver {
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
    pub fn parts_alone(&self, queue: ControlledQueue) -> Result<Parts<Costly<Sites>>, ServeError> {
        self.parts(queue, Share::alone(self.config.max_connections))
    }

    /// Makes the parts of a loop with a cache and counters of its own.
    fn parts(&self, queue: ControlledQueue, share: Share) -> Result<Parts<Costly<Sites>>, ServeError> {
        self.parts_for(Listeners::new(queue, self.acceptor(share)))
    }

    /// Makes the service of a site, which tells the kernel cache nothing.
    pub fn costly<S>(&self, site: S) -> Costly<S> {
        Costly {
            site,
            burn: self.config.burn,
            observer: None,
            reports: self.load_reports(),
            refusal: Refusal::default(),
        }
    }

    /// Makes the parts of a loop whose connections come from `arrivals`.
    ///
    /// # Errors
    /// [`ServeError::System`]: descriptors.
    pub fn parts_for<A>(&self, arrivals: A) -> Result<Parts<Costly<Sites>, A>, ServeError> {
        let observer = self.kernel_cache().map(|cache| cache.observer(self.hosts.clone()));
        Ok(Parts {
            arrivals,
            service: Costly { observer, ..self.costly(self.hosts.sites(RealClock::new())) },
            settings: self.settings(),
            read_after_accept: self.config.read_after_accept,
            log: self.log.clone().map(LoopLog::new),
            board: Board::default(),
            mechanism: self.config.mechanism,
            stop: stop()?,
            drain_timeout: self.config.drain_timeout,
        })
    }
}

fn stop() -> Result<Stop, ServeError> {
    Stop::new().map_err(system("make an eventfd"))
}

/// Refuses the hand-off by the kernel for the sockets of another process, which form no group for each worker.
fn refuse_inherited(inheritance: &Inheritance) -> Result<(), ServeError> {
    if inheritance.addresses().is_empty() {
        return Ok(());
    }
    Err(ServeError::Setting {
        setting: "--handoff",
        given: "kernel".to_owned(),
        accepted:
            "it needs sockets that this server opens itself, and systemd has opened them; use --handoff fd"
                .to_owned(),
    })
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

/// Makes a ring, as a completion loop does. Closing a ring interrupts a blocking call of the thread that made it, so
/// a short-lived thread makes this one.
fn try_completions() -> io::Result<()> {
    let tried = std::thread::spawn(|| CompletionRing::new().map(drop)).join();
    tried.unwrap_or_else(|_| Err(io::Error::other("the attempt to make a ring failed")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hand_off_by_the_kernel_refuses_sockets_that_another_process_has_opened() {
        let mut inheritance = Inheritance::default();
        assert!(refuse_inherited(&inheritance).is_ok());
        let listener = listen("127.0.0.1:0".parse().unwrap(), 1, 1, false).unwrap().remove(0);
        inheritance.add(listener.address, vec![listener.socket]);
        let refusal = refuse_inherited(&inheritance).unwrap_err().to_string();
        assert!(refusal.starts_with("--handoff kernel: ") && !refusal.contains('\n'), "{refusal}");
    }
}
