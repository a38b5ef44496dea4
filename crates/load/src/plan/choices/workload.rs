//! Workloads: the number of requests in each session, and the paths that they ask for.
//!
//! Leaves out the bytes of a request, which `requests` encodes.
//!
//! To add a workload: a variant of [`Spec`], its text, and its paths.
//!
//! The modules: `form` holds method, fields and content; `specweb` is the SPECweb99-like file set, `urls` a
//! list from a file. `file` reads the requests of --requests, at the times of `recorded_time`, and `data` the values of --data.

mod data;
mod file;
mod form;
pub(crate) mod recorded_time;
pub mod specweb;
mod urls;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use base::Nanos;

use crate::plan::terms::draws::Draws;
use crate::plan::terms::target::Url;
pub(crate) use data::{Data, OWN_NAMES};
pub(crate) use file::{Address, Capture, Content, Definition, Session};
pub use file::{DataFile, DataOrder, FileError, Replay, RequestFile};
pub use form::{Body, Field, Form, Method};
pub use urls::UrlList;

/// The most directories of a file set; its encoded requests take about 6 KiB per directory.
const DIRECTORIES_MAX: u32 = 10_000;

/// Session length and think time of hot clients (SMPED, the experiments).
pub(crate) const HOT: (Length, Think) = (Length::Uniform(5..=5), Think(0..=20_000_000));

/// Session length and think time of cold clients (SMPED, the experiments).
pub(crate) const COLD: (Length, Think) = (Length::Uniform(20..=20), Think(5_000_000_000..=5_000_000_000));

/// A workload, by name.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Spec {
    /// The URLs as given, all with the same probability; one request per session.
    #[default]
    OnePacket,
    /// The SPECweb99-like file set below the URL, see [`specweb`].
    Specweb99 {
        /// The number of directories: 1 to 10,000.
        directories: u32,
    },
    /// Paths below the URL, read from a file; one request per session.
    Urls(UrlList),
    /// The URLs as given; 5 requests per session, with think times of 0 to 20 ms between them.
    Hot,
    /// The URLs as given; 20 requests per session, with think times of 5 s between them.
    Cold,
}

/// The distribution of the number of requests per session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// Uniform between two bounds; both are 1 or more and included.
    Uniform(RangeInclusive<u32>),
    /// The SPECweb99 distribution: 30 % of sessions make one request, 70 % make 5 to 15.
    Specweb99,
}

/// The think time between a reply and the session's next request, in nanoseconds: uniform, both bounds
/// included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Think(RangeInclusive<u64>);

/// An invalid setting of the workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' {why}")]
pub struct WorkloadError {
    given: String,
    why: String,
}

impl WorkloadError {
    fn not(given: &str, expected: &str) -> WorkloadError {
        WorkloadError { given: given.to_owned(), why: format!("is not {expected}") }
    }
}

impl Length {
    /// One request.
    pub(crate) const ONE: Length = Length::Uniform(1..=1);

    /// Requests until the connection ends.
    pub(crate) const ENDLESS: Length = Length::Uniform(u32::MAX..=u32::MAX);

    /// The mean number of requests.
    pub fn mean(&self) -> f64 {
        match self {
            Length::Uniform(range) => (f64::from(*range.start()) + f64::from(*range.end())) / 2.0,
            Length::Specweb99 => specweb::SESSION_LENGTH_MEAN,
        }
    }

    /// Draws the number of requests of a session.
    pub(crate) fn draw(&self, draws: &mut Draws) -> u32 {
        match self {
            Length::Uniform(range) if range.start() == range.end() => *range.start(),
            Length::Uniform(range) => {
                draws.between(u64::from(*range.start()), u64::from(*range.end())) as u32
            }
            Length::Specweb99 => specweb::session_length(draws),
        }
    }
}

impl Think {
    /// No think time.
    pub const NONE: Think = Think(0..=0);

    /// Returns true for a think time that is always zero.
    pub fn is_none(&self) -> bool {
        *self == Think::NONE
    }

    /// The longest think time.
    pub(crate) fn longest(&self) -> Nanos {
        Nanos(*self.0.end())
    }

    /// The mean think time.
    pub(crate) fn mean(&self) -> Nanos {
        Nanos(*self.0.start() + (*self.0.end() - *self.0.start()) / 2)
    }

    /// Draws a think time.
    pub fn draw(&self, draws: &mut Draws) -> Nanos {
        if self.is_none() { Nanos::ZERO } else { Nanos(draws.between(*self.0.start(), *self.0.end())) }
    }
}

impl Spec {
    /// Returns true if the paths do not come from the URLs. Such a workload takes one URL, the root of its
    /// paths.
    pub fn has_own_paths(&self) -> bool {
        matches!(self, Spec::Specweb99 { .. } | Spec::Urls(_))
    }

