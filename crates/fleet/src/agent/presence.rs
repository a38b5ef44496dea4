//! An agent's membership: an entry in the bucket of agents, renewed every second.
//!
//! The entry is created, and then updated by revision, so that two agents never share a name. NATS forgets the
//! entry of an agent that has died.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use async_nats::jetstream::kv::{CreateErrorKind, UpdateErrorKind};
use bytes::Bytes;
use tokio::time::sleep;

use crate::access::{Nats, PRESENCE_AGE};
use crate::error::FleetError;
use crate::messages::{Presence, VERSION};

/// The time between two renewals.
const RENEWAL: Duration = Duration::from_secs(1);

/// The operation's name in errors.
const RENEWING: &str = "renewing the membership";

/// Failed renewals after which the connection is made anew.
const FAILURES_MAX: u32 = 3;

/// The membership of one agent.
pub(crate) struct Membership<'a> {
    nats: &'a Nats,
    name: &'a str,
    /// Tells this agent's entry from another's of the same name.
    id: u64,
    revision: Cell<u64>,
    busy: Cell<bool>,
}

impl<'a> Membership<'a> {
    /// Enters the fleet. Waits until the entry of a dead agent with this name is forgotten.
    ///
    /// # Errors
    /// [`FleetError::NameTaken`] by an agent that is alive; errors of NATS.
    pub async fn enter(nats: &'a Nats, name: &'a str) -> Result<Membership<'a>, FleetError> {
        let id = RandomState::new().hash_one(name);
        let membership = Membership { nats, name, id, revision: Cell::new(0), busy: Cell::new(false) };
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

    /// Renews the entry once. Creates it again if it was forgotten during a break of the connection. The entry may also be
    /// newer than this agent knows, if NATS stored a renewal and its answer was lost.
    async fn renew(&self) -> Result<u64, FleetError> {
        let update = |revision| self.nats.agents.update(self.name, self.entry(), revision);
        match update(self.revision.get()).await {
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {}
            renewed => return renewed.map_err(FleetError::nats(RENEWING)),
        }
        match self.nats.agents.create(self.name, self.entry()).await {
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {}
            created => return created.map_err(FleetError::nats(RENEWING)),
        }
        let found = self.nats.agents.entry(self.name).await.map_err(FleetError::nats(RENEWING))?;
        let is_ours = |value: &[u8]| {
            serde_json::from_slice::<Presence>(value).is_ok_and(|presence| presence.id == self.id)
        };
        match found.filter(|entry| is_ours(&entry.value)) {
            Some(entry) => update(entry.revision).await.map_err(FleetError::nats(RENEWING)),
            None => Err(FleetError::NameTaken(self.name.to_owned())),
        }
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
        let presence = Presence { version: VERSION.to_owned(), busy: self.busy.get(), id: self.id };
        serde_json::to_vec(&presence).expect("a presence is plain text").into()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::local::LocalFleet;

    #[test]
    fn agent_renews_only_its_own_newer_entry() {
        let server = match LocalFleet::start(Path::new("no agents"), 0) {
            Err(FleetError::NoServer) => return println!("skipped: nats-server is not installed"),
            started => started.unwrap(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let nats = server.access.connect("test").await.unwrap();
            let ours = Membership::enter(&nats, "a").await.unwrap();
            let known = ours.revision.get();
            // The answer to this renewal is lost.
            ours.renew().await.unwrap();
            assert_eq!(ours.revision.get(), known);
            assert!(ours.renew().await.unwrap() > known);
            let other = Membership { id: ours.id.wrapping_add(1), revision: Cell::new(known), ..ours };
            assert!(matches!(other.renew().await, Err(FleetError::NameTaken(_))));
        });
    }
}
