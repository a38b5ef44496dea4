//! The settings of SMPED, for both ways of handing a connection over.
//!
//! Owns `--smped c-max=256,p-min=2,...`, the numbers of the paper, `--schedule` and `--handoff`.

use std::fmt;
use std::str::FromStr;

use base::Nanos;
use base::setting::{Declaration, Setting};

use crate::config::serve::ServeConfig;
use crate::ground::choices::named;
use crate::processes::Role;

/// The name of the architecture.
pub const NAME: &str = "smped";
/// Additional time for workers to end after their own drain timeout.
pub const PATIENCE: Nanos = Nanos::SECOND;
/// Delay before another attempt to start a worker, after one failed.
pub const START_PAUSE: Nanos = Nanos::SECOND;
/// Time for a worker to claim a connection: many turns of a loop, and too short for a client to notice.
pub const ANSWER_WITHIN: Nanos = Nanos::from_millis(100);
/// Descriptors of a worker beside its connections: control socket, mechanism, shared memory, log, root, and
/// headroom for files.
const WORKERS_OWN: u64 = 24;
/// Further descriptors of a worker with queues of its own: listeners, and connections that it turns away.
const WITH_QUEUES: u64 = 32;

/// The C_max that adapts itself.
const ADAPTIVE: &str = "adaptive";
/// The error for a mistake.
const ACCEPTED: &str = "expected c-max, p-min, p-max, initial, alpha, period, idle, as in \
c-max=256,p-min=2,p-max=32,initial=10,alpha=0.2,period=100ms,idle=5s";
/// The most workers: more than any machine can use.
const MOST_WORKERS: usize = 1024;

named! {
    /// The rule by which a dispatcher chooses the worker of a new connection.
    #[derive(Default)]
    Schedule {
        /// The least share of throughput times the least share of connections (SMPED).
        #[default]
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
    /// The way of a connection to its chosen worker.
    #[derive(Default)]
    Handoff {
        /// A dispatcher accepts it and passes its descriptor (SMPED).
        #[default]
        Fd = "fd",
        /// The kernel puts it into the worker's own accept queue: a BPF program has chosen at its SYN.
        Kernel = "kernel",
    }
}

/// The numbers of the paper.
pub static NUMBERS: Setting<SmpedSettings> = Setting::new(Declaration {
    flag: "--smped",
    value: "NAME=VALUE,...",
    help: "settings of the dispatcher [default: \
           c-max=256,p-min=2,p-max=32,initial=10,alpha=0.2,period=100ms,idle=5s]",
    more: Some(
        "c-max=adaptive: a worker is full while another would relieve it, because it is occupied and a processor is free.",
    ),
    without: "has no dispatcher",
    in_kernel: None,
});

/// The choice of a worker.
pub static SCHEDULE: Setting<Schedule> = Setting::new(Declaration {
    flag: "--schedule",
    value: "RULE",
    help: "how the dispatcher chooses a worker: smped (default), least-connections, round-robin or random",
    more: None,
    without: "has no dispatcher that chooses workers",
    in_kernel: None,
});

/// The way of a connection.
pub static HANDOFF: Setting<Handoff> = Setting::new(Declaration {
    flag: "--handoff",
    value: "HOW",
    help: "how a connection gets to its worker: fd (default) or kernel",
    more: Some(
        "fd: the dispatcher accepts it and passes its descriptor. kernel: a program in the kernel chooses the worker's \
         own accept queue; needs CAP_BPF and CAP_NET_ADMIN.",
    ),
    without: "has no workers to hand connections to",
    in_kernel: Some("kernel"),
});

/// Returns true if the kernel hands connections over.
pub fn by_kernel(config: &ServeConfig) -> bool {
    config.chosen.get(&HANDOFF).unwrap_or_default() == Handoff::Kernel
}

/// Returns the settings, with C_max lowered to the connections that a worker has descriptors for. A worker would lose
/// any connection beyond them.
pub fn smped_settings(config: &ServeConfig) -> SmpedSettings {
    let own = WORKERS_OWN + if by_kernel(config) { WITH_QUEUES } else { 0 };
    let limit = sys::process::descriptors::limit().unwrap_or(u64::MAX);
    let room = u32::try_from(limit.saturating_sub(own).max(1)).unwrap_or(u32::MAX);
    let settings = config.chosen.get(&NUMBERS).unwrap_or_default();
    SmpedSettings { c_max: settings.c_max.min(room), ..settings }
}

/// Returns the role of the workers, each with `own_words` words of shared memory.
pub fn role(settings: &SmpedSettings, own_words: usize) -> Role {
    Role {
        architecture: NAME,
        noun: "worker",
        places: settings.p_max,
        service: site::Counts::default().named().map(|(name, _)| name).collect(),
        serves: true,
        own_words,
    }
}

/// Numbers of the scheduler, the feedback handler and the resource controller.
#[derive(Clone, Debug, PartialEq)]
pub struct SmpedSettings {
    /// C_max, the most connections of a worker, at least 1.
    pub c_max: u32,
    /// A worker with fewer than `c_max` connections is full as well while another one would help (see `relief`).
    pub adapts: bool,
    /// P_min, the fewest workers, at least 1.
    pub p_min: usize,
    /// P_max, the most workers, at least `p_min`.
    pub p_max: usize,
    /// Workers at first, from `p_min` to `p_max`.
    pub initial: usize,
    /// The weight of the old value in the smoothed throughput: at least 0, below 1.
    pub alpha: f64,
    /// The time over which the throughput of a worker is measured before it is smoothed.
    pub period: Nanos,
    /// The idle time after which a worker is stopped.
    pub idle: Nanos,
}

impl Default for SmpedSettings {
    fn default() -> SmpedSettings {
        SmpedSettings {
            c_max: 256,
            adapts: false,
            p_min: 2,
            p_max: 32,
            initial: 10,
            alpha: 0.2,
            period: Nanos::from_millis(100),
            idle: Nanos::from_secs(5),
        }
    }
}

impl FromStr for SmpedSettings {
    type Err = String;

    /// Absent names keep their defaults. An absent `initial` is clamped between `p-min` and `p-max`.
    fn from_str(text: &str) -> Result<SmpedSettings, String> {
        let mut settings = SmpedSettings::default();
        let mut initial = None;
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| ACCEPTED.to_owned())?;
            let wrong = |accepted: &str| format!("{name} is '{value}'; expected {accepted}");
            let workers = || match value.parse() {
                Ok(number) if (1..=MOST_WORKERS).contains(&number) => Ok(number),
                _ => Err(wrong(&format!("1 to {MOST_WORKERS} workers"))),
            };
            let time = || match value.parse::<Nanos>() {
                Ok(time) if time >= Nanos::MILLISECOND => Ok(time),
                _ => Err(wrong("a time from 1ms up")),
            };
            match name.trim() {
                "c-max" if value == ADAPTIVE => (settings.c_max, settings.adapts) = (u32::MAX, true),
                "c-max" => match value.parse() {
                    Ok(number) if number > 0 => (settings.c_max, settings.adapts) = (number, false),
                    _ => return Err(wrong("adaptive, or a number of connections from 1 up")),
                },
                "p-min" => settings.p_min = workers()?,
                "p-max" => settings.p_max = workers()?,
                "initial" => initial = Some(workers()?),
                "alpha" => match value.parse() {
                    Ok(number) if (0.0..1.0).contains(&number) => settings.alpha = number,
                    _ => return Err(wrong("a number from 0 to below 1")),
                },
                "period" => settings.period = time()?,
                "idle" => settings.idle = time()?,
                _ => return Err(ACCEPTED.to_owned()),
            }
        }
        if settings.p_min > settings.p_max {
            return Err(format!("p-min={} is more than p-max={}", settings.p_min, settings.p_max));
        }
        let pool = settings.p_min..=settings.p_max;
        settings.initial = match initial {
            Some(given) if pool.contains(&given) => given,
            Some(given) => {
                return Err(format!(
                    "initial={given} is not from p-min={} to p-max={}",
                    settings.p_min, settings.p_max
                ));
            }
            None => settings.initial.clamp(settings.p_min, settings.p_max),
        };
        Ok(settings)
    }
}

