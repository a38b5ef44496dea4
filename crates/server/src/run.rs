//! A server from start to end: sockets, loops, admin interface, signals, shutdown. `check` tries a configuration alone.
//!
//! The main thread only waits for signals. A loop that ends unasked raises SIGTERM in this process. So the others
//! finish in order, and the failure is reported.

pub mod check;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use base::{Clock, Nanos, RealClock};
use connection::{Custody, LiveSettings};
use side_servers::{AdminAddress, AdminListener, Guard, ListenError};
use sys::thread::signal::{self, Signal};
use tls::Sessions;

use crate::architecture::Architecture;
use crate::config::driver::ChosenDriver;
use crate::config::hosts::{self, LiveHosts};
use crate::config::serve::{AdminSettings, ServeConfig};
use crate::connections::accept::{AcceptLimit, LiveLimit};
use crate::connections::overload_control::Overload;
use crate::connections::refusals::Refusals;
use crate::ground::choices::{Choice, Switch};
use crate::ground::config_text::ConfigText;
use crate::ground::counters::{Board, Counters};
use crate::ground::error::{ServeError, system};
use crate::ground::threads::LoopHandle;
use crate::kernel_cache::SharedCache;
use crate::observation::access_log::{self, LogEnd, LogSender};
use crate::observation::agent_check::{AgentCheck, Capacity, Meter};
use crate::observation::load_report::ReportStarter;
use crate::operation::admin::{Access, Admin, History, RunningAdmin};
use crate::operation::certificates::{Certificates, LOOK_EVERY};
use crate::operation::confinement::{Confined, Confinement};
use crate::operation::rereads::Rereads;
use crate::operation::service_manager::Notifier;
use crate::operation::upgrade::{AdminSocket, Beginning, Inherited, Predecessor, Progress, Successor};
use crate::plan::refusal_loop;
use crate::plan::{Opened, Plan, Started};

/// The time between two looks at the other program during a hand-over.
const HAND_OVER_LOOK: Nanos = Nanos::from_millis(5);
/// The time after which loops count as begun in any case, because a kernel may not show their accept queues.
const BEGUN_WITHIN: Nanos = Nanos::from_secs(5);

/// The result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that had not finished when the drain timeout ended.
    pub cut_off: u64,
}

/// A running server.
pub struct Server {
    loops: Vec<LoopHandle>,
    /// Answers the connections that the loops turn away.
    refusals: LoopHandle,
    admin: Option<RunningAdmin>,
    agent: Option<AgentCheck>,
    drain_timeout: Nanos,
    log: Option<(LogSender, LogEnd)>,
    /// Dropped last: connections that the program answered need it until they end.
    kernel_cache: Option<(SharedCache, LoopHandle)>,
    overload: Option<Overload>,
    certificates: Option<Certificates>,
    confined: Option<Confined>,
    driver: Option<ChosenDriver>,
    unvouched: Option<String>,
    live: Live,
    /// Whose the listening sockets are.
    custody: Custody,
    /// Hands over to a newer program, if it may.
    predecessor: Mutex<Option<Predecessor>>,
    /// Takes over from an older program, until it is ready.
    successor: Mutex<Option<Successor>>,
    service_manager: Notifier,
    /// The time by which the server announces in any case that it serves; `None` once it has.
    announces_by: Option<Nanos>,
}

/// The settings that may change while the server runs.
struct Live {
    limit: LiveLimit,
    /// The accept-limit of the configuration.
    configured: Option<AcceptLimit>,
    /// The accept-limit if the configuration has none.
    usual: AcceptLimit,
    settings: LiveSettings,
    hosts: LiveHosts,
    text: Option<ConfigText>,
}

impl Live {
    fn of(plan: &Plan, usual: AcceptLimit) -> Live {
        Live {
            limit: plan.limit(),
            configured: plan.config.accept_limit,
            usual,
            settings: plan.settings(),
            hosts: LiveHosts::of(&plan.config.hosts),
            text: plan.text(),
        }
    }
}

/// A configuration that was read again.
#[derive(Debug)]
pub struct Reread {
    /// The checked configuration. Only settings that may change while the server runs are used.
    pub config: ServeConfig,
    /// The configuration as text, for present and future worker processes. Settings that may not change keep their
    /// values.
    pub text: String,
}

