//! The requests of a run.
//!
//! ```text
//!   the URLs and the form ─┐
//!   urls:FILE, specweb99 ──┼─> table: bytes, encoded once ─┐
//!   --requests FILE ───────┤                               ├─> a session's requests
//!   --data FILE.csv ───────┴─> script: texts to fill in ───┘
//! ```
//!
//! A table has requests with weights, encoded when the plan is made. Choosing a request costs a search in the table, and no
//! allocation. The last request of a session carries `Connection: close` (RFC 9112, 9.6), so that the server need not wait
//! for another one. Over HTTP/2 a request is a header block, the same for every connection, and the content beside it.
//!
//! The requests of a file are a table too, unless their bytes differ from session to session. Then they are a [`Script`],
//! and the engine keeps a state for each session.
//!
//! The modules: `parts` completes a request from the flags, `arena` has the bytes of the table, `text` the values to fill in,
//! and `script` the requests that need them. The files are read in `workload`.

mod arena;
mod parts;
mod script;
mod text;

use base::Nanos;
use bytes::Bytes;
use http1::client::{RequestHead, encode_request};

use crate::error::LoadError;
use crate::plan::choices::expected::Statuses;
use crate::plan::choices::workload::{Definition, Form, Length, RequestFile, Think};
use crate::plan::config::{Client, Config};
use crate::plan::terms::draws::Draws;
use arena::Arena;
use parts::Parts;
pub(crate) use script::{Script, Step};
pub(crate) use text::Values;

/// The most names in a file: each has a histogram in every thread.
const NAMES_MAX: usize = 100;

/// The number of a request in the table or in the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub(crate) u32);

/// A request in the arena: the encoding that keeps the connection, and the one that closes it. Over HTTP/2 it is the header
/// block and the content.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    middle: usize,
    end: usize,
}

/// A choice by weights.
#[derive(Debug)]
struct Choice {
    count: usize,
    /// The running sum of the weights, as fractions of their total: the last one is 1. Empty for equal weights.
    cumulative: Vec<f64>,
}

impl Choice {
    fn by(weights: impl Iterator<Item = f64>) -> Choice {
        let weights: Vec<f64> = weights.collect();
        let are_equal = weights.windows(2).all(|two| two[0] == two[1]);
        Choice { count: weights.len(), cumulative: if are_equal { Vec::new() } else { shares(&weights) } }
    }

    fn draw(&self, draws: &mut Draws) -> usize {
        if self.count == 1 {
            return 0;
        }
        let point = draws.unit();
        let index = match self.cumulative.is_empty() {
            true => (point * self.count as f64) as usize,
            false => self.cumulative.partition_point(|share| *share <= point),
        };
        index.min(self.count - 1)
    }

    /// The probability of one of them.
    fn share(&self, index: usize) -> f64 {
        match self.cumulative.get(index) {
            None => 1.0 / self.count as f64,
            Some(until) => until - index.checked_sub(1).map_or(0.0, |before| self.cumulative[before]),
        }
    }
}

/// The requests of a run. All threads share it.
#[derive(Debug)]
pub struct Workload {
    arena: Bytes,
    places: Vec<Place>,
    choice: Choice,
    script: Option<Script>,
    /// True if the sessions are made one after the other, each at its time.
    is_replay: bool,
    /// The properties of each request of a file.
    properties: Vec<Properties>,
    /// The names of requests, each once.
    names: Vec<String>,
    length: Length,
    think: Think,
    answers_head: bool,
}

/// The properties of a request that its reply depends on.
#[derive(Clone, Debug)]
struct Properties {
    is_head: bool,
    /// The number of the request's name.
    name: Option<u32>,
    /// The correct statuses; `None` takes those of the run.
    expect: Option<Box<Statuses>>,
}

