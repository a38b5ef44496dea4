//! The configuration of a server. It is checked, and no other module checks it again.

use std::net::SocketAddr;
use std::path::PathBuf;

use base::Nanos;
use base::setting::Chosen;
use confine::{Account, Calls};
use connection::clients::ClientSettings;
use side_servers::{AdminAddress, Token};
use site::{HostName, Options};

use crate::connections::accept::AcceptLimit;
use crate::ground::choices::{Driver, OverloadHook, PROCESSES, Processes, Switch, URING, WantedHook};
use crate::ground::error::ServeError;

/// The destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output: `-`.
    Stdout,
    /// Appended to a file, opened again at SIGHUP.
    File(PathBuf),
}

/// The format of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined log format that every log analyser reads.
    Combined,
    /// One JSON object a line.
    Json,
}

/// The admin interface.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// The address that it listens on.
    pub address: AdminAddress,
    /// The accepted host names, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The token that every client must send.
    pub token: Option<Token>,
}

/// The settings of one host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Its names. A default host may have none; it answers for every name that no other host has.
    pub names: Vec<HostName>,
    /// The directory to serve; `None` for a host whose rules answer alone.
    pub root: Option<PathBuf>,
    /// Options of the site: the files to serve and those to keep in memory.
    pub site: Options,
    /// The log of its requests; `None` selects the server's.
    pub access_log: Option<LogTarget>,
}

impl HostConfig {
    /// Returns the words for this host in messages: its first name, or the name of the directory's argument.
    pub fn title(&self) -> String {
        self.names.first().map_or_else(|| "ROOT".to_owned(), |name| format!("host {name}"))
    }
}

/// The configuration of a server. `None` selects the architecture's default. An architecture refuses a setting
/// that it does not use.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The hosts, each with a directory. The first one is the default.
    pub hosts: Vec<HostConfig>,
    /// Addresses to listen on; port 0 lets the kernel choose. Connections are under TLS if there are certificates.
    pub listen: Vec<SocketAddr>,
    /// Addresses to listen on without TLS, beside those with it.
    pub listen_http: Vec<SocketAddr>,
    /// The event mechanism's name: one of [`dispatch::for_each_mechanism`], or [`URING`]. `None` selects the best
    /// one.
    pub dispatch: Option<&'static str>,
    /// The driver of event loops. `None` leaves it to the other settings, or else to the machine.
    pub driver: Option<Driver>,
    /// Settings of the event mechanisms that have any.
    pub mechanism: Chosen,
    /// Settings of the architecture.
    pub chosen: Chosen,
    /// Connections accepted each time the listener is ready (Brecht 2004).
    pub accept_limit: Option<AcceptLimit>,
    /// Read from a connection as soon as it is accepted (off in the paper).
    pub read_after_accept: bool,
    /// The number of loops, threads or processes. If the number follows the load, its maximum.
    pub workers: Option<usize>,
    /// Processors to pin the loops to, in turn. Empty selects all allowed processors.
    pub cpus: Vec<usize>,
    /// Maximum number of open connections, over all loops.
    pub max_connections: usize,
    /// The limits of each client, and the proxies in front of the server.
    pub clients: ClientSettings,
    /// The length of the kernel's accept queue.
    pub backlog: u32,
    /// Overload control, which refuses connections that the server could not serve in time. The default is on, or
    /// the architecture's own controllers.
    pub overload: Option<Switch>,
    /// The target delay of overload control, 1 ms or more; `None` selects 20 ms.
    pub queue_target: Option<Nanos>,
    /// The hook that refuses connections; the sink replaces an unavailable one. `None` leaves it to the rights of the
    /// process.
    pub overload_hook: Option<OverloadHook>,
    /// CPU time spent on each request, for experiments.
    pub burn: Nanos,
    /// The admin interface, with its clients; `None` without one.
    pub admin: Option<AdminSettings>,
    /// The address of HAProxy's agent check; `None` without one.
    pub agent_check: Option<SocketAddr>,
    /// Reports the load in responses to requests that ask for it.
    pub load_reports: bool,
    /// Limits and timeouts of the protocol.
    pub http: http_semantics::server::Settings,
    /// Answers hot requests inside the kernel if the program can be loaded.
    pub kernel_cache: bool,
    /// Certificates with their keys; those of all hosts come first, then those of single hosts. Connections are plain
    /// without any.
    pub tls: Vec<tls::Files>,
    /// The access log, if any; hosts may have their own.
    pub access_log: Option<LogTarget>,
    /// The format of all access logs.
    pub log_format: LogFormat,
    /// The user that a server started by root changes to; `None` keeps the user that started it.
    pub account: Option<Account>,
    /// Restricts files and system calls for the whole process, permanently, as far as the kernel can.
    pub confine: Switch,
    /// Files, beside certificates and keys, that the server reads again while it runs.
    pub reads_again: Vec<PathBuf>,
    /// Can hand over to a newer program at SIGUSR2.
    pub upgrade: Switch,
    /// The time for connections to finish at a shutdown.
    pub drain_timeout: Nanos,
}