impl Server {
    /// Opens everything and starts every thread. `text` is the source of the configuration. Worker processes parse it
    /// again; architectures without them need none. From here on, only [`Server::wait`] sees SIGTERM, SIGINT, SIGHUP and
    /// SIGUSR2.
    ///
    /// # Errors
    /// [`ServeError`]; then only threads that end with the process are left running.
    pub fn start(
        architecture: &'static Architecture,
        mut config: ServeConfig,
        text: Option<String>,
    ) -> Result<Server, ServeError> {
        let driver = architecture.settle_config(&mut config)?;
        signal::block().map_err(system("block signals"))?;
        let Beginning { successor, inherited, starter, service_manager } = Beginning::of(&mut config)?;
        let Inherited { listeners, admin, custody, ticket_keys, is_activated } = inherited;
        // From the first loop on, a predecessor is without overload control: what may fail comes before. Otherwise an open
        // admin port says that the server listens.
        let early = successor.as_ref().map(|_| Aside::open(&config, admin, &custody)).transpose()?;
        // The quota is read now, because a confined server cannot read it.
        let quota = (config.agent_check.is_some() || config.load_reports).then(sys::cpu::quota).flatten();
        let confinement = Confinement::begin(&config, architecture.has_workers());
        let log = access_log::of(&config)?;
        let certificates = Certificates::of(&config, ticket_keys.as_deref())?;
        let tls = certificates.as_ref().map(Certificates::sessions);
        let usual = architecture.usual_accept_limit(&config);
        let limit = config.accept_limit.unwrap_or(usual);
        let (limit, text) = match architecture.work {
            None => (LiveLimit::new(limit), None),
            Some(_) => share_with_workers(limit, text, tls.as_ref())?,
        };
        let refusals = Refusals::new().map_err(system("make an eventfd"))?;
        let sender = log.as_ref().map(|(sender, _)| sender.clone());
        let hosts = hosts::open(&config, tls.as_ref())?;
        let plan = Plan::new(config, hosts, limit, sender, Some(refusals.clone()), text, tls)?;
        let (plan, opening) = plan.in_custody(custody).with_opening(listeners);
        let (plan, report_starter) = plan.with_load_reports();
        let refusals = refusal_loop::start(&plan, refusals)?;
        let Started { loops, opened } = (architecture.start)(&plan, opening)?;
        let begun = Begun { architecture, plan: &plan, loops: &loops, refusals: &refusals, opened: &opened };
        let keeper = |cache: &SharedCache| {
            Ok::<_, ServeError>((cache.clone(), cache.start_keeper(plan.keepers_materials())?))
        };
        let kernel_cache = opened.kernel_cache.as_ref().map(keeper).transpose()?;
        let evicted = Arc::<AtomicU64>::default();
        let start = |starter: ReportStarter| starter.start(begun.meter(quota), RealClock::new().now());
        report_starter.into_iter().for_each(start);
        let Aside { admin, admin_socket, agent } = Aside::now_unless(early, &plan)?;
        let start = |listener| AgentCheck::start(listener, begun.meter(quota), Arc::clone(&evicted));
        let agent = agent.map(start).transpose()?;
        let start = |(listener, settings)| begun.start_admin(listener, settings, evicted);
        let admin = admin.zip(plan.config.admin.as_ref()).map(start).transpose()?;
        let predecessor =
            starter.map(|starter| Predecessor::new(starter, opened.copies, admin_socket, is_activated));
        let certificates = certificates.map(|certificates| certificates.told_to(plan.text()));
        Ok(Server {
            unvouched: hosts::unvouched(&plan.config, plan.settings.tls()),
            overload: opened.overload,
            driver,
            loops,
            refusals,
            admin,
            agent,
            drain_timeout: plan.config.drain_timeout,
            log,
            kernel_cache,
            certificates,
            live: Live::of(&plan, usual),
            predecessor: Mutex::new(predecessor),
            successor: Mutex::new(successor),
            service_manager,
            announces_by: Some(RealClock::new().now() + BEGUN_WITHIN),
            custody: plan.custody().clone(),
            confined: confinement.finish(&plan.config)?,
        })
    }