impl Workload {
    /// The workload of a configuration, which has at least one URL, all with the same authority. A session
    /// length or think time in the configuration replaces the workload's own.
    ///
    /// # Errors
    /// [`LoadError::Requests`] with the line.
    pub fn new(config: &Config) -> Result<Workload, LoadError> {
        let (own_length, own_think) = config.workload.session();
        let mut workload = Workload {
            arena: Bytes::new(),
            places: Vec::new(),
            choice: Choice::by(std::iter::empty()),
            script: None,
            is_replay: matches!(&config.client, Client::SClient { arrivals, .. } if arrivals.is_replay()),
            properties: Vec::new(),
            names: Vec::new(),
            length: config.requests_per_connection.clone().unwrap_or(own_length),
            think: config.think.clone().unwrap_or(own_think),
            answers_head: config.form.method() == "HEAD",
        };
        match &config.requests {
            None => workload.take_urls(config),
            Some(file) => {
                let refuse = |why| LoadError::Requests { file: file.path().display().to_string(), why };
                workload.take_file(config, file).map_err(refuse)?;
            }
        }
        Ok(workload)
    }

    /// Encodes the requests of the URLs, all in one form.
    fn take_urls(&mut self, config: &Config) {
        let (paths, weights) = config.workload.paths(&config.urls);
        let (mut arena, form) = (Vec::new(), &config.form);
        let authority = form.hosts().next().map_or_else(|| config.urls[0].authority(), str::to_owned);
        let fields = form.field_lines();
        let (method, host) = (form.method(), authority.as_str());
        let head = |target| RequestHead { method, target, host, fields: &fields, persistent: true };
        let scheme = if config.urls[0].is_secure() { "https" } else { "http" };
        let over_http2 = |path| http2_block(form, scheme, host, path);
        let places = paths.iter().map(|path| match config.streams {
            None => encode(&mut arena, head(path), form.content()),
            Some(_) => place(&mut arena, &over_http2(path), form.content()),
        });
        self.places = places.collect();
        self.arena = arena.into();
        self.choice = Choice::by(weights.into_iter());
    }

    /// Encodes the requests of a file, or makes a script of them.
    fn take_file(&mut self, config: &Config, file: &RequestFile) -> Result<(), String> {
        let (mut arena, mut weights, mut scripted) = (Arena::default(), Vec::new(), Vec::new());
        let needs_script = file.needs_script();
        file.each(&config.urls[0], &mut |session| {
            for definition in &session.requests {
                let properties = self.properties_of(definition, config)?;
                self.properties.push(properties);
            }
            if needs_script {
                scripted.push(session);
                return Ok(());
            }
            let parts = Parts::of(&session.requests[0], config);
            let parts = parts.map_err(|why| format!("{}: {why}", session.position))?;
            let place = arena.add(|memory| encode_parts(memory, &parts, config));
            self.places.push(
                place.map_err(|cause| format!("its requests do not fit into a temporary file: {cause}"))?,
            );
            weights.push(session.weight);
            Ok(())
        })?;
        if self.properties.is_empty() {
            return Err(format!("it has no request to {}", config.urls[0].authority()));
        }
        self.answers_head = self.properties.iter().any(|properties| properties.is_head);
        if needs_script {
            self.script = Some(Script::new(config, &scripted)?);
            return Ok(());
        }
        self.arena = arena.freeze().map_err(|cause| format!("its requests cannot be mapped: {cause}"))?;
        self.choice = Choice::by(weights.into_iter());
        Ok(())
    }

    /// The properties of a request of a file.
    fn properties_of(&mut self, definition: &Definition, config: &Config) -> Result<Properties, String> {
        let method = definition.method.as_ref().or(config.form.method.as_ref());
        Ok(Properties {
            is_head: method.is_some_and(|method| method.name() == "HEAD"),
            name: definition.name.as_ref().map(|name| self.number_of(name)).transpose()?,
            expect: definition.expect.clone().map(Box::new),
        })
    }

    /// The number of a name, which is new or known.
    fn number_of(&mut self, name: &str) -> Result<u32, String> {
        let known = self.names.iter().position(|known| known == name);
        if known.is_none() && self.names.len() == NAMES_MAX {
            return Err(format!(
                "it has more than {NAMES_MAX} names; name kinds of requests, and not each one"
            ));
        }
        let number = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        Ok(number as u32)
    }

