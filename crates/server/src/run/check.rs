//! A trial of a configuration without a server: opens its directories, certificates and logs, but no address.

use crate::architecture::Architecture;
use crate::config::hosts;
use crate::config::serve::ServeConfig;
use crate::connections::accept::LiveLimit;
use crate::ground::error::ServeError;
use crate::observation::access_log;
use crate::operation::certificates::Certificates;
use crate::operation::confinement::become_account;
use crate::operation::upgrade;
use crate::plan::Plan;

/// The result of a trial without mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The names of the certificates; `None` without TLS.
    pub certificates: Option<Vec<String>>,
    /// Warnings, a line each: names without a certificate, and files that the server could not open again as its new
    /// user.
    pub warnings: Vec<String>,
}

/// Opens the directories, the certificates and the log of a configuration, and changes to its user, for good. Opens no
/// address, because a server may listen there.
///
/// # Errors
/// The errors of [`crate::Server::start`].
pub fn check(architecture: &Architecture, mut config: ServeConfig) -> Result<Checked, ServeError> {
    architecture.settle_config(&mut config)?;
    upgrade::check(&config)?;
    access_log::check(&config)?;
    let tls = Certificates::of(&config, None)?.map(|certificates| certificates.sessions());
    let limit = LiveLimit::new(architecture.accept_limit);
    let hosts = hosts::open(&config, tls.as_ref())?;
    let plan = Plan::new(config, hosts, limit, None, None, None, tls.clone())?;
    let unvouched = hosts::unvouched(plan.config(), tls.as_ref());
    let account = plan.config().account.as_ref();
    let unusable = account.map(|account| become_account(plan.config(), account)).transpose()?;
    let warnings = unvouched.into_iter().chain(unusable.into_iter().flatten()).collect();
    Ok(Checked { certificates: tls.map(|sessions| sessions.names()), warnings })
}