impl fmt::Display for SmpedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SmpedSettings { c_max, adapts, p_min, p_max, initial, alpha, period, idle } = self;
        let c_max = if *adapts { ADAPTIVE.to_owned() } else { c_max.to_string() };
        write!(f, "c-max={c_max},p-min={p_min},p-max={p_max},initial={initial},")?;
        write!(f, "alpha={alpha},period={period},idle={idle}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<SmpedSettings>().unwrap_err()
    }

    #[test]
    fn what_is_printed_is_what_is_parsed() {
        let default = SmpedSettings::default();
        let text = "c-max=256,p-min=2,p-max=32,initial=10,alpha=0.2,period=100ms,idle=5s";
        assert_eq!(default.to_string(), text);
        assert_eq!(text.parse(), Ok(default));
        let adaptive: SmpedSettings = "c-max=adaptive".parse().unwrap();
        assert!(adaptive.adapts);
        assert_eq!(adaptive.to_string(), text.replace("256", "adaptive"));
    }

    #[test]
    fn what_is_not_named_keeps_its_default() {
        let settings: SmpedSettings = "p-max=4,idle=1m".parse().unwrap();
        assert_eq!((settings.p_max, settings.initial, settings.c_max), (4, 4, 256));
        assert_eq!(settings.idle, Nanos::from_secs(60));
    }

    #[test]
    fn mistakes_say_what_is_accepted() {
        assert_eq!(error("c_max=1"), ACCEPTED);
        assert_eq!(error("256"), ACCEPTED);
        assert_eq!(error("c-max=0"), "c-max is '0'; expected adaptive, or a number of connections from 1 up");
        assert_eq!(error("p-max=2000"), "p-max is '2000'; expected 1 to 1024 workers");
        assert_eq!(error("alpha=1"), "alpha is '1'; expected a number from 0 to below 1");
        assert_eq!(error("period=0s"), "period is '0s'; expected a time from 1ms up");
        assert_eq!(error("p-min=9,p-max=8"), "p-min=9 is more than p-max=8");
        assert_eq!(error("initial=40"), "initial=40 is not from p-min=2 to p-max=32");
    }
}
