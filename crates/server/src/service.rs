//! The site as a loop serves it, with an artificial cost where an experiment wants one.

use base::Nanos;
use http1::{Request, Response, Service};
use site::{File, Site};

use crate::driver::readiness::SocketService;

/// A site whose every answer takes `burn` of CPU time more.
pub struct Costly {
    /// What is served.
    pub site: Site,
    /// Artificial cost of a request; zero for none.
    pub burn: Nanos,
}

impl Service for Costly {
    type File = File;

    fn respond(&mut self, request: &Request<'_>, now: Nanos) -> Response<File> {
        if self.burn != Nanos::ZERO {
            sys::cpu::burn(self.burn);
        }
        self.site.respond(request, now)
    }
}

impl SocketService for Costly {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.site.counts().named().collect()
    }
}