    /// The names of requests, by their numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns true if the requests are made at their own times.
    pub fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// The number of a request's name.
    pub fn name_of(&self, request: RequestId) -> Option<usize> {
        self.properties.get(request.0 as usize)?.name.map(|name| name as usize)
    }

    /// The script, if the bytes of requests differ from session to session.
    pub fn script(&self) -> Option<&Script> {
        self.script.as_ref()
    }

    /// Returns true if a request's method is HEAD, so that its reply has no content whatever its header says.
    pub fn answers_head(&self, request: RequestId) -> bool {
        self.properties.get(request.0 as usize).map_or(self.answers_head, |properties| properties.is_head)
    }

    /// Returns true if the method of any request is HEAD.
    pub fn has_head(&self) -> bool {
        self.answers_head
    }

    /// The correct statuses of a request; `None` takes those of the run.
    pub fn statuses(&self, request: RequestId) -> Option<&Statuses> {
        self.properties.get(request.0 as usize)?.expect.as_deref()
    }

    /// Draws the think time after a session's request.
    pub fn think_time(&self, request: RequestId, draws: &mut Draws) -> Nanos {
        let own = self.script.as_ref().and_then(|script| script.step(request).think.as_ref());
        own.unwrap_or(&self.think).draw(draws)
    }

    /// Returns false if every think time is zero.
    pub fn thinks(&self) -> bool {
        !self.think.is_none() || self.script.as_ref().is_some_and(Script::thinks)
    }

    /// The mean number of requests per session.
    pub fn mean_session_length(&self) -> f64 {
        match self.ordered() {
            Some(script) => script.means(&self.think).0,
            None => self.length.mean(),
        }
    }

    /// The mean of a session's think times together.
    pub fn mean_thinking(&self) -> Nanos {
        match self.ordered() {
            Some(script) => Nanos(script.means(&self.think).1 as u64),
            None => Nanos::from_secs_f64(self.think.mean().as_secs_f64() * (self.length.mean() - 1.0)),
        }
    }

    /// The script, if its sessions make their requests in order.
    fn ordered(&self) -> Option<&Script> {
        self.script.as_ref().filter(|script| script.is_ordered)
    }

    /// A session: the number of its requests, and the first. It is drawn, or in a replay the one with this number.
    pub fn begin(&self, number: u64, draws: &mut Draws) -> (u32, RequestId) {
        if self.is_replay {
            return match &self.script {
                Some(script) => script.session(number),
                None => (1, RequestId((number % self.places.len() as u64) as u32)),
            };
        }
        match self.ordered() {
            Some(script) => script.pick(draws),
            None => {
                let requests = self.length.draw(draws);
                (requests, self.pick(draws))
            }
        }
    }

    /// The request that follows another one in a session. After the last one the result is of no use.
    pub fn next(&self, request: RequestId, draws: &mut Draws) -> RequestId {
        match self.ordered() {
            Some(_) => RequestId((request.0 + 1).min(self.properties.len() as u32 - 1)),
            None => self.pick(draws),
        }
    }

    /// Draws a request.
    pub fn pick(&self, draws: &mut Draws) -> RequestId {
        match &self.script {
            Some(script) => script.pick(draws).1,
            None => RequestId(self.choice.draw(draws) as u32),
        }
    }

    /// The bytes of a request of the table; `last` selects the encoding for the last request of a session.
    pub fn bytes(&self, request: RequestId, last: bool) -> &[u8] {
        let place = self.places[request.0 as usize];
        if last { &self.arena[place.middle..place.end] } else { &self.arena[place.start..place.middle] }
    }

    /// The header block of an HTTP/2 request.
    pub fn block(&self, request: RequestId) -> &[u8] {
        self.bytes(request, false)
    }

