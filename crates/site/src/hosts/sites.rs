//! The sites of one loop, one for each host.

use std::sync::Arc;

use base::{Clock, Nanos, RealClock};
use http_semantics::{Request, Response, Service, Status};

use super::name::bare;
use super::{Names, Speaks};
use crate::counts::Counts;
use crate::respond::{self, File};
use crate::{ROOT_CHECKED_EVERY, Site, refused_method};

/// The sites of one loop. It chooses one for each request.
pub struct Sites<C = RealClock> {
    /// The default host's.
    first: Site<C>,
    /// Absent on a server of one host.
    others: Option<Box<Others<C>>>,
}

struct Others<C> {
    /// The sites of the hosts from number 1 on.
    sites: Vec<Site<C>>,
    names: Arc<Names>,
    speaks: Option<Speaks>,
    misdirected: u64,
    /// The next of these sites to be updated, and the time of that.
    next: usize,
    due: Nanos,
}

impl<C: Clock> Others<C> {
    /// The number of a request's host; `None` if the request came by a connection whose certificate is not the host's.
    fn host_of(&mut self, request: &Request<'_>) -> Option<u16> {
        // A name that no host has gets the default host on every connection.
        let Some(host) = self.names.host_of(request.host) else { return Some(0) };
        if let (Some(sni), Some(speaks)) = (request.transport.sni(), &self.speaks)
            && sni.host != host
            && !speaks(sni.certificate, bare(request.host))
        {
            self.misdirected += 1;
            return None;
        }
        Some(host)
    }

    /// Updates one of the sites in turn, because a site without requests does not update itself.
    fn look_after(&mut self, now: Nanos) {
        if now >= self.due {
            self.due = now + ROOT_CHECKED_EVERY;
            self.next = (self.next + 1) % self.sites.len();
            self.sites[self.next].look_around(now);
        }
    }
}

impl<C: Clock> Sites<C> {
    pub(super) fn new(sites: Vec<Site<C>>, names: Arc<Names>, speaks: Option<Speaks>) -> Sites<C> {
        let mut sites = sites.into_iter();
        let first = sites.next().expect("there is a default host");
        let sites: Vec<Site<C>> = sites.collect();
        let (misdirected, next, due) = (0, 0, Nanos::ZERO);
        let others = Others { sites, names, speaks, misdirected, next, due };
        Sites { first, others: (!others.sites.is_empty()).then(|| Box::new(others)) }
    }

    /// The counters of all sites since the start.
    pub fn counts(&self) -> Counts {
        let mut total = self.first.counts().clone();
        if let Some(others) = &self.others {
            others.sites.iter().for_each(|site| total.add(site.counts()));
            total.misdirected += others.misdirected;
        }
        total
    }

    /// Returns the answer if it is in memory; as [`Site::respond_from_memory`].
    pub fn respond_from_memory(&mut self, request: &Request<'_>, now: Nanos) -> Option<Response<File>> {
        match self.site_for(request, now) {
            Some(site) => site.respond_from_memory(request, now),
            None => Some(misdirected()),
        }
    }

    /// The answer of the host of this number, whatever host the request names.
    ///
    /// # Panics
    /// For a number that no host has.
    pub fn respond_as(&mut self, host: u16, request: &Request<'_>, now: Nanos) -> Response<File> {
        self.site(host).respond(request, now)
    }

    /// The number of the host of an authority: 0, the default host, if no host has the name.
    pub fn number(&self, authority: &str) -> u16 {
        self.others.as_ref().and_then(|others| others.names.host_of(authority)).unwrap_or(0)
    }

    /// The site for a request; `None` if the request is misdirected.
    fn site_for(&mut self, request: &Request<'_>, now: Nanos) -> Option<&mut Site<C>> {
        let host = match &mut self.others {
            None => 0,
            Some(others) => {
                others.look_after(now);
                others.host_of(request)?
            }
        };
        Some(self.site(host))
    }

    fn site(&mut self, host: u16) -> &mut Site<C> {
        match (host, &mut self.others) {
            (1.., Some(others)) => &mut others.sites[usize::from(host) - 1],
            _ => &mut self.first,
        }
    }
}

/// Asks the client for a connection of its own to the host (RFC 9110, 15.5.20).
fn misdirected() -> Response<File> {
    respond::page(Status::MISDIRECTED_REQUEST, "")
}

impl<C: Clock> Service for Sites<C> {
    type File = File;

    fn respond(&mut self, request: &Request<'_>, now: Nanos) -> Response<File> {
        match self.site_for(request, now) {
            Some(site) => site.respond(request, now),
            None => misdirected(),
        }
    }

    /// The method alone decides, as for one site.
    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<File>> {
        refused_method(request.method)
    }
}
