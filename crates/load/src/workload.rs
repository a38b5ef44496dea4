//! What sessions ask for: how many requests each, and which.
//!
//! A workload is a table of requests with weights, encoded once when the run starts, and a
//! distribution of session lengths. The path of a request costs a search in the table and a copy of the
//! bytes. The last request of a session says `Connection: close` (RFC 9112, 9.6), so that the server
//! need not wait for another one.
//!
//! To add one: a variant of [`Spec`], its text, and its table.

pub mod specweb;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use base::Nanos;
use http1::client::{RequestHead, encode_request};

use crate::draws::Draws;
use crate::target::Url;

/// The most directories of a file set; its requests are kept encoded, some 6 KiB a directory.
const DIRECTORIES_MAX: u32 = 10_000;

/// Which workload, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Spec {
    /// The URLs as they are, each as likely as the others; one request a session.
    #[default]
    OnePacket,
    /// The SPECweb99-like file set below the URL, see [`specweb`].
    Specweb99 {
        /// How many directories: 1 to 10,000.
        directories: u32,
    },
}

/// How many requests a session makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// Between two bounds, uniformly; both are 1 or more.
    Uniform(RangeInclusive<u32>),
    /// SPECweb99's: 30 % of sessions make one request, 70 % make 5 to 15.
    Specweb99,
}

/// How long a session thinks between a reply and its next request: uniform, both bounds included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Think(RangeInclusive<u64>);

/// A setting of the workload that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not {expected}")]
pub struct WorkloadError {
    given: String,
    expected: &'static str,
}

/// One request of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u32);

/// Where a request's two forms stand in the arena: the one that keeps the connection, then the one that
/// ends it.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    middle: usize,
    end: usize,
}

/// The table, encoded. Shared by all threads.
#[derive(Debug)]
pub struct Workload {
    arena: Vec<u8>,
    places: Vec<Place>,
    /// The sum of the weights up to and with each request, as shares: the last is 1.
    cumulative: Vec<f64>,
    length: Length,
}

impl Workload {
    /// The workload of these URLs, which are at least one and share their authority. `length` replaces
    /// the workload's own.
    pub fn new(urls: &[Url], spec: Spec, length: Option<Length>) -> Workload {
        let authority = urls[0].authority();
        let (paths, weights): (Vec<String>, Vec<f64>) = match spec {
            Spec::OnePacket => urls.iter().map(|url| (url.path().to_owned(), 1.0)).unzip(),
            Spec::Specweb99 { directories } => {
                let root = urls[0].path().trim_end_matches('/');
                specweb::files(directories).map(|file| (format!("{root}{}", file.path), file.weight)).unzip()
            }
        };
        let own_length = match spec {
            Spec::OnePacket => Length::Uniform(1..=1),
            Spec::Specweb99 { .. } => Length::Specweb99,
        };
        let mut arena = Vec::new();
        let places = paths.iter().map(|path| encode(&mut arena, &authority, path)).collect();
        Workload { arena, places, cumulative: shares(&weights), length: length.unwrap_or(own_length) }
    }

    /// How many requests the next session makes.
    pub fn session_length(&self, draws: &mut Draws) -> u32 {
        match &self.length {
            Length::Uniform(range) if range.start() == range.end() => *range.start(),
            Length::Uniform(range) => {
                draws.between(u64::from(*range.start()), u64::from(*range.end())) as u32
            }
            Length::Specweb99 => specweb::session_length(draws),
        }
    }

    /// The mean number of requests a session.
    pub fn mean_session_length(&self) -> f64 {
        self.length.mean()
    }

    /// Which request comes next.
    pub fn pick(&self, draws: &mut Draws) -> RequestId {
        if self.places.len() == 1 {
            return RequestId(0);
        }
        let point = draws.unit();
        let index = self.cumulative.partition_point(|share| *share <= point);
        RequestId(index.min(self.places.len() - 1) as u32)
    }

    /// A request's bytes; `last` of its session or not.
    pub fn bytes(&self, request: RequestId, last: bool) -> &[u8] {
        let place = self.places[request.0 as usize];
        if last { &self.arena[place.middle..place.end] } else { &self.arena[place.start..place.middle] }
    }
}

/// Appends both forms of a request.
fn encode(arena: &mut Vec<u8>, authority: &str, path: &str) -> Place {
    let head = RequestHead { method: "GET", target: path, host: authority, fields: "", persistent: true };
    let start = arena.len();
    encode_request(arena, &head);
    let middle = arena.len();
    encode_request(arena, &RequestHead { persistent: false, ..head });
    Place { start, middle, end: arena.len() }
}

/// Running sums of the weights, scaled so that the last is 1.
fn shares(weights: &[f64]) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let add = |weight: &f64| {
        sum += weight / total;
        sum
    };
    weights.iter().map(add).collect()
}

impl Length {
    /// The mean.
    pub fn mean(&self) -> f64 {
        match self {
            Length::Uniform(range) => (f64::from(*range.start()) + f64::from(*range.end())) / 2.0,
            Length::Specweb99 => specweb::SESSION_LENGTH_MEAN,
        }
    }
}

