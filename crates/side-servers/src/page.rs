//! A page on which a command shows its figures.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::Builder;

use base::Nanos;
use http_semantics::{Method, Request, Response, Service, Status};
use sys::socket::local_address;
use sys::thread::stop::Stop;

use crate::access::{AdminAddress, AdminListener, ListenError};
use crate::guard::Guard;
use crate::service::{SmallService, answer, not_allowed};
use crate::side_server::SideServer;

/// Texts under their paths, made anew for every reader, until this value is dropped.
pub struct Page {
    address: SocketAddr,
    stop: Stop,
}

impl Page {
    /// Shows texts at an address; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// The address, descriptors, the thread.
    pub fn open(address: SocketAddr, texts: Vec<Shown>) -> Result<Page, ListenError> {
        let given = AdminAddress::Internet(address);
        let listener = AdminListener::open(&given)?;
        Page::begin(listener, address, texts).map_err(|cause| ListenError { address: given, cause })
    }

    fn begin(listener: AdminListener, address: SocketAddr, texts: Vec<Shown>) -> io::Result<Page> {
        let (stop, guard) = (Stop::new()?, Guard::of_page(address.ip().is_loopback()));
        let address = local_address(listener.socket())?;
        let side = SideServer::new(listener, guard, Texts(texts), stop.clone(), Arc::default());
        Builder::new().name("page".to_owned()).spawn(move || side.run())?;
        Ok(Page { address, stop })
    }

    /// Returns its address, the port never 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.stop.ask();
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
