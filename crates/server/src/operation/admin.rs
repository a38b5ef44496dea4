//! The admin interface: the server's figures, and the two settings that may change while it runs.
//!
//! `GET /` (a page for a browser), `GET /events` (its stream of events), `GET /status` (JSON), `GET /metrics`
//! (Prometheus text format 0.0.4), `GET` and `PUT` of `/accept-limit` and `/queue-target`. The guard of
//! [`side_servers`] decides first which requests come here.
//!
//! `page` owns the page, `history` the samples of the last five minutes, `metrics` the text for Prometheus.

mod history;
pub mod metrics;
mod page;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Clock, Nanos, RealClock};
use bpf::admission::Attached;
use http_semantics::{Method, Request, Response, Service, Status};
use serde::Serialize;
use side_servers::{
    AdminAddress, AdminListener, Guard, SideServer, SmallService, Totals, answer, not_allowed,
};
use sys::thread::stop::Stop;

use crate::connections::accept::{AcceptLimit, LiveLimit};
use crate::connections::overload_control::{Overload, QueueFigures};
use crate::ground::choices::queue_target;
use crate::ground::counters::{AdmissionFigures, Board, Counters, StageFigures, WorkerFigures};
use crate::ground::error::{ServeError, system};
use crate::ground::threads::{LoopHandle, start_thread};
use crate::kernel_cache::SharedCache;
use crate::observation::access_log::LogSender;
pub use history::History;
use history::Reading;
pub use page::Access;

const HELP: &str = "GET / (in a browser: a page)\nGET /events (a stream, once a second)\nGET /status\nGET /metrics\n\
                    GET /accept-limit\nPUT /accept-limit (1, 2, ..., inf or adaptive)\n\
                    GET /queue-target\nPUT /queue-target (20ms, ...)\n";

/// Answers for all loops of the server.
pub struct Admin {
    /// The name of the architecture.
    pub architecture: &'static str,
    /// The name of the event mechanism.
    pub dispatch: &'static str,
    /// The accept-limit, which may be changed.
    pub limit: LiveLimit,
    /// The counters of each loop.
    pub boards: Vec<Board>,
    /// The counters of refused connections.
    pub refusals: Board,
    /// Counts the lines that the log's own thread dropped.
    pub log: Option<LogSender>,
    /// The kernel cache, whose totals no loop has.
    pub kernel_cache: Option<SharedCache>,
    /// Overload control with its accept queues.
    pub overload: Option<Overload>,
    /// For the uptime.
    pub clock: RealClock,
    /// The counters of this interface.
    pub totals: Arc<Totals>,
    /// Connections that the agent check closed to make room.
    pub agent_evicted: Arc<AtomicU64>,
    /// The start of the server.
    pub started: Nanos,
    /// The rights of the page.
    pub access: Access,
    /// The last five minutes.
    pub history: History,
}

/// An admin interface that answers.
pub struct RunningAdmin {
    /// Its address.
    pub address: AdminAddress,
    /// Its loop.
    pub running: LoopHandle,
}

/// The figures of one loop.
#[derive(Serialize)]
struct Figures {
    /// Connections open now.
    connections: u64,
    /// Connections accepted.
    accepts: u64,
    /// Accept phases.
    accept_phases: u64,
    /// Connections per accept phase; 0 before the first.
    mean_accepted_per_phase: f64,
    /// Requests received.
    requests: u64,
    /// Bytes sent.
    bytes: u64,
    /// The accept queues of the listeners together.
    queue: Queue,
    /// The workers of a dispatcher (SMPED).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    workers: Vec<WorkerFigures>,
    /// The stages of a staged server (SEDA).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stages: Vec<StageFigures>,
    /// Admission by response time.
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<AdmissionFigures>,
    /// Totals since the start. The [metrics](../metrics.md#the-server) have the same names between `inrush_` and
    /// `_total`.
    counters: BTreeMap<&'static str, u64>,
}

/// The accept queues of some listeners, added up.
#[derive(Serialize)]
struct Queue {
    /// Connections that wait to be accepted.
    depth: u32,
    /// The most connections that may wait.
    limit: u32,
    /// Connections that the kernel dropped because a queue was full.
    drops: u32,
}

/// Overload control and its accept queues.
#[derive(Serialize)]
struct OverloadStatus {
    /// The hook that refuses connections.
    hook: &'static str,
    /// The devices that the hook is attached to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<Attached>,
    /// The target delay of the accept queues, in seconds.
    queue_target_s: f64,
    /// The accept queues.
    queues: Vec<QueueFigures>,
}

