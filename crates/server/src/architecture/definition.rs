//! The form of an architecture: what each one declares, and the functions that the server calls.
//!
//! Does not know which architectures exist, so that each of them can use it; `architecture::ALL` lists them.

use base::Limit;
use base::setting::{AnySetting, is_among};

use crate::config::serve::ServeConfig;
use crate::connections::accept::AcceptLimit;
use crate::ground::choices::{Choice, Driver, WAKE, Wake};
use crate::ground::error::ServeError;
use crate::plan::{Opening, Plan, Started};
use crate::processes::Work;

/// The accept-limit of the completion driver.
pub const ACCEPTS_IN_FLIGHT: u32 = 10;

/// One way to place the work.
#[derive(Debug)]
pub struct Architecture {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// The accept-limit that suits it on the readiness driver.
    pub accept_limit: AcceptLimit,
    /// Descriptors that it may need besides those of connections and the server's own.
    pub(crate) descriptors: fn(&ServeConfig) -> usize,
    /// True if any number of processors may work for it; otherwise each of its loops keeps one busy.
    pub(crate) spreads: bool,
    /// The choices that it offers.
    pub(crate) uses: &'static [Choice],
    /// Its own settings.
    pub(crate) settings: &'static [&'static dyn AnySetting],
    /// The ways to wake waiters for connections, the default first. Empty for an architecture without the choice.
    pub(crate) wakes: &'static [Wake],
    /// Refuses values that it has no use for, and settings of its own that contradict each other.
    pub(crate) fits: fn(&ServeConfig) -> Result<(), ServeError>,
    /// Starts its loops.
    pub(crate) start: fn(&Plan, Opening) -> Result<Started, ServeError>,
    /// The work of its worker processes, if it has any.
    pub(crate) work: Option<Work>,
}

impl Architecture {
    /// Returns the accept-limit of a server whose configuration has none. The completion driver would cancel accepts in
    /// flight whenever an adaptive limit falls.
    pub(crate) fn usual_accept_limit(&self, config: &ServeConfig) -> AcceptLimit {
        match config.driver() {
            Driver::Readiness => self.accept_limit,
            Driver::Completion => AcceptLimit::Fixed(Limit::AtMost(ACCEPTS_IN_FLIGHT)),
        }
    }

    /// Returns the descriptors that it may need besides those of connections and the server's own.
    pub fn descriptors(&self, config: &ServeConfig) -> usize {
        (self.descriptors)(config)
    }

    /// Returns the work of its worker processes, if it has any.
    pub fn work(&self) -> Option<Work> {
        self.work
    }

    /// Returns the way to wake the waiters for connections: the configured one, or the first that the architecture has.
    ///
    /// # Errors
    /// [`ServeError::Setting`] for a way that the architecture lacks.
    pub(crate) fn wake(&self, config: &ServeConfig) -> Result<Wake, ServeError> {
        let asked = config.chosen.get(&WAKE).unwrap_or(self.wakes[0]);
        if self.wakes.contains(&asked) {
            return Ok(asked);
        }
        let names: Vec<String> = self.wakes.iter().map(Wake::to_string).collect();
        Err(ServeError::Setting {
            setting: "--wake",
            given: asked.to_string(),
            accepted: format!("{} has {}", self.name, names.join(", ")),
        })
    }

    /// Returns true if it starts worker processes, which get the configuration as text.
    pub fn has_workers(&self) -> bool {
        self.work.is_some()
    }

    /// True if the architecture declares the setting of this flag.
    pub(super) fn has(&self, flag: &str) -> bool {
        is_among(self.settings, flag)
    }
}