impl ServeConfig {
    /// Returns the access logs of the server and of all hosts, without duplicates.
    pub fn logs(&self) -> Vec<&LogTarget> {
        let mut logs: Vec<&LogTarget> = Vec::new();
        for log in self.access_log.iter().chain(self.hosts.iter().flat_map(|host| &host.access_log)) {
            if !logs.contains(&log) {
                logs.push(log);
            }
        }
        logs
    }

    /// Returns all addresses to listen on, those without TLS last.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + Clone {
        self.listen.iter().chain(&self.listen_http).copied()
    }

    /// Refuses a number of workers other than 1 to an architecture that is one loop.
    ///
    /// # Errors
    /// [`ServeError::Setting`].
    pub(crate) fn only_one_loop(&self, architecture: &str) -> Result<(), ServeError> {
        match self.workers {
            Some(1) => Ok(()),
            _ => self.no_workers(&format!("{architecture} is one loop; --arch per-core has many")),
        }
    }

    /// Refuses `--workers` to an architecture that has no workers, or counts them in another way. `accepted` explains
    /// this.
    ///
    /// # Errors
    /// [`ServeError::Setting`].
    pub(crate) fn no_workers(&self, accepted: &str) -> Result<(), ServeError> {
        self.workers.map_or(Ok(()), |workers| {
            Err(ServeError::Setting {
                setting: "--workers",
                given: workers.to_string(),
                accepted: accepted.to_owned(),
            })
        })
    }

    /// Returns the maximum number of open files in the caches of one loop.
    pub(crate) fn open_files(&self) -> usize {
        self.hosts.iter().map(|host| host.site.cache.open_files).sum()
    }

    /// Returns the driver that settings select, with the first setting that does; `None` if none does.
    pub(crate) fn selected_driver(&self) -> Option<(Driver, String)> {
        let dispatch = self.dispatch.map(|name| {
            let driver = if name == URING { Driver::Completion } else { Driver::Readiness };
            (driver, format!("--dispatch {name}"))
        });
        let readiness = [
            (dispatch::spins(&self.mechanism), "--wait spin"),
            (self.kernel_cache, "--kernel-cache on"),
            (self.read_after_accept, "--read-after-accept"),
        ];
        let readiness = readiness.into_iter().find(|(is_set, _)| *is_set);
        let named = self.driver.map(|driver| (driver, format!("--driver {driver}")));
        named.or(dispatch).or(readiness.map(|(_, setting)| (Driver::Readiness, setting.to_owned())))
    }

    /// Tells whether several loops or processes may wait for the same listening socket.
    pub(crate) fn may_share_sockets(&self) -> bool {
        let mechanism = self.dispatch.and_then(dispatch::table::by_name);
        mechanism.is_none_or(|known| !known.one_set_per_file)
    }

    /// Returns the selected driver, or readiness, which every machine has.
    pub fn driver(&self) -> Driver {
        self.selected_driver().map_or(Driver::Readiness, |(driver, _)| driver)
    }

    /// Returns the system calls to keep besides those that every server makes.
    pub(crate) fn kept_calls(&self, starts_processes: bool) -> Calls {
        Calls {
            processes: starts_processes || self.chosen.get(&PROCESSES) == Some(Processes::PerConnection),
            kernel_programs: self.loads_programs(),
            rings: self.driver() == Driver::Completion
                || self.dispatch.is_some_and(|name| name.contains("uring")),
            ..Calls::default()
        }
    }

    /// Returns the hook to begin with. Depends on the present capabilities of the thread.
    pub(crate) fn wanted_hook(&self) -> WantedHook {
        match self.overload_hook {
            Some(hook) => WantedHook::Asked(hook),
            None if self.upgrade == Switch::On => WantedHook::Left("--upgrade on hands over sinks alone"),
            None if !bpf::has_capabilities() => WantedHook::Left("tc needs CAP_BPF and CAP_NET_ADMIN"),
            None => WantedHook::Tried,
        }
    }

    /// Tells whether the server loads a program into the kernel.
    pub(crate) fn loads_programs(&self) -> bool {
        let has_hook = self.overload != Some(Switch::Off) && !self.wanted_hook().is_sink();
        self.kernel_cache || has_hook || self.chosen.loads_programs()
    }
}
