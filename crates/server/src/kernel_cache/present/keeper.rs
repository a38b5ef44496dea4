//! The thread that fills the kernel cache and checks its contents against the files.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;

use base::{Clock, Limit, Nanos, RealClock, lock};
use bpf::BpfError;
use bpf::kernel_cache::{Answer, LONGEST, ObjectId};
use connection::LiveSettings;
use http_semantics::server::{Buffers, Context, Counts, Entry, Wants};
use http_semantics::{HttpDate, Status, Version};
use http1::server::{Connection, Transmit};
use site::{CacheLimits, Sites};
use sys::network::netlink::SocketDiagnostics;
use sys::readiness::poll::{self, PollFd, bits};
use sys::thread::stop::Stop;

use super::super::Materials;
use super::SharedCache;
use super::hot::{Candidate, Key};
use crate::ground::counters::{Board, KernelCacheCounts};
use crate::ground::error::{ServeError, system};
use crate::ground::threads::{LoopHandle, start_thread};
use crate::observation::access_log::LoopLog;

/// Time between two turns of the keeper: the greatest delay of a new date and of a line in the access log.
const TURN: Nanos = Nanos::from_millis(50);
/// Time between two checks of a file.
const LOOK_EVERY: Nanos = Nanos::from_millis(400);
/// The time for which a check of a file is valid.
const BELIEVED: Nanos = Nanos::SECOND;
/// The time after which an unused response leaves the cache.
const UNUSED: Nanos = Nanos::from_secs(60);
/// Maximum number of places with the same response. Requests for it may differ in their query or in Accept-Encoding, so
/// that a client could fill the cache with one file.
const MOST_ALIKE: usize = 8;
/// Time between two searches for connections that the kernel has forgotten.
const SWEEP_EVERY: Nanos = Nanos::from_secs(10);
/// The silence after which the keeper looks a connection up in the kernel.
const SWEPT_AFTER: Nanos = Nanos::from_secs(60);
/// Maximum number of files in each of the keeper's own sites.
const FILES: usize = 1024;

const DATE_FIELD: &[u8] = b"\r\nDate: ";
const DATE_BYTES: usize = 29;

/// Starts the keeper.
///
/// # Errors
/// [`ServeError::System`]: descriptors, the thread.
pub fn start(shared: SharedCache, materials: Materials) -> Result<LoopHandle, ServeError> {
    let diagnostics = SocketDiagnostics::open().map_err(system("open a socket for diagnostics"))?;
    let stop = Stop::new().map_err(system("make an eventfd"))?;
    let keeper = Keeper {
        log: materials.log.clone().map(LoopLog::new),
        renderer: Renderer::new(materials),
        contents: HashMap::new(),
        counts: KernelCacheCounts::default(),
        stop: stop.clone(),
        date: None,
        looked: Nanos::ZERO,
        swept: RealClock.now(),
        diagnostics,
        shared,
    };
    let body = move || keeper.run();
    start_thread("kernel-cache".to_owned(), &[], stop, Board::default(), Vec::new(), body)
}

/// A response in the kernel cache.
struct Held {
    object: ObjectId,
    /// A request that it answers.
    request: Vec<u8>,
    response: Rendered,
    put: Nanos,
}

struct Keeper {
    shared: SharedCache,
    renderer: Renderer,
    contents: HashMap<Key, Held>,
    counts: KernelCacheCounts,
    log: Option<LoopLog>,
    diagnostics: SocketDiagnostics,
    stop: Stop,
    date: Option<HttpDate>,
    looked: Nanos,
    swept: Nanos,
}