/// The figures of a server. Its own figures are the sums over all loops.
#[derive(Serialize)]
struct StatusPage {
    /// The version of Inrush.
    version: &'static str,
    /// The name of the architecture.
    architecture: &'static str,
    /// The name of the event mechanism.
    dispatch: &'static str,
    /// Seconds since the start.
    uptime_s: f64,
    /// The accept-limit in force: a number, `inf` or `adaptive`.
    accept_limit: String,
    #[serde(flatten)]
    total: Figures,
    /// Overload control.
    #[serde(skip_serializing_if = "Option::is_none")]
    overload: Option<OverloadStatus>,
    /// The figures of each loop.
    loops: Vec<Figures>,
}

impl From<&Counters> for Figures {
    fn from(counters: &Counters) -> Figures {
        Figures {
            connections: counters.connections,
            accepts: counters.loops.accepts,
            accept_phases: counters.loops.accept_phases,
            mean_accepted_per_phase: counters.mean_accepted_per_phase(),
            requests: counters.http.requests,
            bytes: counters.http.sent_bytes,
            queue: Queue {
                depth: counters.queue.depth,
                limit: counters.queue.limit,
                drops: counters.queue.drops,
            },
            workers: counters.workers.clone(),
            stages: counters.stages.clone(),
            admission: counters.admission.clone(),
            counters: counters.named().collect(),
        }
    }
}

impl Admin {
    fn loops(&self) -> Vec<Counters> {
        self.boards.iter().map(Board::read).collect()
    }

    fn total(&self, loops: &[Counters]) -> Counters {
        let mut total = Counters::of_server(loops, &self.refusals);
        total.loops.log_lines_dropped += self.log.as_ref().map_or(0, LogSender::dropped);
        total.kernel_cache = self.kernel_cache.as_ref().map(SharedCache::counts);
        total.loops.admin_evicted = self.totals.evicted();
        total.loops.admin_refused = self.totals.refused();
        total.loops.admin_streams_refused = self.totals.streams_refused();
        total.loops.admin_streams_cut = self.totals.streams_cut();
        total.loops.agent_evicted = self.agent_evicted.load(Ordering::Relaxed);
        total
    }

    fn status(&self) -> Response<Arc<OwnedFd>> {
        let loops = self.loops();
        let page = StatusPage {
            version: env!("CARGO_PKG_VERSION"),
            architecture: self.architecture,
            dispatch: self.dispatch,
            uptime_s: (self.clock.now() - self.started).as_secs_f64(),
            accept_limit: self.limit.get().to_string(),
            total: Figures::from(&self.total(&loops)),
            overload: self.overload.as_ref().map(|overload| OverloadStatus {
                hook: overload.hook(),
                devices: overload.devices(),
                queue_target_s: overload.target().as_secs_f64(),
                queues: overload.figures(self.clock.now()),
            }),
            loops: loops.iter().map(Figures::from).collect(),
        };
        let mut text = serde_json::to_string_pretty(&page).expect("figures are JSON");
        text.push('\n');
        answer(Status::OK, "application/json", text)
    }

    fn metrics(&self) -> Response<Arc<OwnedFd>> {
        let overload =
            self.overload.as_ref().map(|overload| (overload.hook(), overload.figures(self.clock.now())));
        let page = metrics::page(&self.total(&self.loops()), self.limit.get(), overload);
        answer(Status::OK, "text/plain; version=0.0.4; charset=utf-8", page)
    }

    fn set_limit(&self, body: &[u8]) -> Response<Arc<OwnedFd>> {
        let text = String::from_utf8_lossy(body);
        match text.trim().parse::<AcceptLimit>() {
            Ok(limit) => {
                self.limit.set(limit);
                self.get_limit()
            }
            Err(error) => plain(Status::BAD_REQUEST, format!("accept-limit: {error}\n")),
        }
    }

    fn get_limit(&self) -> Response<Arc<OwnedFd>> {
        plain(Status::OK, format!("{}\n", self.limit.get()))
    }
}

impl Admin {
    /// Starts the thread that answers at `listener` what `guard` admits.
    ///
    /// # Errors
    /// [`ServeError`]: descriptors, the thread.
    pub fn start(self, listener: AdminListener, guard: Guard) -> Result<RunningAdmin, ServeError> {
        let (address, totals) = (listener.address.clone(), Arc::clone(&self.totals));
        let stop = Stop::new().map_err(system("make an eventfd"))?;
        let side = SideServer::new(listener, guard, self, stop.clone(), totals);
        let body = move || side.run();
        let running = start_thread("admin".to_owned(), &[], stop, Board::default(), Vec::new(), body)?;
        Ok(RunningAdmin { address, running })
    }

