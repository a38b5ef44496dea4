//! The sites of one loop, with an artificial cost for experiments, and the sites that threads share.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use base::{Nanos, RealClock, lock};
use connection::SocketService;
use connection::refusal::unavailable;
use dispatch::Token;
use http_semantics::{FileRange, Request, Responder, Response, Service};
use site::{File, Hosts, Sites};

use crate::kernel_cache::Observer;
use crate::observation::load_report::LoadReports;

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
    /// Refuses requests that come too late.
    pub refusal: Refusal,
}

/// Answers requests 503 in place of a site.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusal {
    refuses: bool,
    /// Requests refused since they were last counted.
    refused: u64,
}

impl<S: Responder<File = File>> Responder for Costly<S> {
    type File = File;

    fn respond_or_wait(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<File>> {
        if self.refusal.refuses {
            self.refusal.refused += 1;
            return Some(unavailable());
        }
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

    fn refuse(&mut self, refuses: bool) {
        self.refusal.refuses = refuses;
    }

    fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refusal.refused)
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

/// The sites of one loop, which answer over sockets.
pub struct LoopSites(pub Sites);

impl Service for LoopSites {
    type File = File;

    fn respond(&mut self, request: &Request<'_>, now: Nanos) -> Response<File> {
        self.0.respond(request, now)
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<File>> {
        Service::refuse_early(&self.0, request)
    }
}

impl SocketService for LoopSites {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.0.counts().named().collect()
    }
}

/// Sites for many threads. Their cache is striped by path, with a lock for each stripe. A file that comes from the
/// disk thus delays only requests to the same stripe.
#[derive(Clone)]
pub struct SharedSite {
    stripes: Arc<[Mutex<Sites>]>,
    hasher: RandomState,
}

impl SharedSite {
    /// Makes sites whose stripes together hold the amounts in the options of the hosts.
    pub fn new(hosts: &Hosts) -> SharedSite {
        SharedSite::striped(hosts, STRIPES)
    }

    /// Makes sites for one thread that serves, and others that only count.
    pub fn of_one_thread(hosts: &Hosts) -> SharedSite {
        SharedSite::striped(hosts, 1)
    }

    fn striped(hosts: &Hosts, stripes: usize) -> SharedSite {
        let each = hosts.with(|options| options.cache = options.cache.part(stripes));
        let stripe = |_| Mutex::new(each.sites(RealClock::new()));
        SharedSite { stripes: (0..stripes).map(stripe).collect(), hasher: RandomState::new() }
    }
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
            total.add(&lock(stripe).counts());
        }
        total.named().collect()
    }
}