    /// Returns the addresses that the server listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.loops.first().map_or(&[], |first| &first.addresses)
    }

    /// Returns the driver of the event loops, with the reason; `None` if the architecture has only one.
    pub fn driver(&self) -> Option<&ChosenDriver> {
        self.driver.as_ref()
    }

    /// Tells whether connections to one of these addresses are without TLS.
    pub fn is_plain(&self, address: SocketAddr) -> bool {
        self.live.settings.is_plain(address)
    }

    /// Returns the overload control; `None` if it is off, or if the architecture has controllers of its own.
    pub fn overload(&self) -> Option<&Overload> {
        self.overload.as_ref()
    }

    /// Returns the rights that the server has left; `None` if nothing confines it.
    pub fn confined(&self) -> Option<&Confined> {
        self.confined.as_ref()
    }

    /// Returns the names of the certificates; `None` without TLS.
    pub fn certificate_names(&self) -> Option<Vec<String>> {
        self.certificates.as_ref().map(Certificates::names)
    }

    /// Returns a line about the names of hosts that no certificate has; `None` if there are none.
    pub fn unvouched(&self) -> Option<&str> {
        self.unvouched.as_deref()
    }

    /// Returns the address of the admin interface.
    pub fn admin_address(&self) -> Option<&AdminAddress> {
        self.admin.as_ref().map(|admin| &admin.address)
    }

    /// Returns the address of the agent check.
    pub fn agent_address(&self) -> Option<&AdminAddress> {
        self.agent.as_ref().map(|agent| &agent.address)
    }

    /// Waits for SIGTERM or SIGINT, then shuts down; a second one ends the process at once. At SIGHUP, and at most ten
    /// times a second, it opens the access log anew, reads certificates again, and gets the configuration from `reread`. It
    /// applies the accept-limit, the limits and timeouts of the protocol, and the rules of the site. It also reads
    /// certificates again when their files have changed. At SIGUSR2 it hands over to a newer program, and shuts down once
    /// that serves. Blocks.
    ///
    /// # Errors
    /// [`ServeError::Thread`] if a thread ended by itself.
    pub fn wait(mut self, mut reread: impl FnMut() -> Reread) -> Result<Drained, ServeError> {
        let (clock, mut rereads) = (RealClock::new(), Rereads::default());
        loop {
            self.announce();
            if rereads.begin(clock.now()) {
                self.service_manager.reloading();
                self.certificates.iter_mut().for_each(Certificates::read_again);
                self.apply(reread());
                self.service_manager.ready();
            }
            let patience = [self.patience(), rereads.left(clock.now())].into_iter().flatten().min();
            match signal::wait(patience).map_err(system("wait for signals"))? {
                Some(Signal::HangUp) => rereads.ask(clock.now()),
                Some(Signal::Terminate | Signal::Interrupt) => {
                    self.service_manager.stopping();
                    // A successor may have become ready since the last look.
                    if self.hands_over() || self.service_manager.keeps_sockets() {
                        self.custody.pass_on();
                    }
                    end_when_asked_twice(1);
                    return self.shut_down();
                }
                Some(Signal::Upgrade) => self.begin_to_hand_over(),
                None if self.is_changing_hands() => {}
                None => {
                    self.certificates.iter_mut().for_each(Certificates::read_if_changed);
                    self.overload.iter().for_each(Overload::follow_devices);
                }
            }
            self.service_manager.alive();
            if self.hands_over() {
                self.custody.pass_on();
                end_when_asked_twice(0);
                return self.shut_down();
            }
        }
    }

    /// Returns the maximum time to wait for a signal before the next periodic check.
    fn patience(&mut self) -> Option<Nanos> {
        if self.is_changing_hands() {
            return Some(HAND_OVER_LOOK);
        }
        let certificates = self.certificates.as_ref().map(|_| LOOK_EVERY);
        let devices = self.overload.as_ref().filter(|overload| overload.has_devices()).map(|_| LOOK_EVERY);
        [certificates, devices, self.service_manager.alive_every()].into_iter().flatten().min()
    }

    fn is_changing_hands(&mut self) -> bool {
        self.announces_by.is_some()
            || held(&mut self.predecessor).as_ref().is_some_and(Predecessor::is_under_way)
    }

    /// Tells a predecessor and systemd that this server serves, once all loops have begun.
    fn announce(&mut self) {
        let has_workers = self.live.text.is_some();
        let has_begun = |running: &LoopHandle| {
            let counters = running.board.read();
            counters.queue.limit > 0 && (!has_workers || counters.loops.workers_started > 0)
        };
        let Some(by) = self.announces_by else { return };
        if !self.loops.iter().all(has_begun) && RealClock::new().now() < by {
            return;
        }
        self.announces_by = None;
        match held(&mut self.successor).take() {
            // The predecessor tells systemd, which does not listen to this process yet.
            Some(successor) => successor.ready(),
            None => self.service_manager.ready(),
        }
    }

    fn begin_to_hand_over(&mut self) {
        let keys = self.certificates.as_ref().map(Certificates::ticket_keys);
        match held(&mut self.predecessor) {
            Some(predecessor) => {
                // Without a free descriptor the successor makes its own.
                let sinks = self.overload.as_ref().and_then(|overload| overload.sinks().ok());
                if predecessor.begin(&sinks.unwrap_or_default(), keys.as_deref()) {
                    self.service_manager.reloading();
                }
            }
            None => {
                sys::say!("inrush: SIGUSR2: this server cannot hand over; it needs --upgrade on at its start")
            }
        }
    }

    /// Advances a hand-over. Returns true once the successor serves.
    fn hands_over(&mut self) -> bool {
        let Some(predecessor) = held(&mut self.predecessor) else { return false };
        match predecessor.advance() {
            Progress::None => false,
            Progress::Failed => {
                self.service_manager.ready();
                false
            }
            Progress::Prepared => {
                self.overload.iter().for_each(Overload::withdraw);
                predecessor.let_go_on();
                false
            }
            Progress::Ready(process) => {
                self.service_manager.replaced_by(process);
                // Both would answer at the one socket, and a setting might change here alone.
                self.admin.iter().for_each(|admin| admin.running.stop.ask());
                true
            }
        }
    }

    fn apply(&mut self, reread: Reread) {
        if let Some((sender, _)) = &self.log {
            sender.reopen();
        }
        let Live { limit, configured, usual, settings, hosts, text } = &mut self.live;
        // A limit that was set through the admin interface stays, unless the configured one has changed.
        if reread.config.accept_limit != *configured {
            *configured = reread.config.accept_limit;
            limit.set(configured.unwrap_or(*usual));
        }
        settings.set(reread.config.http);
        hosts.take_from(&reread.config.hosts);
        // Workers open their logs again as well.
        if let Some(text) = text {
            text.replace(reread.text);
        }
    }

    /// Returns the counters of all loops together; at most 10 ms old.
    pub fn counters(&self) -> Counters {
        Counters::of_server(self.loops.iter().map(|running| running.board.read()), &self.refusals.board)
    }

    /// Stops accepting, lets connections finish, and ends every thread. Blocks, at most for the drain timeout twice: for
    /// the loops, then for the connections that they turned away. Before that, load balancers may take 5 s; worker
    /// processes and the log may take 1 s more each.
    ///
    /// # Errors
    /// [`ServeError::Thread`] if a thread ended by itself.
    pub fn shut_down(mut self) -> Result<Drained, ServeError> {
        // From here on, only its loop keeps a listening socket open.
        drop(held(&mut self.predecessor).take());
        if let Some(agent) = &self.agent {
            agent.drain(self.drain_timeout);
        }
        if let Some((cache, keeper)) = &self.kernel_cache {
            cache.disable();
            keeper.stop.ask();
        }
        for running in &self.loops {
            running.stop.ask();
        }
        let mut total = Counters::default();
        let mut ended = Ok(());
        for running in self.loops {
            let board = running.board.clone();
            ended = ended.and(running.join());
            total.add(&board.read());
        }
        // The loops turn connections away until they have ended.
        let admin = self.admin.map(|RunningAdmin { running, .. }| running);
        for server in [Some(self.refusals), admin].into_iter().flatten() {
            server.stop.ask();
            ended = ended.and(server.join());
        }
        if let Some(agent) = self.agent {
            ended = ended.and(agent.stop());
        }
        if let Some((_, keeper)) = self.kernel_cache {
            ended = ended.and(keeper.join());
        }
        if let Some((sender, end)) = self.log {
            access_log::close(sender, &end);
        }
        ended.map(|()| Drained { cut_off: total.loops.cut_off_at_shutdown })
    }
}