impl Think {
    /// No time at all.
    pub const NONE: Think = Think(0..=0);

    /// Whether it is no time at all.
    pub fn is_none(&self) -> bool {
        *self == Think::NONE
    }

    /// The next think time.
    pub fn draw(&self, draws: &mut Draws) -> Nanos {
        if self.is_none() { Nanos::ZERO } else { Nanos(draws.between(*self.0.start(), *self.0.end())) }
    }
}

impl FromStr for Spec {
    type Err = WorkloadError;
    fn from_str(text: &str) -> Result<Spec, WorkloadError> {
        let refuse = || WorkloadError {
            given: text.to_owned(),
            expected: "a workload: one-packet, specweb99 or specweb99:DIRECTORIES (1 to 10000)",
        };
        match text.split_once(':') {
            None if text == "one-packet" => Ok(Spec::OnePacket),
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
        }
    }
}

impl FromStr for Length {
    type Err = WorkloadError;
    fn from_str(text: &str) -> Result<Length, WorkloadError> {
        let refuse = || WorkloadError {
            given: text.to_owned(),
            expected: "a number of requests such as 1, 10 or 5..15",
        };
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
            Length::Uniform(range) if range.start() == range.end() => range.start().fmt(f),
            Length::Uniform(range) => write!(f, "{}..{}", range.start(), range.end()),
            Length::Specweb99 => f.write_str("specweb99"),
        }
    }
}

impl FromStr for Think {
    type Err = WorkloadError;
    fn from_str(text: &str) -> Result<Think, WorkloadError> {
        let refuse =
            || WorkloadError { given: text.to_owned(), expected: "a think time such as 0, 5ms or 0..20ms" };
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

    fn workload(urls: &[&str], spec: Spec, length: Option<Length>) -> Workload {
        let urls: Vec<Url> = urls.iter().map(|url| url.parse().unwrap()).collect();
        Workload::new(&urls, spec, length)
    }

    #[test]
    fn a_request_has_a_form_that_keeps_the_connection_and_one_that_ends_it() {
        let one = workload(&["http://host:81/a?b"], Spec::OnePacket, None);
        let request = one.pick(&mut Draws::new(1));
        let text = |last| String::from_utf8(one.bytes(request, last).to_vec()).unwrap();
        assert!(text(false).starts_with("GET /a?b HTTP/1.1\r\nHost: host:81\r\n"), "{}", text(false));
        assert!(!text(false).contains("close") && text(true).contains("Connection: close\r\n"));
        assert!(text(false).ends_with("\r\n\r\n") && text(true).ends_with("\r\n\r\n"));
    }

    #[test]
    fn several_urls_are_equally_likely() {
        let three = workload(&["http://h/0", "http://h/1", "http://h/2"], Spec::OnePacket, None);
        let mut draws = Draws::new(7);
        let mut counts = [0u32; 3];
        for _ in 0..30_000 {
            counts[three.pick(&mut draws).0 as usize] += 1;
        }
        // Chi-square with two degrees of freedom: above 18.4 once in ten thousand.
        let chi: f64 = counts.iter().map(|count| (f64::from(*count) - 1e4).powi(2) / 1e4).sum();
        assert!(chi < 18.4, "{counts:?}");
    }

    #[test]
    fn a_given_length_replaces_the_workloads_own() {
        let long = workload(&["http://h/"], Spec::OnePacket, Some("5..15".parse().unwrap()));
        let mut draws = Draws::new(3);
        let lengths: Vec<u32> = (0..1000).map(|_| long.session_length(&mut draws)).collect();
        assert!(lengths.contains(&5) && lengths.contains(&15));
        assert!(lengths.iter().all(|length| (5..=15).contains(length)));
        assert_eq!(long.mean_session_length(), 10.0);
    }

    #[test]
    fn specweb_paths_lie_below_the_url() {
        let below = workload(&["http://h/set/"], Spec::Specweb99 { directories: 2 }, None);
        let first = String::from_utf8(below.bytes(RequestId(0), false).to_vec()).unwrap();
        assert!(first.starts_with("GET /set/dir00000/class0_0 HTTP/1.1\r\n"), "{first}");
        assert_eq!(below.places.len(), 72);
    }

    #[test]
    fn settings_parse_back_and_nonsense_is_refused() {
        for text in ["one-packet", "specweb99:3"] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
        assert_eq!("specweb99".parse(), Ok(Spec::Specweb99 { directories: 20 }));
        for text in ["1", "7", "5..15"] {
            assert_eq!(text.parse::<Length>().unwrap().to_string(), text);
        }
        for text in ["5ms", "0s..20ms"] {
            assert_eq!(text.parse::<Think>().unwrap().to_string(), text);
        }
        assert!("0".parse::<Think>().unwrap().is_none());
        assert!("specweb99:0".parse::<Spec>().is_err() && "specweb99:10001".parse::<Spec>().is_err());
        assert!("0".parse::<Length>().is_err() && "3..2".parse::<Length>().is_err());
        assert!("2s..1s".parse::<Think>().is_err());
    }
}