    fn set_target(&self, body: &[u8]) -> Response<Arc<OwnedFd>> {
        let Some(overload) = &self.overload else { return uncontrolled() };
        match queue_target(String::from_utf8_lossy(body).trim()) {
            Ok(target) => {
                overload.set_target(target);
                self.get_target()
            }
            Err(error) => plain(Status::BAD_REQUEST, format!("queue-target: {error}\n")),
        }
    }

    fn get_target(&self) -> Response<Arc<OwnedFd>> {
        self.overload
            .as_ref()
            .map_or_else(uncontrolled, |overload| plain(Status::OK, format!("{}\n", overload.target())))
    }

    /// The page with its figures.
    fn page(&self) -> Response<Arc<OwnedFd>> {
        let refused = match &self.overload {
            Some(overload) => {
                format!("; connections that would wait too long are refused by {}", overload.refuser())
            }
            None => String::new(),
        };
        let about = format!("{} on {}{refused}", self.architecture, self.dispatch);
        page::page(&about, self.access, Some(&self.history))
    }
}

/// Tells whether a request asks for the page. Other programs get a list of paths at the same place.
fn is_for_page(request: &Request<'_>) -> bool {
    let accepts_html =
        |value: &[u8]| String::from_utf8_lossy(value).to_ascii_lowercase().contains("text/html");
    request.path() == "/"
        && matches!(request.method, Method::Get | Method::Head)
        && request.values("accept").any(accepts_html)
}

fn uncontrolled() -> Response<Arc<OwnedFd>> {
    plain(Status::NOT_FOUND, "queue-target: this server has no overload control\n".to_owned())
}

impl SmallService for Admin {
    fn without_token(&self, request: &Request<'_>) -> Option<Response<Arc<OwnedFd>>> {
        // The page asks for the token. Nothing else is told at its address, so any program may have it.
        let asks = request.path() == "/" && matches!(request.method, Method::Get | Method::Head);
        asks.then(|| page::page("", self.access, None))
    }

    fn asks_for_events(&self, request: &Request<'_>) -> bool {
        request.path() == "/events" && request.method == Method::Get
    }

    fn first_event(&self) -> String {
        self.history.event()
    }

    fn event_due(&self) -> Nanos {
        self.history.due()
    }

    fn event(&mut self, now: Nanos) -> String {
        let control = self.overload.as_ref().map(|overload| (overload.figures(now), overload.target()));
        let reading = Reading { total: self.total(&self.loops()), control, limit: self.limit.get() };
        self.history.take(now, &reading)
    }
}

fn plain(status: Status, text: String) -> Response<Arc<OwnedFd>> {
    answer(status, "text/plain; charset=utf-8", text)
}

impl Service for Admin {
    type File = Arc<OwnedFd>;

    fn respond(&mut self, request: &Request<'_>, _now: Nanos) -> Response<Arc<OwnedFd>> {
        if let Some(refusal) = self.refuse_early(request) {
            return refusal;
        }
        match (request.path(), request.method) {
            ("/", _) if is_for_page(request) => self.page(),
            ("/", _) => plain(Status::OK, HELP.to_owned()),
            // This answers HEAD only; the loop answers GET.
            ("/events", _) => answer(Status::OK, "text/event-stream", String::new()),
            ("/status", _) => self.status(),
            ("/metrics", _) => self.metrics(),
            ("/accept-limit", Method::Put) => self.set_limit(request.body),
            ("/accept-limit", _) => self.get_limit(),
            ("/queue-target", Method::Put) => self.set_target(request.body),
            ("/queue-target", _) => self.get_target(),
            _ => Response::error(Status::NOT_FOUND),
        }
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<Arc<OwnedFd>>> {
        match (request.path(), request.method) {
            (_, Method::Get | Method::Head) | ("/accept-limit" | "/queue-target", Method::Put) => None,
            ("/accept-limit" | "/queue-target", _) => Some(not_allowed("GET, HEAD, PUT")),
            ("/" | "/events" | "/status" | "/metrics", _) => Some(not_allowed("GET, HEAD")),
            _ => Some(Response::error(Status::NOT_FOUND)),
        }
    }
}