/// Makes the accept-limit and the configuration for worker processes.
fn share_with_workers(
    limit: AcceptLimit,
    text: Option<String>,
    tls: Option<&Sessions>,
) -> Result<(LiveLimit, Option<ConfigText>), ServeError> {
    let text = text.map(|text| ConfigText::new(text, tls.cloned())).transpose();
    let limit = LiveLimit::shared(limit).map_err(system("make shared memory"))?;
    Ok((limit, text.map_err(system("make an eventfd"))?))
}

/// Returns the content of a mutex to its only owner.
fn held<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process at the second request to end, of which `asked` have come, without waiting for connections to
/// finish. A hand-over is none: systemd asks both processes when it stops the service.
fn end_when_asked_twice(mut asked: u32) {
    let body = move || {
        while let Ok(signal) = signal::wait(None) {
            asked += u32::from(matches!(signal, Some(Signal::Terminate | Signal::Interrupt)));
            if asked == 2 {
                sys::say!("inrush: asked to end twice: not waiting for connections to finish");
                std::process::exit(1);
            }
        }
    };
    // Without the thread a second signal has no effect.
    let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(body);
}

/// The listening sockets of the side servers.
struct Aside {
    admin: Option<AdminListener>,
    /// A copy of the admin interface's socket for a successor, if there may be one.
    admin_socket: Option<AdminSocket>,
    agent: Option<AdminListener>,
}

