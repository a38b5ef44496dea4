//! Small servers beside the main one: the admin interface, and a page on which another command shows its figures.
//!
//! Each is one loop on poll(2) ([`poll_loop`]), on any processor, for a few connections. It answers while the main
//! server is overloaded, because the two share only the machine. The [`guard`] decides which requests it answers. A
//! connection that asks for events leaves the others and joins the [`streams`].

mod guard;
mod poll_loop;
mod streams;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Nanos;
use http_semantics::{Body, Method, Request, Response, Service, Status};

use crate::ground::admin_access::{AdminAddress, AdminListener};
use crate::ground::counters::Board;
use crate::ground::error::{ServeError, system};
use crate::ground::stop::Stop;
use crate::ground::threads::{LoopHandle, start_thread};
use guard::Guarded;
use poll_loop::PollLoop;
use streams::STREAMS;

pub use guard::Guard;

/// The counters of a small server.
#[derive(Debug, Default)]
pub struct Totals {
    evicted: AtomicU64,
    refused: AtomicU64,
    streams_refused: AtomicU64,
    streams_cut: AtomicU64,
}

impl Totals {
    /// Returns the number of connections closed to make room for a newcomer.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that the guard refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of streams of events that were refused because all places were taken.
    pub fn streams_refused(&self) -> u64 {
        self.streams_refused.load(Ordering::Relaxed)
    }

    /// Returns the number of streams of events that were closed because their clients did not read.
    pub fn streams_cut(&self) -> u64 {
        self.streams_cut.load(Ordering::Relaxed)
    }

    fn count_eviction(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn count_refused_stream(&self) {
        self.streams_refused.fetch_add(1, Ordering::Relaxed);
    }

    fn set_cut_streams(&self, cut: u64) {
        self.streams_cut.store(cut, Ordering::Relaxed);
    }
}

/// A service that answers requests and may send events.
pub trait SmallService: Service<File = Arc<OwnedFd>> {
    /// Returns the answer to a client that has not shown the token; `None` refuses it.
    fn without_token(&self, _request: &Request<'_>) -> Option<Response<Arc<OwnedFd>>> {
        None
    }

    /// Tells whether a request is for the stream of events.
    fn asks_for_events(&self, _request: &Request<'_>) -> bool {
        false
    }

    /// Returns the first event of a stream.
    fn first_event(&self) -> String {
        String::new()
    }

    /// Returns the time of the next event.
    fn event_due(&self) -> Nanos {
        Nanos::MAX
    }

    /// Returns the event that is due now, for all streams.
    fn event(&mut self, _now: Nanos) -> String {
        String::new()
    }
}

/// A small server that is running.
pub struct SideServer {
    /// Its address.
    pub address: AdminAddress,
    /// Its loop.
    pub running: LoopHandle,
}

/// Listens at an address.
///
/// # Errors
/// [`ServeError::ListenAside`].
pub fn listen(address: &AdminAddress) -> Result<AdminListener, ServeError> {
    AdminListener::open(address).map_err(|cause| ServeError::ListenAside { address: address.clone(), cause })
}

/// Starts a loop that answers at a listening socket.
///
/// # Errors
/// [`ServeError`]: descriptors, the thread.
pub fn start<S>(
    name: &str,
    listener: AdminListener,
    guard: Guard,
    service: S,
    totals: Arc<Totals>,
) -> Result<SideServer, ServeError>
where
    S: SmallService + Send + 'static,
{
    let address = listener.address.clone();
    let stop = Stop::new().map_err(system("make an eventfd"))?;
    let service = Guarded { service, guard, totals: Arc::clone(&totals), room: STREAMS };
    let event_loop = PollLoop::new(listener, service, stop.clone(), totals);
    let running =
        start_thread(name.to_owned(), &[], stop, Board::default(), Vec::new(), move || event_loop.run())?;
    Ok(SideServer { address, running })
}

/// Texts under their paths, made anew for every reader, until this value is dropped.
pub struct Page {
    server: SideServer,
}

impl Page {
    /// Shows texts at an address; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// [`ServeError`]: the address, descriptors, the thread.
    pub fn open(address: SocketAddr, texts: Vec<Shown>) -> Result<Page, ServeError> {
        let guard = Guard::of_page(address.ip().is_loopback());
        let listener = listen(&AdminAddress::Internet(address))?;
        let server = start("page", listener, guard, Texts(texts), Arc::default())?;
        Ok(Page { server })
    }

    /// Returns its address, if it is an internet address.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.server.address {
            AdminAddress::Internet(address) => Some(address),
            AdminAddress::File(_) => None,
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.server.running.stop.ask();
    }
}

/// A text under a path, made anew for every reader.
pub struct Shown {
    path: &'static str,
    media_type: &'static str,
    text: Box<dyn Fn() -> String + Send>,
}

impl Shown {
    /// The text that `text` returns, under `path`.
    pub fn new(
        path: &'static str,
        media_type: &'static str,
        text: impl Fn() -> String + Send + 'static,
    ) -> Shown {
        Shown { path, media_type, text: Box::new(text) }
    }
}

struct Texts(Vec<Shown>);

impl Service for Texts {
    type File = Arc<OwnedFd>;

    fn respond(&mut self, request: &Request<'_>, _now: Nanos) -> Response<Arc<OwnedFd>> {
        let found = self.0.iter().find(|shown| request.path() == shown.path);
        match (found, request.method) {
            (Some(shown), Method::Get | Method::Head) => answer(Status::OK, shown.media_type, (shown.text)()),
            (Some(_), _) => not_allowed("GET, HEAD"),
            (None, _) => Response::error(Status::NOT_FOUND),
        }
    }
}

impl SmallService for Texts {}

/// Makes an answer that clients must not store.
pub fn answer(status: Status, media_type: &str, text: String) -> Response<Arc<OwnedFd>> {
    let fields = format!("Content-Type: {media_type}\r\nCache-Control: no-store\r\n");
    Response { status, fields: fields.into(), body: Body::Bytes(text.into()), close: false, pace: None }
}

/// Refuses a method, and names the allowed ones.
pub fn not_allowed(allowed: &'static str) -> Response<Arc<OwnedFd>> {
    with_fields(Response::error(Status::METHOD_NOT_ALLOWED), &format!("Allow: {allowed}\r\n"))
}

/// Adds header lines to a response.
fn with_fields(response: Response<Arc<OwnedFd>>, lines: &str) -> Response<Arc<OwnedFd>> {
    Response { fields: [&response.fields[..], lines.as_bytes()].concat().into(), ..response }
}
