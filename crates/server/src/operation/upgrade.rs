//! The hand-over of a running server to a newer program, without loss: SIGUSR2.
//!
//! ```text
//!   predecessor ── start ──> starter ──> successor: the program at the same path, same arguments and environment
//!        | <─── failed: why ────┘            |
//!        | ─── listeners, sinks, keys of tickets ───> |   reads its configuration, opens what is its own
//!        | <──────────────────────── prepared ─────── |
//!        | ─── overload control is withdrawn: go on ─>|   controls the accept queues, gives up its rights, accepts
//!        | <──────────────────────── ready ────────── |
//!     drains, ends                                 serves
//! ```
//!
//! Both servers have the same sockets, so either may take a connection that waits in an accept queue. The predecessor
//! leaves its sockets as they are ([`listener`](crate::ground::listener)), and answers one more request on each open
//! connection. Until it has heard `ready` it serves as before, whatever happens to the successor.
//!
//! A confined server cannot start a program. It therefore starts a small process, the `starter`, before it gives up
//! any rights. The starter keeps the rights of the start, and its own command line says what to start. A request to
//! it is one word with one descriptor, the channel between the two servers.
//!
//! Invariants: the starter ends with the predecessor. A successor that is not ready ends with its starter. The words on
//! the channel stay valid across versions of the program: a successor ignores those that it does not know.
//!
//! Owns the processes and their words. `plan` opens sockets, and the loops drain.

mod predecessor;
mod starter;
mod successor;

pub use predecessor::{AdminSocket, Predecessor, Progress};
pub use starter::run as run_starter;
pub use successor::{Inherited, Successor};

use base::Nanos;

use crate::config::serve::ServeConfig;
use crate::ground::choices::Switch;
use crate::ground::error::{ServeError, system};
use crate::operation::service_manager::{Notifier, passed_sockets};
use starter::Starter;

/// The connections of a starting server to other processes: its predecessor, its starter and systemd.
pub struct Beginning {
    /// Tells the predecessor; `None` without one.
    pub successor: Option<Successor>,
    /// Sockets and keys.
    pub inherited: Inherited,
    /// Starts a successor; `None` without `--upgrade`.
    pub starter: Option<Starter>,
    /// Tells systemd.
    pub service_manager: Notifier,
}

impl Beginning {
    /// Takes over from a predecessor or from systemd, as the environment says. Starts the starter, with the rights
    /// that this process is about to give up. Addresses of systemd replace those of the configuration.
    ///
    /// # Errors
    /// [`ServeError`]: settings that exclude each other, sockets that cannot be used, no free process.
    pub fn of(config: &mut ServeConfig) -> Result<Beginning, ServeError> {
        check(config)?;
        let (successor, inherited) = Successor::of_environment()?.unzip();
        let service_manager = Notifier::of_environment(successor.is_some());
        let inherited = match inherited {
            Some(inherited) => inherited,
            None => Inherited::of_service_manager(passed_sockets()?),
        };
        if inherited.is_activated {
            // An address that the configuration has without TLS stays without it.
            let given = inherited.listeners.addresses();
            config.listen_http.retain(|address| given.contains(address));
            config.listen =
                given.into_iter().filter(|address| !config.listen_http.contains(address)).collect();
        }
        let starter = match config.upgrade {
            Switch::On => Some(Starter::start().map_err(system("start a process for --upgrade"))?),
            Switch::Off => None,
        };
        Ok(Beginning { successor, inherited, starter, service_manager })
    }
}

/// Refuses settings whose effects cannot be handed over.
///
/// # Errors
/// [`ServeError::Setting`].
pub fn check(config: &ServeConfig) -> Result<(), ServeError> {
    let reason = if config.upgrade == Switch::Off {
        return Ok(());
    } else if config.loads_programs() {
        "the programs of --kernel-cache, --overload-hook and --handoff kernel stay with their process; leave them or \
         --upgrade out"
    } else if !config.may_share_sockets() {
        "a socket sends its signals to one process alone; leave out --upgrade, or use another --dispatch"
    } else if config.agent_check.is_some() {
        "the port of --agent-check stays with its process; leave it or --upgrade out"
    } else if std::process::id() == 1 {
        "this process is the first of its container, which ends with it; replace the container instead"
    } else {
        return Ok(());
    };
    Err(ServeError::Setting { setting: "--upgrade", given: "on".to_owned(), accepted: reason.to_owned() })
}

/// Maximum time from the start of a successor until it is ready. It includes reading certificates and files from a
/// slow disk.
const READY_WITHIN: Nanos = Nanos::from_secs(30);

/// The variable that tells a program to be a successor.
const VARIABLE: &str = "INRUSH_SUCCESSOR";

/// Words of the predecessor: listening sockets of the address that follows; the socket of the admin interface at the
/// address that follows; sinks of the listening sockets; the keys that follow; the sockets replace the configured
/// addresses; no further word comes.
const LISTENS: &[u8] = b"listens ";
const ADMIN: &[u8] = b"admin ";
const SINKS: &[u8] = b"sinks";
const TICKETS: &[u8] = b"tickets ";
const ACTIVATED: &[u8] = b"activated";
const ALL: &[u8] = b"that is all";
/// The successor has read its configuration, and is about to control the accept queues.
const PREPARED: &[u8] = b"prepared";
/// The predecessor no longer controls them.
const GO_ON: &[u8] = b"go on";
/// The successor serves; its process number follows.
const READY: &[u8] = b"ready ";