impl Keeper {
    fn run(mut self) -> io::Result<()> {
        self.shared.program().set_logging(self.log.is_some());
        let mut set = [PollFd::new(self.stop.descriptor().as_raw_fd(), bits::IN)];
        let mut alive = true;
        while !self.stop.asked() {
            let turn = alive.then_some(TURN);
            match poll::wait(&mut set, turn) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ if !alive => {}
                _ => {
                    if let Err(error) = self.turn() {
                        sys::say!("inrush: the kernel cache is off from now on: {error}");
                        self.shared.disable();
                        alive = false;
                    }
                }
            }
        }
        self.shared.disable();
        self.write_log();
        Ok(())
    }

    fn turn(&mut self) -> Result<(), BpfError> {
        self.set_date();
        self.write_log();
        let now = RealClock.now();
        if now.saturating_sub(self.looked) >= LOOK_EVERY {
            self.looked = now;
            self.check_responses();
            // With limits on connections or clients the server must see all requests.
            self.shared.program().set_enabled(self.renderer.has_no_limits());
        }
        self.take_candidates();
        *lock(&self.shared.0.kept) = self.counts.clone();
        if now.saturating_sub(self.swept) >= SWEEP_EVERY {
            self.swept = now;
            let diagnostics = &mut self.diagnostics;
            let exists = |client, server| diagnostics.connection_exists(server, client);
            self.shared.program().sweep(now, SWEPT_AFTER, exists)?;
        }
        Ok(())
    }

    fn set_date(&mut self) {
        let date = HttpDate::new(RealClock::new().wall());
        if self.date != Some(date) {
            let value: &[u8; DATE_BYTES] = date.value().try_into().expect("an IMF-fixdate");
            self.shared.program().set_date(value);
            (self.date, self.renderer.date) = (Some(date), date);
        }
    }

    /// Checks the file of each response. Prolongs the response, or ends it if the file has changed or no client asks
    /// for it.
    fn check_responses(&mut self) {
        let mut ended = Vec::new();
        for (key, held) in &self.contents {
            let looked = RealClock.now();
            let same = self.renderer.render(&held.request).is_some_and(|now| now == held.response);
            let mut program = self.shared.program();
            let used = program.last_used(held.object).max(held.put);
            if !same {
                self.counts.kernel_cache_objects_changed += 1;
            } else if used + UNUSED < looked {
                self.counts.kernel_cache_objects_unused += 1;
            } else if program.renew(held.object, looked + BELIEVED) {
                continue;
            }
            program.end(held.object, looked);
            ended.push(key.clone());
        }
        if !ended.is_empty() {
            // Log lines of their answers still need their keys.
            self.write_log();
        }
        for key in ended {
            self.contents.remove(&key);
        }
    }

    fn take_candidates(&mut self) {
        let candidates = std::mem::take(&mut *lock(&self.shared.0.candidates));
        for Candidate { key, bytes } in candidates {
            let looked = RealClock.now();
            let Some(response) = self.renderer.render(&bytes) else { continue };
            if let Some(held) = self.contents.get(&key) {
                if held.response == response {
                    self.shared.program().know(&bytes, held.object);
                }
                continue;
            }
            // Compared before the program is locked, which loops wait for.
            let same = self.contents.values().filter(|held| held.response == response).count();
            if same >= MOST_ALIKE {
                self.counts.kernel_cache_objects_refused += 1;
                continue;
            }
            let mut program = self.shared.program();
            let Some(object) = program.put(&response.bytes, response.date_at, looked) else {
                self.counts.kernel_cache_objects_refused += 1;
                continue;
            };
            program.know(&bytes, object);
            program.renew(object, looked + BELIEVED);
            self.counts.kernel_cache_objects_put += 1;
            self.contents.insert(key, Held { object, request: bytes, response, put: looked });
        }
    }

    fn write_log(&mut self) {
        let Some(log) = &mut self.log else { return };
        log.wall = RealClock::new().wall();
        let answers = self.shared.program().answers();
        if answers.is_empty() {
            return;
        }
        let known: HashMap<ObjectId, (&Key, usize)> =
            self.contents.iter().map(|(key, held)| (held.object, (key, held.response.head))).collect();
        for answer in answers {
            if let Some((key, head)) = known.get(&answer.object) {
                log.peer = Some(answer.client);
                log.entry_of(key.host, &entry(key, *head, &answer));
            }
        }
        log.flush();
    }
}

