//! An agent's turn: one order from its answer to the delivery of its part.
//!
//! ```text
//!   order --checked, clocks compared--> ready --start--> offering load --end--> delivering --> done
//!                 |                       |                   |                     |
//!                 +-- refused             +-- no beat: given up   no beat: load ends   +-- kept on disk
//! ```

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subscriber;
use base::{Clock, Nanos, PerSecond, RealClock, printable};
use futures_util::StreamExt;
use load::{AgentEnd, Config, LoadError, Plan, Processes, Stop, Tempo, ThreadInterval};
use record::load::AgentPart;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{interval, timeout};

use crate::access::{Nats, PIECE_BYTES};
use crate::agent::clock;
use crate::agent::pulse::Pulse;
use crate::agent::settings::AgentSettings;
use crate::error::FleetError;
use crate::messages::{
    Answer, Beat, ClockReading, Delivery, FromAgent, Order, Run, VERSION, on_agents_clock,
};

/// The time between two signs of life.
const ALIVE: Duration = Duration::from_millis(250);

/// Timeout of the delivery; the part is then kept on disk.
const DELIVERY: Duration = Duration::from_secs(20);

/// A message of the engine's thread.
enum FromEngine {
    Told(Box<ThreadInterval>),
    End(Box<Result<AgentEnd, LoadError>>),
}

/// Carries out an order. Returns true if the load was offered.
///
/// # Errors
/// NATS fails, the start does not come, or the part cannot be kept.
pub(crate) async fn carry_out(
    settings: &AgentSettings,
    nats: &Nats,
    run: Run,
    order: Order,
    stop: &Stop,
    say: &dyn Fn(&str),
) -> Result<bool, FleetError> {
    let (name, index) = (settings.name.to_string(), order.index);
    let plan = match accept(settings, order) {
        Ok(plan) => plan,
        Err(why) => {
            let why = printable(&why).into_owned();
            say(&format!("the order is refused: {why}"));
            nats.put(&run.answer(&name), &Answer::Refused(why)).await?;
            return Ok(false);
        }
    };
    let subscribed = nats.client.subscribe(run.beats()).await;
    let beats = subscribed.map_err(FleetError::nats("listening for beats"))?;
    let reading = clock::compare(nats, &run).await?;
    let pulse = Arc::new(Pulse::new(RealClock::new().now()));
    let tempo = plan.tempo();
    let mut turn = Turn { nats, run, name, index, reading, pulse, tempo, beats };
    let Some(origin) = turn.await_start(stop).await? else {
        say("the start of the run did not come; the agent is free again");
        return Ok(false);
    };
    say(&format!("offering share {} of {} to {}", index + 1, plan.processes(), plan.target()));
    let (told, end) = turn.offer(plan, origin, stop).await?;
    turn.deliver(settings, told, end, say).await?;
    Ok(true)
}

/// Checks an order as if it were a command line of this machine.
fn accept(settings: &AgentSettings, order: Order) -> Result<Plan, String> {
    if order.version != VERSION {
        return Err(format!("its version is {}, and the agent's is {VERSION}", order.version));
    }
    let config: Config = serde_json::from_value(order.settings).map_err(|error| error.to_string())?;
    let agents = NonZeroU32::new(order.agents).filter(|agents| order.index < agents.get());
    let agents = agents.filter(|agents| agents.get() <= load::AGENTS_MAX);
    let agents = agents.ok_or_else(|| format!("it is share {} of {}", order.index, order.agents))?;
    load::preflight::check_threads_here(config.threads).map_err(|error| error.to_string())?;
    // The clean rate is that of HTTP/1.1.
    let clean_rate = (settings.clean_rate)(config.threads.get()).filter(|_| config.streams.is_none());
    let config = Config {
        processes: Processes::Agents(agents),
        // The plan compares the rate of the whole fleet.
        clean_rate: clean_rate.map(|rate| PerSecond(rate.0 * f64::from(agents.get()))),
        ..config
    };
    let owned = config.own_this_server;
    let plan = load::prepare(config).map_err(|error| error.to_string())?;
    confirm_target(owned, &plan).map_err(|error| error.to_string())?;
    Ok(plan)
}

