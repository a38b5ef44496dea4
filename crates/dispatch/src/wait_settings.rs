//! The settings of a loop's wait: whether it spins, and when it naps. The locality-aware mechanism naps too.

use base::setting::{AnySetting, Chosen, Declaration, Setting};
use base::{Nanos, UnitError};

/// The way in which a loop waits for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// As the mechanism does.
    Block,
    /// By polls that do not block, and short sleeps.
    Spin,
}

/// A number that may tune itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tunable {
    /// Stays as it is.
    Fixed(u32),
    /// Begins at its default and is adjusted while the loop runs.
    Adaptive,
}

impl std::str::FromStr for Tunable {
    type Err = String;

    fn from_str(text: &str) -> Result<Tunable, String> {
        match text {
            "adaptive" => Ok(Tunable::Adaptive),
            number => match number.parse() {
                Ok(number) if (2..=1_000_000).contains(&number) => Ok(Tunable::Fixed(number)),
                _ => Err("expected a whole number from 2 to 1000000, or adaptive".to_owned()),
            },
        }
    }
}

/// The setting for [`Waits`].
pub(crate) static WAIT: Setting<Waits> = Setting::parsed_by(
    Declaration {
        flag: "--wait",
        value: "HOW",
        help: "Wait for events: block (default), or spin, which polls without blocking and sleeps for --nap after \
               --sleep-threshold empty polls",
        more: None,
        without: "",
        in_kernel: None,
    },
    |text| match text {
        "block" => Ok(Waits::Block),
        "spin" => Ok(Waits::Spin),
        _ => Err("expected block or spin".to_owned()),
    },
);

/// The empty calls before the first nap.
pub(crate) static SLEEP_THRESHOLD: Setting<Tunable> = Setting::new(Declaration {
    flag: "--sleep-threshold",
    value: "N|adaptive",
    help: "empty polls before it sleeps; fdm can tune it by adaptive [default: 100 for fdm, 50 for others]",
    more: None,
    without: "blocks at once",
    in_kernel: None,
});

/// The sleep after an empty call: from a timer's resolution up to the longest wait that clients bear.
pub(crate) static NAP: Setting<Nanos> = Setting::parsed_by(
    Declaration {
        flag: "--nap",
        value: "TIME",
        help: "longest sleep after an empty poll [default: 500us]",
        more: None,
        without: "blocks at once",
        in_kernel: None,
    },
    |text| match text.parse().map_err(|error: UnitError| error.to_string())? {
        time if (Nanos::from_micros(10)..=Nanos::SECOND).contains(&time) => Ok(time),
        _ => Err("expected a time from 10us to 1s, such as 500us".to_owned()),
    },
);

/// The settings of a wait that spins.
pub(crate) const SETTINGS: &[&dyn AnySetting] = &[&SLEEP_THRESHOLD, &NAP];

/// True if the loop is to spin.
pub fn spins(chosen: &Chosen) -> bool {
    chosen.get(&WAIT) == Some(Waits::Spin)
}
