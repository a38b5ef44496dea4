//! Everything a server is told, already checked: what follows never checks again.

use std::net::SocketAddr;
use std::path::PathBuf;

use base::{Limit, Nanos};
use confine::{Account, Calls};

use crate::aside::{AdminAddress, Token};
use crate::choices::{Driver, OverloadHook, Switch, URING};
use crate::setting::Chosen;

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output: `-`.
    Stdout,
    /// Appended to a file, opened again at SIGHUP.
    File(PathBuf),
}

/// How a line of the access log is written.
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
    /// Where it listens.
    pub address: AdminAddress,
    /// Names by which it may be addressed, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// What every client has to show.
    pub token: Option<Token>,
}

/// What to serve, where, and how.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The directory that is served.
    pub root: PathBuf,
    /// Addresses to listen on; port 0 lets the kernel choose.
    pub listen: Vec<SocketAddr>,
    /// The event mechanism's name: one of [`dispatch::for_each_mechanism`], or [`URING`]. The best where absent, here and
    /// below where an architecture has a use for it; refused where it has none.
    pub dispatch: Option<&'static str>,
    /// What moves the bytes of event loops, unless `dispatch` names it; [`ServeConfig::driver`] has the choice.
    pub driver: Option<Driver>,
    /// Settings of the event mechanisms that have any.
    pub mechanism: dispatch::Settings,
    /// Settings of the architecture.
    pub chosen: Chosen,
    /// Connections accepted each time the listener is ready (Brecht 2004); the architecture's choice where
    /// absent.
    pub accept_limit: Option<Limit>,
    /// Read from a connection as soon as it is accepted (off in the paper).
    pub read_after_accept: bool,
    /// How many loops, threads or processes, at most where their number follows the load; the architecture's choice where absent.
    pub workers: Option<usize>,
    /// Processors to tie the loops to, in turn; all that are allowed where empty.
    pub cpus: Vec<usize>,
    /// Connections open at once, all loops together.
    pub max_connections: usize,
    /// The length of the kernel's accept queue.
    pub backlog: u32,
    /// Whether connections are refused that could not be served in time; `None` selects the architecture's default, which
    /// is on, or controllers of its own.
    pub overload: Option<Switch>,
    /// The target delay of overload control, 1 ms or more; `None` selects 20 ms.
    pub queue_target: Option<Nanos>,
    /// What refuses connections; `None` selects the sink, which also stands in where a hook is not to be had.
    pub overload_hook: Option<OverloadHook>,
    /// CPU time spent on each request, for experiments.
    pub burn: Nanos,
    /// Where /status, /metrics and /accept-limit are served, and to whom.
    pub admin: Option<AdminSettings>,
    /// Limits and time-outs of the protocol.
    pub http: http1::server::Settings,
    /// What is served of the directory, and what is kept in memory.
    pub site: site::Options,
    /// Answer hot requests inside the kernel, where the program can be loaded.
    pub kernel_cache: bool,
    /// Certificates with their keys; connections are plain without any.
    pub tls: Vec<tls::Files>,
    /// The access log, if any.
    pub access_log: Option<(LogTarget, LogFormat)>,
    /// The user that a server started by root changes to; `None` selects the user who started it.
    pub account: Option<Account>,
    /// Restrict files and system calls, for the whole process and for good, as far as the kernel can.
    pub confine: Switch,
    /// Files that are read again while the server runs, beside certificates and keys.
    pub reads_again: Vec<PathBuf>,
    /// How long a shutdown waits for connections to finish.
    pub drain_timeout: Nanos,
}

impl ServeConfig {
    /// Returns the driver that the flags ask for.
    pub fn driver(&self) -> Driver {
        let is_uring = self.dispatch == Some(URING);
        self.driver.unwrap_or(if is_uring { Driver::Completion } else { Driver::Readiness })
    }

    /// Returns the system calls to keep beside those that every server makes.
    pub(crate) fn kept_calls(&self, starts_processes: bool) -> Calls {
        Calls {
            processes: starts_processes,
            kernel_programs: self.loads_programs(),
            rings: self.driver() == Driver::Completion
                || self.dispatch.is_some_and(|name| name.contains("uring")),
        }
    }

    /// Tells whether a setting asks for a program in the kernel.
    pub(crate) fn loads_programs(&self) -> bool {
        self.kernel_cache || self.overload_hook.is_some() || self.chosen.loads_programs()
    }
}
