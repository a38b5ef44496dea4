//! `--seda target=100ms,...`: the numbers of the controllers.

use std::fmt;
use std::str::FromStr;

use base::Nanos;

use super::control::Percentile;

/// The controllers of a staged server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SedaSettings {
    /// The bound of the smoothed 90th percentile of the response time.
    pub target: Nanos,
    /// The most threads of a stage.
    pub max_threads: usize,
    /// The length of a queue above which its stage gets another thread.
    pub queue_threshold: usize,
    /// The smoothed percentile after a halving.
    pub percentile: Percentile,
}

impl Default for SedaSettings {
    /// 20 threads per stage are SEDA's number. Users do not notice a delay as long as the target. With a queue of
    /// 16, a thread that waits for a disk delays few events.
    fn default() -> SedaSettings {
        SedaSettings {
            target: Nanos::from_millis(100),
            max_threads: 20,
            queue_threshold: 16,
            percentile: Percentile::default(),
        }
    }
}

impl FromStr for SedaSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<SedaSettings, String> {
        let accepted = || {
            "expected target=TIME (at least 1ms), max-threads=N and queue-threshold=N (1 to 10000), and \
             percentile=anew or kept, separated by commas"
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
                "percentile" => settings.percentile = value.parse().map_err(|_| accepted())?,
                _ => return Err(accepted()),
            }
        }
        Ok(settings)
    }
}

impl fmt::Display for SedaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SedaSettings { target, max_threads, queue_threshold, percentile } = self;
        write!(
            f,
            "target={target},max-threads={max_threads},queue-threshold={queue_threshold},percentile={percentile}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_is_parsed() {
        let given = "target=50ms,max-threads=3,queue-threshold=9,percentile=kept";
        assert_eq!(given.parse::<SedaSettings>().unwrap().to_string(), given);
        for wrong in [
            "",
            "target",
            "target=0s",
            "target=5",
            "max-threads=0",
            "queue-threshold=x",
            "percentile=x",
            "n=1",
        ] {
            assert!(wrong.parse::<SedaSettings>().is_err(), "{wrong}");
        }
    }
}
