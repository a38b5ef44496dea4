//! Workloads: the number of requests in each session, and the requests themselves.
//!
//! A workload is a table of requests with weights, encoded once when the run starts, and a distribution of
//! session lengths. Choosing a request costs a search in the table and a copy of its bytes. The last request
//! of a session carries `Connection: close` (RFC 9112, 9.6), so that the server need not wait for another
//! one. Over HTTP/2 a request is a header block, the same for every connection, and the content beside it.
//!
//! To add a workload: a variant of [`Spec`], its text, and its table.
//!
//! The modules: `form` holds method, fields and content; `specweb` is the SPECweb99-like file set, `urls` a
//! list from a file.

mod form;
pub mod specweb;
mod urls;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use base::Nanos;
use bytes::Bytes;
use http1::client::{RequestHead, encode_request};

use crate::config::Config;
use crate::draws::Draws;
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

/// The number of a request in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub(crate) u32);

/// The two encodings of a request in the arena: one keeps the connection, the other closes it. Over HTTP/2 the
/// second one is empty.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    middle: usize,
    end: usize,
}

/// The encoded table. All threads share it.
#[derive(Debug)]
pub struct Workload {
    arena: Vec<u8>,
    places: Vec<Place>,
    /// The running sum of the weights, as fractions of their total: the last one is 1.
    cumulative: Vec<f64>,
    length: Length,
    think: Think,
    answers_head: bool,
    /// The content of an HTTP/2 request.
    content: Bytes,
}

impl Workload {
    /// The workload of a configuration, which has at least one URL, all with the same authority. A session
    /// length or think time in the configuration replaces the workload's own.
    pub fn new(config: &Config) -> Workload {
        let root = config.urls[0].path().trim_end_matches('/');
        let (paths, weights): (Vec<String>, Vec<f64>) = match &config.workload {
            Spec::OnePacket | Spec::Hot | Spec::Cold => {
                config.urls.iter().map(|url| (url.path().to_owned(), 1.0)).unzip()
            }
            Spec::Specweb99 { directories } => {
                specweb::files(*directories).map(|file| (format!("{root}{}", file.path), file.weight)).unzip()
            }
            Spec::Urls(list) => list.iter().map(|(path, weight)| (format!("{root}{path}"), weight)).unzip(),
        };
        let (own_length, own_think) = config.workload.session();
        let (mut arena, form) = (Vec::new(), &config.form);
        let (authority, fields) = (config.urls[0].authority(), form.field_lines());
        let (method, host) = (form.method(), authority.as_str());
        let head = |target| RequestHead { method, target, host, fields: &fields, persistent: true };
        let scheme = if config.urls[0].is_secure() { "https" } else { "http" };
        let over_http2 = |path| http2_block(form, scheme, host, path);
        let places = paths.iter().map(|path| match config.streams {
            None => encode(&mut arena, head(path), form.content()),
            Some(_) => place(&mut arena, &over_http2(path)),
        });
        let places = places.collect();
        Workload {
            arena,
            places,
            cumulative: shares(&weights),
            length: config.requests_per_connection.clone().unwrap_or(own_length),
            think: config.think.clone().unwrap_or(own_think),
            answers_head: method == "HEAD",
            content: Bytes::copy_from_slice(form.content()),
        }
    }

    /// Returns true if the requests' method is HEAD, so that replies have no content whatever their header
    /// says.
    pub fn answers_head(&self) -> bool {
        self.answers_head
    }

    /// Draws the think time before a session's next request.
    pub fn think_time(&self, draws: &mut Draws) -> Nanos {
        self.think.draw(draws)
    }

    /// Returns false if every think time is zero.
    pub fn thinks(&self) -> bool {
        !self.think.is_none()
    }

    /// Draws the number of requests of the next session.
    pub fn session_length(&self, draws: &mut Draws) -> u32 {
        match &self.length {
            Length::Uniform(range) if range.start() == range.end() => *range.start(),
            Length::Uniform(range) => {
                draws.between(u64::from(*range.start()), u64::from(*range.end())) as u32
            }
            Length::Specweb99 => specweb::session_length(draws),
        }
    }

    /// The mean number of requests per session.
    pub fn mean_session_length(&self) -> f64 {
        self.length.mean()
    }

    /// Draws the next request.
    pub fn pick(&self, draws: &mut Draws) -> RequestId {
        if self.places.len() == 1 {
            return RequestId(0);
        }
        let point = draws.unit();
        let index = self.cumulative.partition_point(|share| *share <= point);
        RequestId(index.min(self.places.len() - 1) as u32)
    }

    /// The bytes of a request; `last` selects the encoding for the last request of a session.
    pub fn bytes(&self, request: RequestId, last: bool) -> &[u8] {
        let place = self.places[request.0 as usize];
        if last { &self.arena[place.middle..place.end] } else { &self.arena[place.start..place.middle] }
    }

    /// The header block of an HTTP/2 request.
    pub fn block(&self, request: RequestId) -> &[u8] {
        self.bytes(request, false)
    }

    /// The content of an HTTP/2 request.
    pub fn content(&self) -> Bytes {
        self.content.clone()
    }
}