/// Makes the log entry of an answer. The program knows the response, but not the fields of the request.
fn entry<'a>(key: &'a Key, head: usize, answer: &Answer) -> Entry<'a> {
    Entry {
        method: if key.head { "HEAD" } else { "GET" },
        target: &key.target,
        version: Some(Version::Http11),
        host: "",
        referer: b"",
        user_agent: b"",
        status: Status::OK,
        sent_bytes: u64::from(answer.bytes),
        body_bytes: u64::from(answer.bytes).saturating_sub(head as u64),
        complete: true,
        started: answer.at,
        finished: answer.at,
    }
}

/// A response as it is sent, with a blank date.
#[derive(PartialEq, Eq)]
struct Rendered {
    bytes: Vec<u8>,
    date_at: Option<usize>,
    /// Bytes of the head.
    head: usize,
}

/// Answers requests in memory, as a loop would over a socket.
struct Renderer {
    sites: Sites,
    settings: LiveSettings,
    buffers: Buffers,
    date: HttpDate,
    clock: RealClock,
}

impl Renderer {
    fn new(materials: Materials) -> Renderer {
        let clock = RealClock::new();
        let hosts = materials.hosts.with(|options| {
            // Each answer checks the file again.
            options.cache = CacheLimits {
                entries: FILES,
                bytes: base::Bytes((FILES * LONGEST) as u64),
                open_files: 0,
                absent: FILES,
                fresh_for: Nanos::ZERO,
                ..options.cache
            };
            options.small_file = options.small_file.min(base::Bytes(LONGEST as u64));
        });
        Renderer {
            sites: hosts.sites(clock),
            settings: materials.settings,
            buffers: Buffers::default(),
            date: HttpDate::new(clock.wall()),
            clock,
        }
    }

    /// Tells whether connections and clients may have any number of requests.
    fn has_no_limits(&mut self) -> bool {
        self.settings.refresh();
        self.settings.limits.requests_per_connection == Limit::Infinite && self.settings.clients().is_none()
    }

    /// Renders the response to the only request of a connection. Returns `None` for any status but 200, or if the
    /// connection ends after it.
    fn render(&mut self, request: &[u8]) -> Option<Rendered> {
        let now = self.clock.now();
        let mut connection = Connection::new(now, &self.settings);
        let mut cx = Context {
            service: &mut self.sites,
            settings: &self.settings,
            buffers: &mut self.buffers,
            date: &self.date,
            counts: &mut Counts::default(),
            log: None,
            client: None,
            now,
        };
        connection.receive(request, &mut cx);
        let mut bytes = Vec::new();
        while connection.wants() == Wants::Transmit {
            let count = match connection.transmit() {
                Transmit::Bytes { bytes: part, .. } if bytes.len() + part.len() <= LONGEST => {
                    bytes.extend_from_slice(part);
                    part.len() as u64
                }
                _ => {
                    connection.abort(&mut cx);
                    return None;
                }
            };
            connection.transmitted(count, &mut cx);
        }
        let goes_on = connection.wants() == Wants::Receive && connection.awaits_request();
        (goes_on && bytes.starts_with(b"HTTP/1.1 200 ")).then(|| Rendered::blank(bytes))
    }
}

impl Rendered {
    fn blank(mut bytes: Vec<u8>) -> Rendered {
        let head = memchr::memmem::find(&bytes, b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        let date_at = memchr::memmem::find(&bytes[..head], DATE_FIELD).map(|at| at + DATE_FIELD.len());
        if let Some(at) = date_at {
            bytes[at..at + DATE_BYTES].fill(0);
        }
        Rendered { bytes, date_at, head }
    }
}
