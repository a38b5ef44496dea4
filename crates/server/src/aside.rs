//! Small servers beside the main matter: the admin interface, and a page that another program shows of itself.
//!
//! One loop on plain poll, on whatever processor is free, for a few connections. It answers while everything
//! else is overloaded, because it shares nothing with it but the machine.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::{Bytes, Limit, Nanos};
use dispatch::mechanism::Poll;
use http1::server::Settings;
use http1::{Body, Method, Request, Response, Service, Status};

use crate::accept::{Acceptor, LiveLimit};
use crate::counters::Board;
use crate::driver::Stop;
use crate::driver::readiness::{self, ByPhases, Listeners, Parts, SocketService};
use crate::error::{ServeError, system};
use crate::listener::listen;
use crate::plan::{LoopHandle, addresses, start_thread};
use crate::settings::LiveSettings;

/// Connections taken at once.
const CONNECTIONS: usize = 64;
/// The longest body that is read.
const BODY: Bytes = Bytes(64);

/// Starts a loop that answers at an address.
///
/// # Errors
/// [`ServeError`]: the address, descriptors, the thread.
pub fn start<S: SocketService + Send + 'static>(
    name: &str,
    address: SocketAddr,
    service: S,
) -> Result<LoopHandle, ServeError> {
    let listeners = listen(address, 16, 1).map_err(|cause| ServeError::Listen { address, cause })?;
    let mut settings = Settings::default();
    settings.limits.keep_body = true;
    settings.limits.body_bytes = BODY.0;
    let parts = Parts {
        arrivals: Listeners {
            listeners,
            acceptor: Acceptor::new(LiveLimit::new(Limit::Infinite))
                .map_err(system("keep a reserve descriptor"))?,
        },
        service,
        settings: LiveSettings::new(settings),
        max_connections: CONNECTIONS,
        read_after_accept: false,
        mechanism: dispatch::Settings::default(),
        log: None,
        board: Board::default(),
        stop: Stop::new().map_err(system("make an eventfd"))?,
        drain_timeout: Nanos::MILLISECOND * 100,
    };
    let (stop, board) = (parts.stop.clone(), parts.board.clone());
    let addresses = addresses(&parts.arrivals.listeners);
    // The mechanism is fixed: choosing it by name would compile the loop for every mechanism once more.
    let body = move || readiness::run::<Poll, S, ByPhases, Listeners>(parts);
    start_thread(name.to_owned(), &[], stop, board, addresses, body)
}

/// A text under a path, made anew for every reader, until this is dropped.
pub struct Page {
    running: LoopHandle,
}

impl Page {
    /// Shows `text` under `path`; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// [`ServeError`]: the address, descriptors, the thread.
    pub fn open(
        address: SocketAddr,
        path: &'static str,
        media_type: &'static str,
        text: impl Fn() -> String + Send + 'static,
    ) -> Result<Page, ServeError> {
        let running = start("page", address, Shown { path, media_type, text: Box::new(text) })?;
        Ok(Page { running })
    }

    /// Where it is shown.
    pub fn address(&self) -> Option<SocketAddr> {
        self.running.addresses.first().copied()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.running.stop.ask();
    }
}

struct Shown {
    path: &'static str,
    media_type: &'static str,
    text: Box<dyn Fn() -> String + Send>,
}

impl Service for Shown {
    type File = Arc<OwnedFd>;

    fn respond(&mut self, request: &Request<'_>, _now: Nanos) -> Response<Arc<OwnedFd>> {
        match (request.path() == self.path, request.method) {
            (true, Method::Get | Method::Head) => answer(Status::OK, self.media_type, (self.text)()),
            (true, _) => not_allowed("GET, HEAD"),
            (false, _) => Response::error(Status::NOT_FOUND),
        }
    }
}

impl SocketService for Shown {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A text that is never to be kept.
pub fn answer(status: Status, media_type: &str, text: String) -> Response<Arc<OwnedFd>> {
    let fields = format!("Content-Type: {media_type}\r\nCache-Control: no-store\r\n");
    Response { status, fields: fields.into(), body: Body::Bytes(text.into()), close: false }
}

/// The refusal of a method, with those that there are.
pub fn not_allowed(allowed: &'static str) -> Response<Arc<OwnedFd>> {
    let mut response = Response::error(Status::METHOD_NOT_ALLOWED);
    let mut fields = response.fields.to_vec();
    fields.extend_from_slice(format!("Allow: {allowed}\r\n").as_bytes());
    response.fields = fields.into();
    response
}
