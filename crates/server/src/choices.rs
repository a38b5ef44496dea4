//! Settings that only some architectures have a use for, by name.

mod smped;

use std::fmt;
use std::str::FromStr;

pub use smped::SmpedSettings;

use base::{Nanos, UnitError};

/// Defines an enum whose values have names on the command line.
macro_rules! named {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $value:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$doc])* $value,)*
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                match text {
                    $($name => Ok($type::$value),)*
                    _ => Err(format!("accepted are {}", [$($name),*].join(", "))),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($type::$value => $name,)* })
            }
        }
    };
}

named! {
    /// How one of those who wait for connections is found and woken (Molloy and Lever 2000, and what came after).
    Wake {
        /// The kernel wakes one: EPOLLEXCLUSIVE, an interest set per thread.
        Exclusive = "exclusive",
        /// A waker is told of the connection and wakes one, by futex: their patch's wake-one in user space.
        One = "one",
        /// One thread at a time waits, under a mutex, and accepts: Apache's accept mutex.
        Mutex = "mutex",
        /// The kernel wakes all, one wins, the others sleep again: poll(2) in each.
        All = "all",
        /// Each has an accept queue of its own, among which the kernel chooses by a hash of the addresses.
        Reuseport = "reuseport",
        /// The same, but that of the processor that received the connection is chosen.
        Steered = "steered",
    }
}

named! {
    /// What moves the bytes of an event loop.
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
    /// How a thread serves the connections that it has taken in one accept phase.
    Batch {
        /// One after another (Brecht 2004).
        Serial = "serial",
        /// Side by side, in a child thread each.
        Interleaved = "interleaved",
    }
}

named! {
    /// Where threads come from.
    Threads {
        /// A fixed number, started before the first connection.
        Pool = "pool",
        /// One is started for each connection.
        PerConnection = "per-connection",
    }
}

named! {
    /// By what a dispatcher chooses the worker of a new connection.
    Schedule {
        /// The least share of throughput times the least share of connections (SMPED).
        Smped = "smped",
        /// The fewest connections.
        LeastConnections = "least-connections",
        /// One after another.
        RoundRobin = "round-robin",
        /// Chance.
        Random = "random",
    }
}

named! {
    /// The way of a connection to the worker that was chosen for it.
    Handoff {
        /// A dispatcher accepts it and passes its descriptor (SMPED).
        Fd = "fd",
        /// The kernel puts it into the worker's own accept queue: a BPF program has chosen at its SYN.
        Kernel = "kernel",
    }
}

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
    /// What refuses connections on the devices of the listeners, in place of the sink.
    OverloadHook {
        /// Traffic control (tcx).
        Tc = "tc",
        /// XDP: in the device's driver where it can, or else in the kernel's common receive path.
        Xdp = "xdp",
    }
}

/// A target delay of overload control that a loop can keep.
///
/// # Errors
/// What is accepted.
pub fn queue_target(text: &str) -> Result<Nanos, String> {
    match text.parse().map_err(|error: UnitError| error.to_string())? {
        target if target < Nanos::MILLISECOND => {
            Err("accepted are times from 1ms up, such as 20ms".to_owned())
        }
        target => Ok(target),
    }
}

/// How many processes wait in reserve: Apache's MinSpareServers and MaxSpareServers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spares {
    /// With fewer idle ones more are started.
    pub minimum: usize,
    /// With more idle ones some are ended; above the minimum.
    pub maximum: usize,
}

impl fmt::Display for Spares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", self.minimum, self.maximum)
    }
}

/// The controllers of a staged server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SedaSettings {
    /// Below this the smoothed 90th percentile of the response time is kept.
    pub target: Nanos,
    /// The most threads of a stage.
    pub max_threads: usize,
    /// A stage whose queue is longer gets another thread.
    pub queue_threshold: usize,
}

impl Default for SedaSettings {
    /// 20 threads a stage are SEDA's; the target is one that a person does not notice; a queue of 16 keeps a
    /// thread that waits for a disk from holding up many.
    fn default() -> SedaSettings {
        SedaSettings { target: Nanos::from_millis(100), max_threads: 20, queue_threshold: 16 }
    }
}

