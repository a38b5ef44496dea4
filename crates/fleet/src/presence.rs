//! An agent's membership: an entry in the bucket of agents, renewed every second.
//!
//! The entry is created, and then updated by revision, so that two agents never share a name. NATS forgets the
//! entry of an agent that has died.

use std::cell::Cell;
use std::time::Duration;

use async_nats::jetstream::kv::{CreateErrorKind, UpdateErrorKind};
use bytes::Bytes;
use tokio::time::sleep;

use crate::access::{Nats, PRESENCE_AGE};
use crate::error::FleetError;
use crate::messages::{Presence, VERSION};

/// The time between two renewals.
const RENEWAL: Duration = Duration::from_secs(1);

/// Failed renewals after which the connection is made anew.
const FAILURES_MAX: u32 = 3;

/// The membership of one agent.
pub(crate) struct Membership<'a> {
    nats: &'a Nats,
    name: &'a str,
    revision: Cell<u64>,
    busy: Cell<bool>,
}

impl<'a> Membership<'a> {
    /// Enters the fleet. Waits until the entry of a dead agent with this name is forgotten.
    ///
    /// # Errors
    /// [`FleetError::NameTaken`] by an agent that is alive; errors of NATS.
    pub async fn enter(nats: &'a Nats, name: &'a str) -> Result<Membership<'a>, FleetError> {
        let membership = Membership { nats, name, revision: Cell::new(0), busy: Cell::new(false) };
        let mut waited = Duration::ZERO;
        loop {
            match nats.agents.create(name, membership.entry()).await {
                Ok(revision) => {
                    membership.revision.set(revision);
                    return Ok(membership);
                }
                Err(error) if error.kind() != CreateErrorKind::AlreadyExists => {
                    return Err(FleetError::nats("entering the fleet")(error));
                }
                Err(_) if waited > PRESENCE_AGE * 2 => return Err(FleetError::NameTaken(name.to_owned())),
                Err(_) => {
                    waited += RENEWAL;
                    sleep(RENEWAL).await;
                }
            }
        }
    }

    /// Renews the entry for ever.
    ///
    /// # Errors
    /// The name was taken over, or NATS fails repeatedly while the agent has no order. A failure during an order is
    /// left to the dead man's switch.
    pub async fn keep(&self) -> Result<(), FleetError> {
        let mut failures = 0;
        loop {
            sleep(RENEWAL).await;
            match self.renew().await {
                Ok(revision) => {
                    self.revision.set(revision);
                    failures = 0;
                }
                Err(error) => {
                    failures += 1;
                    let is_final = failures >= FAILURES_MAX || matches!(error, FleetError::NameTaken(_));
                    if is_final && !self.busy.get() {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Renews the entry once. Creates it again if it was forgotten during a break of the connection.
    async fn renew(&self) -> Result<u64, FleetError> {
        let failed = "renewing the membership";
        match self.nats.agents.update(self.name, self.entry(), self.revision.get()).await {
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {}
            renewed => return renewed.map_err(FleetError::nats(failed)),
        }
        let created = self.nats.agents.create(self.name, self.entry()).await;
        created.map_err(|error| match error.kind() {
            CreateErrorKind::AlreadyExists => FleetError::NameTaken(self.name.to_owned()),
            _ => FleetError::nats(failed)(error),
        })
    }

    /// Shows the agent as free or as busy from the next renewal on.
    pub fn set_busy(&self, busy: bool) {
        self.busy.set(busy);
    }

    /// Leaves the fleet. A failure to do so is not an error, because NATS forgets the entry by itself.
    pub async fn leave(&self) {
        let _ = self.nats.agents.purge(self.name).await;
    }

    fn entry(&self) -> Bytes {
        let presence = Presence { version: VERSION.to_owned(), busy: self.busy.get() };
        serde_json::to_vec(&presence).expect("a presence is plain text").into()
    }
}