/// Checks that the target is on this machine or that its owner has said so. Both the coordinator and each agent ask.
///
/// # Errors
/// [`FleetError::NotYours`].
pub fn confirm_target(owned: bool, plan: &Plan) -> Result<(), FleetError> {
    let target = plan.target();
    if owned || target.is_local() { Ok(()) } else { Err(FleetError::NotYours(target.to_string())) }
}

/// One order that is carried out.
struct Turn<'a> {
    nats: &'a Nats,
    run: Run,
    name: String,
    index: u32,
    reading: ClockReading,
    pulse: Arc<Pulse>,
    tempo: Option<Tempo>,
    beats: Subscriber,
}

impl Turn<'_> {
    /// Answers and waits for the start; `None` if the coordinator falls silent or ends the run.
    async fn await_start(&mut self, stop: &Stop) -> Result<Option<Nanos>, FleetError> {
        let watched = self.nats.runs.watch_with_history(self.run.start()).await;
        let mut starts = watched.map_err(FleetError::nats("waiting for the start"))?;
        self.nats.put(&self.run.answer(&self.name), &Answer::Ready(self.reading)).await?;
        let mut ticks = interval(ALIVE);
        loop {
            tokio::select! {
                Some(Ok(start)) = starts.next() => {
                    let at = serde_json::from_slice(&start.value).map_err(FleetError::nats("reading the start"))?;
                    return Ok(Some(on_agents_clock(Nanos(at), self.reading.offset_ns)));
                }
                Some(beat) = self.beats.next() => self.take_beat(&beat.payload),
                _ = ticks.tick() => {
                    if self.pulse.must_stop(RealClock::new().now()) || stop.is_requested() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Offers the share. Returns the number of intervals told, and the end.
    async fn offer(&mut self, plan: Plan, origin: Nanos, stop: &Stop) -> Result<(u64, AgentEnd), FleetError> {
        let (sender, mut engine) = unbounded_channel();
        let (pulse, stop, index) = (Arc::clone(&self.pulse), stop.clone(), self.index);
        let begun = std::thread::Builder::new().name("share".into()).spawn(move || {
            let must_stop = || stop.is_requested() || pulse.must_stop(RealClock::new().now());
            offer_share(&plan, index, origin, &must_stop, &sender);
        });
        begun.map_err(FleetError::system("starting a thread"))?;
        let ended = self.forward_until_end(&mut engine).await?;
        if let (_, Err(error)) = &ended {
            let failed = FromAgent::Failed(error.to_string());
            self.nats.publish(self.run.messages_of(&self.name), &failed).await?;
        }
        Ok((ended.0, ended.1?))
    }

    /// Forwards intervals and beats until the engine ends.
    async fn forward_until_end(
        &mut self,
        engine: &mut UnboundedReceiver<FromEngine>,
    ) -> Result<(u64, Result<AgentEnd, LoadError>), FleetError> {
        let (subject, mut told) = (self.run.messages_of(&self.name), 0);
        let mut ticks = interval(ALIVE);
        loop {
            tokio::select! {
                Some(beat) = self.beats.next() => self.take_beat(&beat.payload),
                _ = ticks.tick() => self.nats.publish(subject.clone(), &FromAgent::Alive).await?,
                Some(message) = engine.recv() => match message {
                    FromEngine::Told(interval) => {
                        told += 1;
                        self.nats.publish(subject.clone(), &FromAgent::Told(interval)).await?;
                    }
                    FromEngine::End(end) => return Ok((told, *end)),
                }
            }
        }
    }

    /// Takes a beat. A malformed beat does not count as a sign of life.
    fn take_beat(&self, payload: &[u8]) {
        let Ok(beat) = serde_json::from_slice::<Beat>(payload) else { return };
        self.pulse.beat(on_agents_clock(Nanos(beat.sent_ns), self.reading.offset_ns));
        if !beat.members.contains(&self.index) {
            self.pulse.trip();
        }
        if beat.ends {
            self.pulse.end();
        }
        if let Some(tempo) = self.tempo.as_ref().filter(|tempo| tempo.share() != beat.rate_share) {
            tempo.set(beat.rate_share);
        }
    }

    /// Delivers the part. Keeps it on disk if that fails, or if the coordinator may not count on it.
    async fn deliver(
        mut self,
        settings: &AgentSettings,
        told: u64,
        end: AgentEnd,
        say: &dyn Fn(&str),
    ) -> Result<(), FleetError> {
        let was_cut_off = self.pulse.has_tripped();
        let part = AgentPart::of(end.result.clone(), end.began.0);
        let delivery = Delivery { told, part, reports: end.reports };
        let delivered = timeout(DELIVERY, self.send(&delivery)).await;
        let why = match delivered {
            Ok(Ok(())) if !was_cut_off => return Ok(()),
            Ok(Ok(())) => "the coordinator was silent, so the load ended early".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "NATS does not take it".to_owned(),
        };
        let path = settings.kept.join(format!("{}-{}.json", self.run.0, self.name));
        let kept = std::fs::create_dir_all(&settings.kept).map_err(|error| error.to_string());
        let kept =
            kept.and_then(|()| record::file::write(&path, &end.result).map_err(|error| error.to_string()));
        match kept {
            Ok(()) => say(&format!("{why}; the agent's part of the result is in {}", path.display())),
            Err(error) => say(&format!("{why}, and the agent's part cannot be kept: {error}")),
        }
        Ok(())
    }

    /// Writes the pieces of a delivery, with signs of life in between.
    async fn send(&mut self, delivery: &Delivery) -> Result<(), FleetError> {
        let bytes = serde_json::to_vec(delivery).map_err(FleetError::nats("encoding the part"))?;
        let pieces = bytes.chunks(PIECE_BYTES).len();
        for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            self.nats.put_bytes(&self.run.piece(&self.name, number), piece.to_vec()).await?;
            self.nats.publish(self.run.messages_of(&self.name), &FromAgent::Alive).await?;
        }
        self.nats.put(&self.run.delivered(&self.name), &pieces).await
    }
}

/// Carries out the share in this thread.
fn offer_share(
    plan: &Plan,
    index: u32,
    origin: Nanos,
    must_stop: &(dyn Fn() -> bool + Sync),
    sender: &UnboundedSender<FromEngine>,
) {
    // The receiver is gone only if the turn has failed; the switch then ends the load.
    let mut tell = |told: &ThreadInterval| drop(sender.send(FromEngine::Told(Box::new(told.clone()))));
    let end = load::run_agent(plan, index, origin, must_stop, &mut tell);
    let _ = sender.send(FromEngine::End(Box::new(end)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;

    #[test]
    fn orders_of_too_many_threads_are_refused() {
        let access = Access { url: String::new(), creds: None, tls_ca: None, tls_identity: None };
        let settings = AgentSettings {
            access,
            name: "agent".parse().unwrap(),
            once: true,
            kept: "/nowhere".into(),
            clean_rate: |_| None,
        };
        let client = load::Client::Closed { clients: NonZeroU32::MIN };
        let mut config = Config::new(vec!["http://127.0.0.1:9/".parse().unwrap()], client);
        config.threads = NonZeroU32::new(1_000_000).unwrap();
        let version = VERSION.to_owned();
        let order = Order { version, index: 0, agents: 1, settings: serde_json::to_value(config).unwrap() };
        let refused = accept(&settings, order).map(drop).unwrap_err();
        assert!(refused.starts_with("--threads 1000000: this process may use "), "{refused}");
    }
}