    /// The content of an HTTP/2 request.
    pub fn content(&self, request: RequestId) -> Bytes {
        let place = self.places[request.0 as usize];
        self.arena.slice(place.middle..place.end)
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

/// Appends a request of a file.
fn encode_parts(arena: &mut Vec<u8>, parts: &Parts<'_>, config: &Config) -> Place {
    let (content, length) = (parts.plain_content(), parts.plain_content().len().to_string());
    let has_content = parts.content.is_some();
    let (method, target, host) = (parts.method, parts.target.as_str(), parts.host.as_str());
    if config.streams.is_some() {
        let scheme = if config.urls[0].is_secure() { "https" } else { "http" };
        let fields = parts.fields.lines().filter_map(|line| line.split_once(": "));
        let fields = fields.chain(has_content.then_some(("content-length", length.as_str())));
        let head = http2::client::RequestHead { method, scheme, authority: host, path: target };
        return place(arena, &http2::client::encode_request(&head, fields), content);
    }
    let length = if has_content { format!("Content-Length: {length}\r\n") } else { String::new() };
    let fields = format!("{}{length}", parts.fields);
    encode(arena, RequestHead { method, target, host, fields: &fields, persistent: true }, content)
}

/// Appends a header block of HTTP/2 and its content.
fn place(arena: &mut Vec<u8>, block: &[u8], content: &[u8]) -> Place {
    let start = arena.len();
    arena.extend_from_slice(block);
    let middle = arena.len();
    arena.extend_from_slice(content);
    Place { start, middle, end: arena.len() }
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
    use crate::plan::choices::workload::Spec;
    use crate::plan::config::Client;
    use std::num::NonZeroU32;

    fn config(urls: &[&str], spec: Spec) -> Config {
        let client = Client::Closed { clients: NonZeroU32::MIN };
        let urls = urls.iter().map(|url| url.parse().unwrap()).collect();
        Config { workload: spec, ..Config::new(urls, client) }
    }

    pub(crate) fn workload(urls: &[&str], spec: Spec, length: Option<Length>) -> Workload {
        Workload::new(&Config { requests_per_connection: length, ..config(urls, spec) }).unwrap()
    }

    #[test]
    fn method_fields_and_content_stand_in_every_request() {
        let mut posting = config(&["http://h/"], Spec::OnePacket);
        posting.form.body = Some("a=b".parse().unwrap());
        posting.form.fields = vec!["X: y".parse().unwrap()];
        let all = Workload::new(&posting).unwrap();
        for last in [false, true] {
            let text = String::from_utf8(all.bytes(RequestId(0), last).to_vec()).unwrap();
            let head = "POST / HTTP/1.1\r\nHost: h\r\nX: y\r\nContent-Length: 3\r\n";
            assert!(text.starts_with(head) && text.ends_with("\r\n\r\na=b"), "{text}");
        }
        assert!(!all.has_head());
    }

    #[test]
    fn host_field_replaces_the_authority() {
        let mut other = config(&["http://127.0.0.1:81/"], Spec::OnePacket);
        other.form.fields = vec!["host: a.test".parse().unwrap(), "X: y".parse().unwrap()];
        let text =
            String::from_utf8(Workload::new(&other).unwrap().bytes(RequestId(0), false).to_vec()).unwrap();
        assert!(text.starts_with("GET / HTTP/1.1\r\nHost: a.test\r\nX: y\r\n"), "{text}");
    }

    #[test]
    fn hot_and_cold_clients_are_those_of_the_paper() {
        let mut draws = Draws::new(3);
        let hot = workload(&["http://h/"], Spec::Hot, None);
        assert_eq!(hot.begin(0, &mut draws).0, 5);
        let times: Vec<u64> = (0..1000).map(|_| hot.think_time(RequestId(0), &mut draws).0).collect();
        let mean_ms = times.iter().sum::<u64>() as f64 / 1e9;
        assert!(times.iter().all(|time| *time <= 20_000_000) && (mean_ms - 10.0).abs() < 1.0, "{mean_ms}");
        let cold = workload(&["http://h/"], Spec::Cold, None);
        assert_eq!(
            (cold.begin(0, &mut draws).0, cold.think_time(RequestId(0), &mut draws)),
            (20, Nanos::from_secs(5))
        );
        assert_eq!(
            [hot.mean_thinking(), cold.mean_thinking()],
            [Nanos::from_millis(40), Nanos::from_secs(95)]
        );
        let mut hasty = config(&["http://h/"], Spec::Cold);
        hasty.think = Some(Think::NONE);
        assert_eq!(Workload::new(&hasty).unwrap().think_time(RequestId(0), &mut draws), Nanos::ZERO);
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
        let lengths: Vec<u32> = (0..1000).map(|_| long.begin(0, &mut draws).0).collect();
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

    fn from_file(text: &str, change: impl FnOnce(&mut Config)) -> Result<Workload, LoadError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        let mut config = config(&["http://h/base/"], Spec::OnePacket);
        config.requests = Some(file.path().to_str().unwrap().parse().unwrap());
        change(&mut config);
        Workload::new(&config)
    }

    #[test]
    fn plain_requests_of_a_file_are_a_table() {
        let text = r#"{"path": "/a", "headers": {"X": "1"}, "expect": 404}
            {"method": "PUT", "path": "/b", "body": {"a": 1}, "weight": 3}
            {"method": "HEAD", "path": "/c"}"#;
        let all = from_file(text, |config| {
            config.form.fields = vec!["x: 2".parse().unwrap(), "Y: 3".parse().unwrap()];
        });
        let all = all.unwrap();
        assert!(all.script().is_none());
        let text = |number, last| String::from_utf8(all.bytes(RequestId(number), last).to_vec()).unwrap();
        assert_eq!(text(0, false), "GET /base/a HTTP/1.1\r\nHost: h\r\nX: 1\r\nY: 3\r\n\r\n");
        assert!(text(1, true).starts_with("PUT /base/b HTTP/1.1\r\n"), "{}", text(1, true));
        assert!(
            text(1, true).ends_with("Content-Length: 7\r\nConnection: close\r\n\r\n{\"a\":1}"),
            "{}",
            text(1, true)
        );
        let heads = [0, 1, 2].map(|number| all.answers_head(RequestId(number)));
        assert_eq!((heads, all.statuses(RequestId(0)).unwrap().contains(404)), ([false, false, true], true));
        let mut draws = Draws::new(5);
        let puts = (0..1000).filter(|_| all.pick(&mut draws) == RequestId(1)).count();
        // Three of five weights: the standard deviation is 15.5.
        assert!((500..700).contains(&puts), "{puts}");
    }

    #[test]
    fn sessions_of_a_file_keep_their_order() {
        let text = r#"[{"path": "/a", "capture": {"t": "/t"}}, {"path": "/{{t}}", "think": "2s"}, {"path": "/c"}]
            {"path": "/one", "weight": 1}"#;
        let all = from_file(text, |_| {}).unwrap();
        assert_eq!((all.mean_session_length(), all.mean_thinking()), (2.0, Nanos::SECOND));
        let mut draws = Draws::new(5);
        for _ in 0..100 {
            let (requests, first) = all.begin(0, &mut draws);
            assert!([(3, RequestId(0)), (1, RequestId(3))].contains(&(requests, first)));
            assert_eq!(all.next(RequestId(0), &mut draws), RequestId(1));
        }
        assert_eq!(all.think_time(RequestId(1), &mut draws), Nanos::from_secs(2));
    }

    #[test]
    fn mistakes_of_a_file_are_refused_before_the_run() {
        for (text, told) in [
            (r#"{"path": "/{{user}}"}"#, "line 1: nothing defines '{{user}}'"),
            (r#"[{"path": "/{{t}}", "capture": {"t": "/t"}}]"#, "line 1: nothing defines '{{t}}'"),
            (r#"{"path": "/a b"}"#, "line 1: the path '/base/a b' has ' '; percent-encode it"),
            (r#"{"url": "http://other/"}"#, "line 1: http://other/ is of another server than http://h/base/"),
        ] {
            let found = from_file(text, |_| {}).unwrap_err().to_string();
            assert!(found.starts_with("--requests ") && found.contains(told), "{found}");
        }
    }
}