impl FromStr for SedaSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<SedaSettings, String> {
        let accepted = || {
            "accepted are target=TIME (at least 1ms), max-threads=N and queue-threshold=N (1 to 10000), \
             separated by commas"
                .to_owned()
        };
        let number = |value: &str| value.parse().ok().filter(|number| (1..=10_000).contains(number));
        let mut settings = SedaSettings::default();
        for pair in text.split(',') {
            let (name, value) = pair.split_once('=').ok_or_else(accepted)?;
            match name.trim() {
                "target" => {
                    let target = value.parse().ok().filter(|target| *target >= Nanos::MILLISECOND);
                    settings.target = target.ok_or_else(accepted)?;
                }
                "max-threads" => settings.max_threads = number(value).ok_or_else(accepted)?,
                "queue-threshold" => settings.queue_threshold = number(value).ok_or_else(accepted)?,
                _ => return Err(accepted()),
            }
        }
        Ok(settings)
    }
}

impl fmt::Display for SedaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SedaSettings { target, max_threads, queue_threshold } = self;
        write!(f, "target={target},max-threads={max_threads},queue-threshold={queue_threshold}")
    }
}

/// A setting that not every architecture has a use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// `--dispatch`
    Dispatch,
    /// `--driver`
    Driver,
    /// `--read-after-accept`
    ReadAfterAccept,
    /// `--wake`
    Wake,
    /// `--batch`
    Batch,
    /// `--threads`
    Threads,
    /// `--min-spare` and `--max-spare`
    Spares,
    /// `--smped`
    Smped,
    /// `--schedule`
    Schedule,
    /// `--handoff`
    Handoff,
    /// `--helpers`
    Helpers,
    /// `--seda`
    Seda,
    /// `--kernel-cache`
    KernelCache,
    /// `--overload on`, `--queue-target` and `--overload-hook`
    Overload,
}

impl Choice {
    /// Its name on the command line.
    pub fn flag(self) -> &'static str {
        match self {
            Choice::Dispatch => "--dispatch",
            Choice::Driver => "--driver",
            Choice::ReadAfterAccept => "--read-after-accept",
            Choice::Wake => "--wake",
            Choice::Batch => "--batch",
            Choice::Threads => "--threads",
            Choice::Spares => "--min-spare and --max-spare",
            Choice::Smped => "--smped",
            Choice::Schedule => "--schedule",
            Choice::Handoff => "--handoff",
            Choice::Helpers => "--helpers",
            Choice::Seda => "--seda",
            Choice::KernelCache => "--kernel-cache",
            Choice::Overload => "--overload",
        }
    }

    /// Why an architecture can do without it.
    pub fn without(self) -> &'static str {
        match self {
            Choice::Dispatch => "waits for one descriptor at a time and dispatches no events",
            Choice::Driver => "has one driver",
            Choice::ReadAfterAccept => "works on an accepted connection at once in any case",
            Choice::Wake => "has nobody to choose from who could be woken for a connection",
            Choice::Batch => "does not serve batches",
            Choice::Threads => "has as many threads as it has loops",
            Choice::Spares => "does not keep processes in reserve",
            Choice::Smped => "has no dispatcher",
            Choice::Schedule => "has no dispatcher that would choose a worker",
            Choice::Handoff => "has no workers that somebody else chooses for a connection",
            Choice::Helpers => "waits for the disk itself",
            Choice::Seda => "has no stages to control",
            Choice::KernelCache => {
                "cannot tell how long a connection has been idle that the kernel answers on"
            }
            Choice::Overload => "has controllers of its own",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_parsed() {
        for wake in [Wake::Exclusive, Wake::One, Wake::Mutex, Wake::All, Wake::Reuseport, Wake::Steered] {
            assert_eq!(wake.to_string().parse(), Ok(wake));
        }
        let given = "target=50ms,max-threads=3,queue-threshold=9";
        assert_eq!(given.parse::<SedaSettings>().unwrap().to_string(), given);
        for wrong in ["", "target", "target=0s", "target=5", "max-threads=0", "queue-threshold=x", "n=1"] {
            assert!(wrong.parse::<SedaSettings>().is_err(), "{wrong}");
        }
        assert_eq!("many".parse::<Batch>(), Err("accepted are serial, interleaved".to_owned()));
    }
}