impl Aside {
    /// Listens now, unless a successor did so early.
    fn now_unless(early: Option<Aside>, plan: &Plan) -> Result<Aside, ServeError> {
        early.map_or_else(|| Aside::open(&plan.config, None, plan.custody()), Ok)
    }

    /// Listens for the side servers that the configuration asks for.
    fn open(
        config: &ServeConfig,
        inherited: Option<(String, OwnedFd)>,
        custody: &Custody,
    ) -> Result<Aside, ServeError> {
        let address = config.admin.as_ref().map(|settings| &settings.address);
        let admin = address.map(|address| listen_for_admin(address, inherited)).transpose()?;
        let admin = admin.map(|listener| listener.in_custody(custody));
        let copied = admin.as_ref().filter(|_| config.upgrade == Switch::On);
        let copied = copied.map(|listener| listener.socket().try_clone_to_owned()).transpose();
        let agent = config.agent_check.map(AdminAddress::Internet);
        Ok(Aside {
            admin_socket: address.cloned().zip(copied.map_err(system("copy a socket"))?),
            admin,
            agent: agent.as_ref().map(AdminListener::open).transpose()?,
        })
    }
}

/// Listens for the admin interface, on a predecessor's socket if that has one for the address.
fn listen_for_admin(
    address: &AdminAddress,
    inherited: Option<(String, OwnedFd)>,
) -> Result<AdminListener, ListenError> {
    match inherited.filter(|(of, _)| *of == address.to_string()) {
        Some((_, socket)) => AdminListener::inherited(address, socket),
        None => AdminListener::open(address),
    }
}

/// A server whose loops have begun, for the small servers beside it.
struct Begun<'a> {
    architecture: &'static Architecture,
    plan: &'a Plan,
    loops: &'a [LoopHandle],
    refusals: &'a LoopHandle,
    opened: &'a Opened,
}

impl Begun<'_> {
    /// Starts the admin interface, a small server of its own.
    fn start_admin(
        &self,
        listener: AdminListener,
        settings: &AdminSettings,
        agent_evicted: Arc<AtomicU64>,
    ) -> Result<RunningAdmin, ServeError> {
        let AdminSettings { address, hosts, token } = settings;
        let dispatches = self.architecture.uses.contains(&Choice::Dispatch);
        let admin = Admin {
            architecture: self.architecture.name,
            dispatch: if dispatches { self.plan.waits_by() } else { "none" },
            limit: self.plan.limit(),
            boards: self.boards(),
            refusals: self.refusals.board.clone(),
            log: self.plan.log(),
            kernel_cache: self.opened.kernel_cache.clone(),
            overload: self.opened.overload.clone(),
            clock: RealClock::new(),
            totals: Arc::default(),
            agent_evicted,
            started: RealClock::new().now(),
            access: match (address, token) {
                (_, Some(_)) => Access::Token,
                (AdminAddress::Internet(_), None) => Access::Read,
                (AdminAddress::File(_), None) => Access::All,
            },
            history: History::new(RealClock::new().now()),
        };
        let guard = match address {
            AdminAddress::Internet(_) => Guard::of_controls(hosts.clone(), "--admin-host", token.clone()),
            AdminAddress::File(_) => Guard::of_file(token.clone()),
        };
        admin.start(listener, guard)
    }

    /// Makes a meter that measures the load of all loops from now on.
    fn meter(&self, quota: Option<f64>) -> Meter {
        let allowed = self.plan.cpus().len();
        let used = if self.architecture.spreads { allowed } else { self.loops.len().min(allowed) } as f64;
        let capacity = Capacity {
            processors: quota.map_or(used, |quota| used.min(quota)),
            connections: self.plan.config.max_connections,
        };
        let (refusals, overload) = (self.refusals.board.clone(), self.opened.overload.clone());
        Meter::new(self.boards(), refusals, overload, capacity, RealClock::new().now())
    }

    fn boards(&self) -> Vec<Board> {
        self.loops.iter().map(|running| running.board.clone()).collect()
    }
}
