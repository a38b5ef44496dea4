//! An agent: enters the fleet, takes orders, and carries out one at a time.
//!
//! ```text
//!   connecting --entered--> free --order--> busy (turn) --> free
//!       ^                     |
//!       +--- NATS is gone ----+
//! ```
//!
//! `turn` carries out one order, with the agent's `settings`. `clock` compares its clock with the coordinator's, and `pulse`
//! is its dead man's switch. `presence` is the agent's membership.
//!
//! Leaves out the run of which its turn is a part: [`coordinator`](crate::coordinator).

mod clock;
mod presence;
mod pulse;
mod settings;
pub(crate) mod turn;

use std::time::Duration;

use async_nats::jetstream::kv::Operation;
use futures_util::StreamExt;
use load::Stop;
use tokio::time::{interval, sleep};

use crate::access::Nats;
use crate::error::FleetError;
use crate::messages::{Order, Run};
use presence::Membership;
pub use settings::{AgentSettings, Name};

/// Pause before the next attempt to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// A request to stop is noticed after this time.
const TICK: Duration = Duration::from_millis(100);

/// Serves as an agent until `stop`, or for one run. Passes remarks to `say`. Connects again after each failure of
/// NATS.
///
/// # Errors
/// [`FleetError::NameTaken`]; [`FleetError::System`] without resources for the runtime.
pub fn serve(settings: &AgentSettings, stop: &Stop, say: &dyn Fn(&str)) -> Result<(), FleetError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(FleetError::system("starting the runtime"))?.block_on(async {
        let mut said = String::new();
        while !stop.is_requested() {
            match member(settings, stop, say).await {
                Ok(()) => return Ok(()),
                Err(error @ FleetError::NameTaken(_)) => return Err(error),
                Err(error) => {
                    let error = error.to_string();
                    if error != said {
                        say(&format!("{error}; the agent tries again every second"));
                    }
                    said = error;
                    sleep(PAUSE).await;
                }
            }
        }
        Ok(())
    })
}

/// Serves over one connection.
async fn member(settings: &AgentSettings, stop: &Stop, say: &dyn Fn(&str)) -> Result<(), FleetError> {
    let name = settings.name.to_string();
    let nats = tokio::select! {
        nats = settings.access.connect(&name) => nats?,
        () = requested(stop) => return Ok(()),
    };
    let membership = tokio::select! {
        entered = Membership::enter(&nats, &name) => entered?,
        () = requested(stop) => return Ok(()),
    };
    say(&format!("agent {name} is ready for orders"));
    let outcome = tokio::select! {
        Err(error) = membership.keep() => Err(error),
        outcome = take_orders(settings, &nats, &membership, stop, say) => outcome,
    };
    membership.leave().await;
    outcome
}

/// Takes orders until `stop`, or one order.
async fn take_orders(
    settings: &AgentSettings,
    nats: &Nats,
    membership: &Membership<'_>,
    stop: &Stop,
    say: &dyn Fn(&str),
) -> Result<(), FleetError> {
    let watched = nats.runs.watch(Run("*".to_owned()).order(&settings.name.to_string())).await;
    let mut orders = watched.map_err(FleetError::nats("waiting for orders"))?;
    loop {
        let entry = tokio::select! {
            entry = orders.next() => entry,
            () = requested(stop) => return Ok(()),
        };
        let entry = match entry {
            Some(Ok(entry)) if entry.operation == Operation::Put => entry,
            Some(Ok(_)) => continue,
            Some(Err(error)) => return Err(FleetError::nats("waiting for orders")(error)),
            None => return Err(FleetError::nats("waiting for orders")("the watch has ended")),
        };
        let Some((run, _)) = entry.key.split_once('.') else { continue };
        // A message that is not an order comes from another version, or from no coordinator.
        let Ok(order) = serde_json::from_slice::<Order>(&entry.value) else {
            say("an order was not understood; give all machines the same version");
            continue;
        };
        membership.set_busy(true);
        let outcome = turn::carry_out(settings, nats, Run(run.to_owned()), order, stop, say).await;
        membership.set_busy(false);
        match outcome {
            Ok(true) if settings.once => return Ok(()),
            Ok(_) => {}
            Err(error) => say(&error.to_string()),
        }
    }
}

/// Waits until `stop` is raised.
pub(crate) async fn requested(stop: &Stop) {
    let mut ticks = interval(TICK);
    while !stop.is_requested() {
        ticks.tick().await;
    }
}