/// The header block of an HTTP/2 request.
fn http2_block(form: &Form, scheme: &str, authority: &str, path: &str) -> Vec<u8> {
    let length = form.content_length();
    let fields = form.fields.iter().map(|field| (field.name(), field.value()));
    let fields = fields.chain(length.iter().map(|length| ("content-length", length.as_str())));
    let head = http2::client::RequestHead { method: form.method(), scheme, authority, path };
    http2::client::encode_request(&head, fields)
}

/// Appends an encoding that every request of a session has.
fn place(arena: &mut Vec<u8>, bytes: &[u8]) -> Place {
    let start = arena.len();
    arena.extend_from_slice(bytes);
    Place { start, middle: arena.len(), end: arena.len() }
}

/// Appends both encodings of a request.
fn encode(arena: &mut Vec<u8>, head: RequestHead<'_>, content: &[u8]) -> Place {
    let start = arena.len();
    encode_request(arena, &head);
    arena.extend_from_slice(content);
    let middle = arena.len();
    encode_request(arena, &RequestHead { persistent: false, ..head });
    arena.extend_from_slice(content);
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
    /// One request.
    pub(crate) const ONE: Length = Length::Uniform(1..=1);

    /// The mean number of requests.
    pub fn mean(&self) -> f64 {
        match self {
            Length::Uniform(range) => (f64::from(*range.start()) + f64::from(*range.end())) / 2.0,
            Length::Specweb99 => specweb::SESSION_LENGTH_MEAN,
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

    /// The session length and the think time.
    fn session(&self) -> (Length, Think) {
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
        let refuse = || WorkloadError::not(text, "a number of requests such as 1, 10 or 5..15");
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
pub(crate) mod tests {
    use super::*;
    use crate::config::Client;
    use std::num::NonZeroU32;

    fn config(urls: &[&str], spec: Spec) -> Config {
        let client = Client::Closed { clients: NonZeroU32::MIN };
        let urls = urls.iter().map(|url| url.parse().unwrap()).collect();
        Config { workload: spec, ..Config::new(urls, client) }
    }

    pub(crate) fn workload(urls: &[&str], spec: Spec, length: Option<Length>) -> Workload {
        Workload::new(&Config { requests_per_connection: length, ..config(urls, spec) })
    }

    #[test]
    fn method_fields_and_content_stand_in_every_request() {
        let mut posting = config(&["http://h/"], Spec::OnePacket);
        posting.form.body = Some("a=b".parse().unwrap());
        posting.form.fields = vec!["X: y".parse().unwrap()];
        let all = Workload::new(&posting);
        for last in [false, true] {
            let text = String::from_utf8(all.bytes(RequestId(0), last).to_vec()).unwrap();
            let head = "POST / HTTP/1.1\r\nHost: h\r\nX: y\r\nContent-Length: 3\r\n";
            assert!(text.starts_with(head) && text.ends_with("\r\n\r\na=b"), "{text}");
        }
        assert!(!all.answers_head());
    }

    #[test]
    fn hot_and_cold_clients_are_those_of_the_paper() {
        let mut draws = Draws::new(3);
        let hot = workload(&["http://h/"], Spec::Hot, None);
        assert_eq!(hot.session_length(&mut draws), 5);
        let times: Vec<u64> = (0..1000).map(|_| hot.think_time(&mut draws).0).collect();
        let mean_ms = times.iter().sum::<u64>() as f64 / 1e9;
        assert!(times.iter().all(|time| *time <= 20_000_000) && (mean_ms - 10.0).abs() < 1.0, "{mean_ms}");
        let cold = workload(&["http://h/"], Spec::Cold, None);
        assert_eq!((cold.session_length(&mut draws), cold.think_time(&mut draws)), (20, Nanos::from_secs(5)));
        let mut hasty = config(&["http://h/"], Spec::Cold);
        hasty.think = Some(Think::NONE);
        assert_eq!(Workload::new(&hasty).think_time(&mut draws), Nanos::ZERO);
    }

    #[test]
    fn a_list_of_urls_is_asked_for_by_its_weights() {
        let file = std::env::temp_dir().join(format!("inrush-urls-{}", std::process::id()));
        std::fs::write(&file, "3 /a\n1 /b\n").unwrap();
        let spec: Spec = format!("urls:{}", file.display()).parse().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(spec.to_string(), format!("urls:{}", file.display()));
        let list = workload(&["http://h/base/"], spec, None);
        let mut draws = Draws::new(7);
        let firsts = (0..40_000).filter(|_| list.pick(&mut draws) == RequestId(0)).count();
        assert!((firsts as f64 - 30_000.0).abs() < 5.0 * 7500f64.sqrt(), "{firsts}");
        assert!(list.bytes(RequestId(0), true).starts_with(b"GET /base/a HTTP/1.1\r\n"));
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
        // Chi-square with two degrees of freedom: above 18.4 once in ten thousand draws.
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
        for text in ["one-packet", "specweb99:3", "hot", "cold"] {
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
        assert!("urls".parse::<Spec>().is_err() && "urls:/no/such/file".parse::<Spec>().is_err());
        assert!("0".parse::<Length>().is_err() && "3..2".parse::<Length>().is_err());
        assert!("2s..1s".parse::<Think>().is_err());
    }
}
