//! The hot requests of one loop.
//!
//! A table of fixed size counts requests by a hash. A collision costs only a count.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::os::fd::BorrowedFd;

use base::{Nanos, lock};
use bpf::kernel_cache::{LONGEST, LONGEST_REQUEST};
use http_semantics::{Body, Method, Request, Response, Status, Version};
use site::{File, Hosts};

use super::SharedCache;

/// The table's size, in requests.
const COUNTED: usize = 4096;
/// The number of requests after which a loop tells the keeper.
const HOT_AFTER: u32 = 8;
/// Candidates that may wait for the keeper; further ones come again after [`HOT_AFTER`] requests.
const MOST_CANDIDATES: usize = 64;

/// All inputs of the response to a plain GET or HEAD.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The number of the host.
    pub host: u16,
    pub head: bool,
    pub target: String,
    pub accept_encoding: Vec<u8>,
}

/// A request that the kernel cache is to answer.
#[derive(Debug)]
pub struct Candidate {
    pub key: Key,
    /// The bytes of the request as clients write it: `Name: value`, without other white space.
    pub bytes: Vec<u8>,
}

/// Observes the answers of one loop.
#[derive(Clone)]
pub struct Observer {
    shared: SharedCache,
    hosts: Hosts,
    hasher: RandomState,
    counts: Box<[Count]>,
}

#[derive(Clone, Copy, Default)]
struct Count {
    hash: u64,
    requests: u32,
}

impl Observer {
    pub(super) fn new(shared: SharedCache, hosts: Hosts) -> Observer {
        let counts = vec![Count::default(); COUNTED].into_boxed_slice();
        Observer { shared, hosts, hasher: RandomState::new(), counts }
    }

    /// Counts an answered request, and hands it to the keeper when it is hot.
    pub fn see(&mut self, request: &Request<'_>, response: &Response<File>) {
        if !may_be_kept(request, response) {
            return;
        }
        let hash = hash(&self.hasher, request);
        let count = &mut self.counts[hash as usize % COUNTED];
        if count.hash != hash {
            *count = Count { hash, requests: 0 };
        }
        count.requests += 1;
        if count.requests < HOT_AFTER {
            return;
        }
        count.requests = 0;
        let mut waiting = lock(&self.shared.0.candidates);
        if waiting.len() < MOST_CANDIDATES
            && let Some(candidate) = candidate(self.hosts.number(request.host), request)
        {
            waiting.push(candidate);
        }
    }

    /// Returns the time since the kernel cache last answered a connection; `None` if it never did.
    pub fn idle_for(&self, socket: BorrowedFd<'_>) -> Option<Nanos> {
        self.shared.idle_for(socket)
    }
}

/// Tells whether the response is a whole small file that depends only on the [`Key`], and leaves at once.
fn may_be_kept(request: &Request<'_>, response: &Response<File>) -> bool {
    let whole = response.status == Status::OK
        && !response.close
        && response.pace.is_none()
        && matches!(&response.body, Body::Bytes(bytes) if bytes.len() < LONGEST);
    whole
        && matches!(request.method, Method::Get | Method::Head)
        && request.version == Version::Http11
        // The authority of an absolute target may name another host.
        && request.values("host").all(|host| host == request.host.as_bytes())
        && request.fields.iter().all(|field| is_harmless(field.name, field.value))
}

/// Tells whether a field leaves a response unchanged, `Accept-Encoding` aside. A password may be withdrawn.
fn is_harmless(name: &str, value: &[u8]) -> bool {
    const OTHERS: [&str; 7] = [
        "authorization",
        "content-length",
        "endpoint-load-metrics-format",
        "expect",
        "range",
        "transfer-encoding",
        "upgrade",
    ];
    if name.eq_ignore_ascii_case("connection") {
        return value.eq_ignore_ascii_case(b"keep-alive");
    }
    let conditional = name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("if-"));
    !conditional && !OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other))
}

fn hash(hasher: &RandomState, request: &Request<'_>) -> u64 {
    let mut hasher = hasher.build_hasher();
    (request.method == Method::Head).hash(&mut hasher);
    request.target.hash(&mut hasher);
    for field in request.fields {
        field.name.hash(&mut hasher);
        field.value.hash(&mut hasher);
    }
    hasher.finish()
}

/// Writes the request to a host as most clients do; `None` if it is too long. The server answers clients that write it
/// differently.
fn candidate(host: u16, request: &Request<'_>) -> Option<Candidate> {
    let head = request.method == Method::Head;
    let mut bytes = Vec::with_capacity(LONGEST_REQUEST);
    bytes.extend_from_slice(if head { b"HEAD " } else { b"GET " });
    bytes.extend_from_slice(request.target.as_bytes());
    bytes.extend_from_slice(b" HTTP/1.1\r\n");
    for field in request.fields {
        for part in [field.name.as_bytes(), b": ", field.value, b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    let accept_encoding = request.values("accept-encoding").collect::<Vec<_>>().join(&b","[..]);
    let key = Key { host, head, target: request.target.to_owned(), accept_encoding };
    (bytes.len() <= LONGEST_REQUEST).then_some(Candidate { key, bytes })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use bytes::Bytes;
    use http_semantics::Pace;
    use httparse::Header;

    fn request<'a>(fields: &'a [Header<'a>]) -> Request<'a> {
        Request { host: "example", fields, ..Request::get("/a?b") }
    }

    fn response() -> Response<File> {
        let body = Body::Bytes(Bytes::from_static(b"x"));
        Response { status: Status::OK, fields: Bytes::new(), body, close: false, pace: None }
    }

    #[test]
    fn a_candidate_has_the_bytes_that_clients_send() {
        let fields = [Header { name: "Host", value: b"example" }, Header { name: "accept", value: b"*/*" }];
        let candidate = candidate(0, &request(&fields)).unwrap();
        assert_eq!(candidate.bytes, b"GET /a?b HTTP/1.1\r\nHost: example\r\naccept: */*\r\n\r\n");
    }

    #[test]
    fn fields_that_change_the_answer_keep_a_request_out() {
        for (name, value, kept) in [
            ("User-Agent", "curl", true),
            ("Host", "example", true),
            ("Host", "another", false),
            ("Connection", "keep-alive", true),
            ("Connection", "close", false),
            ("RANGE", "bytes=0-1", false),
            ("If-None-Match", "\"x\"", false),
            ("if-range", "\"x\"", false),
            ("Expect", "100-continue", false),
            ("Content-Length", "0", false),
            ("Transfer-Encoding", "chunked", false),
            ("Upgrade", "h2c", false),
            ("Authorization", "Basic YW5uOnNlY3JldA==", false),
        ] {
            let fields = [Header { name, value: value.as_bytes() }];
            assert_eq!(may_be_kept(&request(&fields), &response()), kept, "{name}: {value}");
        }
        let close = Response { close: true, ..response() };
        assert!(!may_be_kept(&request(&[]), &close));
        let pace = Pace { bytes_per_s: NonZeroU64::MIN, after: u64::MAX };
        let paced = Response { pace: Some(pace), ..response() };
        assert!(!may_be_kept(&request(&[]), &paced));
        let missing = Response { status: Status::NOT_FOUND, ..response() };
        assert!(!may_be_kept(&request(&[]), &missing));
    }
}
