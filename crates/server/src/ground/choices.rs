//! Choices that several architectures offer, and their names on the command line.

mod idle_sessions;
mod processes;
mod wake;

pub use idle_sessions::{IDLE_SESSIONS, IdleSessions};
pub use processes::{PROCESSES, Processes};
pub use wake::{WAKE, Wake};

use base::{Nanos, UnitError};
use overload::Settings;

/// Defines an enum whose values have names on the command line.
macro_rules! named {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $value:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$doc])* $value,)*
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                match text {
                    $($name => Ok($type::$value),)*
                    _ => Err(format!("expected {}", [$($name),*].join(", "))),
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($type::$value => $name,)* })
            }
        }
    };
}

pub(crate) use named;

named! {
    /// The driver of an event loop, which moves its bytes.
    Driver {
        /// The loop asks which sockets are ready, and moves bytes by system calls.
        Readiness = "readiness",
        /// The kernel carries out operations that the loop submits to an io_uring.
        Completion = "completion",
    }
}

/// The name of the completion driver among the mechanisms of `--dispatch`.
pub const URING: &str = "uring";

named! {
    /// A feature that is on or off.
    Switch {
        /// On where the machine supports it.
        On = "on",
        /// Off.
        Off = "off",
    }
}

named! {
    /// The hook that refuses connections.
    OverloadHook {
        /// Traffic control (tcx).
        Tc = "tc",
        /// XDP: in the device's driver where it can, or else in the kernel's common receive path.
        Xdp = "xdp",
        /// A full socket beside the listeners.
        Sink = "sink",
    }
}

/// The hook that a server begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedHook {
    /// The operator's choice. If it is impossible, a warning says so.
    Asked(OverloadHook),
    /// Traffic control, which remembers the SYNs that it refused, because this process may load programs.
    Tried,
    /// The sink, for this reason.
    Left(&'static str),
}

impl WantedHook {
    /// True if no program is loaded for it.
    pub fn is_sink(self) -> bool {
        matches!(self, WantedHook::Asked(OverloadHook::Sink) | WantedHook::Left(_))
    }
}

/// Parses a target delay of overload control that a loop can keep.
///
/// # Errors
/// The accepted values.
pub fn queue_target(text: &str) -> Result<Nanos, String> {
    match text.parse().map_err(|error: UnitError| error.to_string())? {
        target if Settings::TARGETS.contains(&target) => Ok(target),
        _ => Err(format!("expected a time from 1ms to {}, such as 20ms", Settings::TARGETS.end())),
    }
}

/// A choice that not every architecture offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// `--dispatch`
    Dispatch,
    /// `--driver`
    Driver,
    /// `--read-after-accept`
    ReadAfterAccept,
    /// `--kernel-cache`
    KernelCache,
    /// `--load-reports`
    LoadReports,
    /// `--client-connections` and `--client-rate`
    ClientLimits,
    /// `--overload on`, `--queue-target` and `--overload-hook`
    Overload,
}

impl Choice {
    /// All choices.
    pub const ALL: [Choice; 7] = [
        Choice::Dispatch,
        Choice::Driver,
        Choice::ReadAfterAccept,
        Choice::KernelCache,
        Choice::LoadReports,
        Choice::ClientLimits,
        Choice::Overload,
    ];

    /// Its flags on the command line, the one that names it first.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Choice::Dispatch => &["--dispatch"],
            Choice::Driver => &["--driver"],
            Choice::ReadAfterAccept => &["--read-after-accept"],
            Choice::KernelCache => &["--kernel-cache"],
            Choice::LoadReports => &["--load-reports"],
            Choice::ClientLimits => &["--client-connections", "--client-rate"],
            Choice::Overload => &["--overload", "--queue-target", "--overload-hook"],
        }
    }

    /// The flag that names it.
    pub fn flag(self) -> &'static str {
        self.flags()[0]
    }

    /// The reason why an architecture does not offer it, as the end of a sentence that begins with the architecture's
    /// name.
    pub fn without(self) -> &'static str {
        match self {
            Choice::Dispatch => "waits for one descriptor at a time and dispatches no events",
            Choice::Driver => "has one driver",
            Choice::ReadAfterAccept => "works on an accepted connection at once in any case",
            Choice::KernelCache => "cannot tell how long a connection of the kernel cache has been idle",
            Choice::ClientLimits => "serves from processes that do not see each other's clients",
            Choice::LoadReports => "serves from processes that do not see each other's load",
            Choice::Overload => "has controllers of its own",
        }
    }
}
