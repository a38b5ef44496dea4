//! `--smped c-max=256,p-min=2,...`: the numbers of the paper, as settings.

use std::fmt;
use std::str::FromStr;

use base::Nanos;

/// The C_max that adapts itself.
const ADAPTIVE: &str = "adaptive";
/// The error for a mistake.
const ACCEPTED: &str = "expected c-max, p-min, p-max, initial, alpha, period, idle, as in \
c-max=256,p-min=2,p-max=32,initial=10,alpha=0.2,period=100ms,idle=5s";
/// The most workers: more than any machine can use.
const MOST_WORKERS: usize = 1024;

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
