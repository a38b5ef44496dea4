//! The requests of a run, encoded once.
//!
//! A workload is a table of requests with weights, encoded when the plan is made, and a distribution of session lengths.
//! Choosing a request costs a search in the table and a copy of its bytes. The last request of a session carries
//! `Connection: close` (RFC 9112, 9.6), so that the server need not wait for another one. Over HTTP/2 a request is a
//! header block, the same for every connection, and the content beside it.

use base::Nanos;
use bytes::Bytes;
use http1::client::{RequestHead, encode_request};

use crate::plan::config::Config;
use crate::plan::draws::Draws;
use crate::plan::workload::{Form, Length, Think};

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
        let (paths, weights) = config.workload.paths(&config.urls);
        let (own_length, own_think) = config.workload.session();
        let (mut arena, form) = (Vec::new(), &config.form);
        let authority = form.hosts().next().map_or_else(|| config.urls[0].authority(), str::to_owned);
        let fields = form.field_lines();
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
        self.length.draw(draws)
    }

    /// The mean number of requests per session.
    pub fn mean_session_length(&self) -> f64 {
        self.length.mean()
    }

    /// The mean of a session's think times together.
    pub fn mean_thinking(&self) -> Nanos {
        Nanos::from_secs_f64(self.think.mean().as_secs_f64() * (self.length.mean() - 1.0))
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
    let fields = form.fields_beside_host().map(|field| (field.name(), field.value()));
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::config::Client;
    use crate::plan::workload::Spec;
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
    fn host_field_replaces_the_authority() {
        let mut other = config(&["http://127.0.0.1:81/"], Spec::OnePacket);
        other.form.fields = vec!["host: a.test".parse().unwrap(), "X: y".parse().unwrap()];
        let text = String::from_utf8(Workload::new(&other).bytes(RequestId(0), false).to_vec()).unwrap();
        assert!(text.starts_with("GET / HTTP/1.1\r\nHost: a.test\r\nX: y\r\n"), "{text}");
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
        assert_eq!(
            [hot.mean_thinking(), cold.mean_thinking()],
            [Nanos::from_millis(40), Nanos::from_secs(95)]
        );
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
    fn request_has_keep_alive_and_close_forms() {
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
}