    /// The paths of the requests, with their weights, for the URLs of a run.
    pub(crate) fn paths(&self, urls: &[Url]) -> (Vec<String>, Vec<f64>) {
        let root = urls[0].path().trim_end_matches('/');
        match self {
            Spec::OnePacket | Spec::Hot | Spec::Cold => {
                urls.iter().map(|url| (url.path().to_owned(), 1.0)).unzip()
            }
            Spec::Specweb99 { directories } => {
                specweb::files(*directories).map(|file| (format!("{root}{}", file.path), file.weight)).unzip()
            }
            Spec::Urls(list) => list.iter().map(|(path, weight)| (format!("{root}{path}"), weight)).unzip(),
        }
    }

    /// The session length and the think time.
    pub(crate) fn session(&self) -> (Length, Think) {
        match self {
            Spec::OnePacket | Spec::Urls(_) => (Length::ONE, Think::NONE),
            Spec::Specweb99 { .. } => (Length::Specweb99, Think::NONE),
            Spec::Hot => HOT,
            Spec::Cold => COLD,
        }
    }
}

impl FromStr for Spec {
    type Err = WorkloadError;

    /// Parses a workload; for a list of URLs, also reads the file that the text names.
    fn from_str(text: &str) -> Result<Spec, WorkloadError> {
        let expected = "a workload: one-packet, specweb99[:DIRECTORIES] (1 to 10000), urls:FILE, hot or cold";
        let refuse = || WorkloadError::not(text, expected);
        match text.split_once(':') {
            None if text == "one-packet" => Ok(Spec::OnePacket),
            None if text == "hot" => Ok(Spec::Hot),
            None if text == "cold" => Ok(Spec::Cold),
            Some(("urls", file)) => UrlList::read(text, file).map(Spec::Urls),
            None if text == "specweb99" => Ok(Spec::Specweb99 { directories: specweb::DIRECTORIES }),
            Some(("specweb99", number)) => {
                let directories = number.parse().ok().filter(|count| (1..=DIRECTORIES_MAX).contains(count));
                Ok(Spec::Specweb99 { directories: directories.ok_or_else(refuse)? })
            }
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::OnePacket => f.write_str("one-packet"),
            Spec::Specweb99 { directories } => write!(f, "specweb99:{directories}"),
            Spec::Urls(list) => list.fmt(f),
            Spec::Hot => f.write_str("hot"),
            Spec::Cold => f.write_str("cold"),
        }
    }
}

impl FromStr for Length {
    type Err = WorkloadError;
    fn from_str(text: &str) -> Result<Length, WorkloadError> {
        let refuse = || WorkloadError::not(text, "a number of requests such as 1, 10, 5..15 or inf");
        if text == "inf" {
            return Ok(Length::ENDLESS);
        }
        let (low, high) = text.split_once("..").unwrap_or((text, text));
        match (low.parse(), high.parse()) {
            (Ok(low), Ok(high)) if 1 <= low && low <= high => Ok(Length::Uniform(low..=high)),
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            endless if *endless == Length::ENDLESS => f.write_str("inf"),
            Length::Uniform(range) if range.start() == range.end() => range.start().fmt(f),
            Length::Uniform(range) => write!(f, "{}..{}", range.start(), range.end()),
            Length::Specweb99 => f.write_str("specweb99"),
        }
    }
}

impl FromStr for Think {
    type Err = WorkloadError;
    fn from_str(text: &str) -> Result<Think, WorkloadError> {
        let refuse = || WorkloadError::not(text, "a think time such as 0, 5ms or 0..20ms");
        let (low, high) = text.split_once("..").unwrap_or((text, text));
        match (low.parse::<Nanos>(), high.parse::<Nanos>()) {
            (Ok(low), Ok(high)) if low <= high => Ok(Think(low.0..=high.0)),
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (Nanos(*self.0.start()), Nanos(*self.0.end()));
        if low == high { low.fmt(f) } else { write!(f, "{low}..{high}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_parse_back_and_nonsense_is_refused() {
        for text in ["one-packet", "specweb99:3", "hot", "cold"] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
        assert_eq!("specweb99".parse(), Ok(Spec::Specweb99 { directories: 20 }));
        for text in ["1", "7", "5..15", "inf"] {
            assert_eq!(text.parse::<Length>().unwrap().to_string(), text);
        }
        for text in ["5ms", "0s..20ms"] {
            assert_eq!(text.parse::<Think>().unwrap().to_string(), text);
        }
        assert!("0".parse::<Think>().unwrap().is_none());
        assert!("specweb99:0".parse::<Spec>().is_err() && "specweb99:10001".parse::<Spec>().is_err());
        assert!("urls".parse::<Spec>().is_err() && "urls:/no/such/file".parse::<Spec>().is_err());
        assert!("0".parse::<Length>().is_err() && "3..2".parse::<Length>().is_err());
        assert!("2s..1s".parse::<Think>().is_err());
    }
}
