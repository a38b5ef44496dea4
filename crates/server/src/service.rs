//! The site of one loop, with an artificial cost for experiments, and the site that threads share.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{Nanos, RealClock};
use dispatch::Token;
use http1::server::Responder;
use http1::{FileRange, Request, Response, Service};
use site::{File, Options, Root, Site};

use crate::driver::socket_service::SocketService;
use crate::kernel_cache::Observer;
use crate::load_report::LoadReports;

/// Stripes of a shared cache. With 16, two processors rarely want the same stripe, and each still holds enough.
const STRIPES: usize = 16;

/// A site whose answers take `burn` more CPU time each.
#[derive(Clone)]
pub struct Costly<S> {
    /// The site.
    pub site: S,
    /// Artificial cost of a request; zero for none.
    pub burn: Nanos,
    /// Finds hot requests for the kernel cache.
    pub observer: Option<Observer>,
    /// Adds the server's load to responses.
    pub reports: Option<LoadReports>,
}

impl<S: Responder<File = File>> Responder for Costly<S> {
    type File = File;

    fn respond_or_wait(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<File>> {
        let mut response = self.site.respond_or_wait(request, now);
        if let (Some(reports), Some(response)) = (&self.reports, &mut response) {
            reports.add(request, response, now);
        }
        if let (Some(observer), Some(response)) = (&mut self.observer, &response) {
            observer.see(request, response);
        }
        if self.burn != Nanos::ZERO && response.is_some() {
            sys::cpu::burn(self.burn);
        }
        response
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<File>> {
        self.site.refuse_early(request)
    }
}

impl<S: SocketService> SocketService for Costly<S> {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.site.counts()
    }

    fn idle_for(&self, socket: BorrowedFd<'_>) -> Option<Nanos> {
        self.observer.as_ref()?.idle_for(socket)
    }

    fn sendable(&mut self, range: &FileRange<File>, most: u64) -> u64 {
        self.site.sendable(range, most)
    }

    fn waits(&mut self, token: Token) -> bool {
        self.site.waits(token)
    }

    fn notices(&self) -> Option<BorrowedFd<'_>> {
        self.site.notices()
    }

    fn due_in(&self) -> Option<Nanos> {
        self.site.due_in()
    }

    fn arrived(&mut self, tokens: &mut Vec<Token>) -> io::Result<()> {
        self.site.arrived(tokens)
    }
}

impl SocketService for Site {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Site::counts(self).named().collect()
    }
}

/// One site for many threads. Its cache is striped by path, with a lock for each stripe. A file that comes from the
/// disk so delays only requests to the same stripe.
#[derive(Clone)]
pub struct SharedSite {
    stripes: Arc<[Mutex<Site>]>,
    hasher: RandomState,
}

impl SharedSite {
    /// Makes a site whose stripes together hold the amounts in `options`.
    pub fn new(root: &Arc<Root>, options: &Options) -> SharedSite {
        SharedSite::striped(root, options, STRIPES)
    }

    /// Makes a site for one thread that serves, and others that only count.
    pub fn of_one_thread(root: &Arc<Root>, options: &Options) -> SharedSite {
        SharedSite::striped(root, options, 1)
    }

    fn striped(root: &Arc<Root>, options: &Options, stripes: usize) -> SharedSite {
        let mut each = options.clone();
        each.cache.bytes = base::Bytes(options.cache.bytes.0 / stripes as u64);
        each.cache.entries = options.cache.entries.div_ceil(stripes);
        each.cache.absent = options.cache.absent.div_ceil(stripes);
        each.cache.open_files = options.cache.open_files.div_ceil(stripes);
        let stripe = |_| Mutex::new(Site::new(Arc::clone(root), each.clone(), RealClock::new()));
        SharedSite { stripes: (0..stripes).map(stripe).collect(), hasher: RandomState::new() }
    }
}

fn lock(stripe: &Mutex<Site>) -> MutexGuard<'_, Site> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service for SharedSite {
    type File = File;

    fn respond(&mut self, request: &Request<'_>, now: Nanos) -> Response<File> {
        let path = request.target.split('?').next();
        let stripe = self.hasher.hash_one(path) as usize % self.stripes.len();
        lock(&self.stripes[stripe]).respond(request, now)
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<File>> {
        site::refused_method(request.method)
    }
}

impl SocketService for SharedSite {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut total = site::Counts::default();
        for stripe in &*self.stripes {
            total.add(lock(stripe).counts());
        }
        total.named().collect()
    }
}
