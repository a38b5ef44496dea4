//! A site over a temporary directory, with a clock that the test moves.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::fs::{self, File};
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::{Nanos, SimulatedClock, WallTime};
use http_semantics::{Body, Header, Method, Request, Service, Transport};
use site::{LiveRules, Options, Root, Rules, Site};

/// Sun, 06 Nov 1994 08:49:37 GMT
pub const THEN: u64 = 784_111_777;
pub const THEN_DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
/// The simulated time of day.
pub const TODAY: u64 = 2_000_000_000;

/// A directory `root` inside a temporary place, and the site over it.
pub struct Fixture {
    pub place: tempfile::TempDir,
    pub site: Site<SimulatedClock>,
    pub now: Nanos,
    /// The client, the transport and the host of the requests that follow.
    pub client: Option<IpAddr>,
    pub is_secure: bool,
    pub host: &'static str,
}

/// A response as a client sees it, without the fields that the machine adds.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: String,
    pub body: Vec<u8>,
    /// The fields and the content of each part.
    pub parts: Vec<(String, Vec<u8>)>,
    pub from_file: bool,
    /// Bytes per second, and bytes at the beginning that do not count.
    pub pace: Option<(u64, u64)>,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(Options::default())
    }

    pub fn ruled(rules: Rules) -> Fixture {
        Fixture::with(Options { rules: LiveRules::new(rules), ..Options::default() })
    }

    pub fn with(options: Options) -> Fixture {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("root")).unwrap();
        let root = Arc::new(Root::open(place.path().join("root")).unwrap());
        let clock = SimulatedClock::new(WallTime { seconds: TODAY });
        let site = Site::new(root, options, clock);
        let (now, host) = (Nanos::SECOND, "site.example");
        Fixture { place, site, now, client: None, is_secure: false, host }
    }

    /// A path below the root.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join("root").join(name)
    }

    /// Writes a file that was last modified at [`THEN`].
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        self.write_at(name, contents, Duration::from_secs(THEN));
    }

    pub fn write_at(&self, name: &str, contents: impl AsRef<[u8]>, modified: Duration) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + modified).unwrap();
    }

    pub fn second_passes(&mut self) {
        self.now += Nanos::SECOND;
    }

    pub fn get(&mut self, target: &str) -> Answer {
        self.ask(Method::Get, target, &[])
    }

    pub fn get_with(&mut self, target: &str, fields: &[(&str, &str)]) -> Answer {
        self.ask(Method::Get, target, fields)
    }

    pub fn ask(&mut self, method: Method<'_>, target: &str, fields: &[(&str, &str)]) -> Answer {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        let request = Request {
            method,
            host: self.host,
            client: self.client,
            transport: if self.is_secure { Transport::Tls(None) } else { Transport::Plain },
            fields: &fields,
            ..Request::get(target)
        };
        let response = self.site.respond(&request, self.now);
        let from_file = matches!(response.body, Body::File(_));
        let pace = response.pace.map(|pace| (pace.bytes_per_s.get(), pace.after));
        let (body, parts) = match response.body {
            Body::Parts(parts) => {
                let parts = parts.into_iter().map(|part| (text(&part.fields), content(part.body)));
                (Vec::new(), parts.collect())
            }
            body => (content(body), Vec::new()),
        };
        Answer { status: response.status.0, fields: text(&response.fields), body, parts, from_file, pace }
    }
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.fields.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(
        text.split_inclusive("\r\n").all(|line| line.ends_with("\r\n") && line.contains(": ")),
        "{text:?}"
    );
    text
}

fn content(body: Body<site::File>) -> Vec<u8> {
    match body {
        Body::Absent => Vec::new(),
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::File(range) => {
            let mut content = vec![0; range.length as usize];
            let file = File::from(range.file.try_clone().unwrap());
            file.read_exact_at(&mut content, range.offset).unwrap();
            content
        }
        Body::Parts(_) => panic!("parts within a part"),
    }
}
