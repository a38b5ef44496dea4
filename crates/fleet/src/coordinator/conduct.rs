//! Leads a run: finds the agents, orders, starts them together, sends beats, and notices losses.
//!
//! Runs in a thread of its own with the runtime of NATS. [`Event`]s go to the thread that gathers the result.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::time::Duration;

use async_nats::jetstream::kv::Watch;
use base::{Clock, Nanos, RealClock, printable};
use futures_util::{Stream, StreamExt};
use load::{Stop, Tempo, ThreadInterval};
use tokio::time::{Interval, interval, sleep};

use crate::access::{Access, Nats};
use crate::error::FleetError;
use crate::messages::{Answer, Beat, ClockReading, Delivery, FromAgent, Order, Presence, Run, VERSION};

/// The time between two beats.
const BEAT: Duration = Duration::from_millis(250);

/// Maximum wait for the agents to be there.
const GATHERING_MAX: Nanos = Nanos::from_secs(30);

/// Maximum wait for their answers. An agent may have to look up the target's name.
const ANSWERS_MAX: Nanos = Nanos::from_secs(10);

/// From the last answer to the start, so that every agent has its threads ready.
const HEAD_START: Nanos = Nanos::from_millis(500);

/// An agent is lost after this silence. Its dead man's switch has ended its load by then.
const SILENCE_MAX: Nanos = Nanos::from_secs(3);

/// Maximum time for the deliveries after the last reply was due.
const DELIVERY_MAX: Nanos = Nanos::from_secs(30);

/// A change that the gathering thread is told of. Agents are numbered by their shares.
pub(crate) enum Event {
    /// All agents have accepted their orders.
    Ready(Vec<(String, ClockReading)>),
    Told(u32, Box<ThreadInterval>),
    Delivered(u32, Box<Delivery>),
    Lost(u32, String),
}

/// The leader of one run.
pub(crate) struct Conductor {
    pub settings: serde_json::Value,
    pub agents: u32,
    /// The end of the schedule, since the run's start.
    pub until: Nanos,
    /// The longest wait for replies after it.
    pub patience: Nanos,
    pub tempo: Option<Tempo>,
    pub stop: Stop,
    /// The target has refused everything.
    pub given_up: Stop,
    /// The shares that the run still counts on.
    pub left: RefCell<Vec<u32>>,
    pub sender: Sender<Event>,
}

/// An agent that has not ended yet.
struct Member {
    index: u32,
    heard: Nanos,
    told: u64,
    /// The delivery, until all intervals told before it have arrived too.
    delivery: Option<Box<Delivery>>,
}

impl Conductor {
    /// Leads the run in this thread; blocks until every agent has delivered or is lost.
    pub fn run(self, access: &Access) -> Result<(), FleetError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(FleetError::system("starting the runtime"))?.block_on(async {
            let nats = access.connect("coordinator").await?;
            let names = self.find(&nats).await?;
            let id = nats.client.new_inbox();
            let run = Run(id.rsplit('.').next().unwrap_or(&id).to_owned());
            tokio::select! {
                error = answer_clock(&nats, &run) => error,
                error = self.send_beats(&nats, &run) => error,
                done = self.lead(&nats, &run, &names) => done,
            }
        })
    }

    /// Waits for enough free agents; takes the first by name.
    async fn find(&self, nats: &Nats) -> Result<Vec<String>, FleetError> {
        let (clock, wanted) = (RealClock::new(), self.agents as usize);
        let until = clock.now() + GATHERING_MAX;
        loop {
            let mut found = free_agents(nats).await?;
            if found.len() >= wanted {
                found.truncate(wanted);
                return Ok(found);
            }
            if self.stop.is_requested() {
                return Err(FleetError::EndedEarly);
            }
            if clock.now() > until {
                let names = if found.is_empty() { String::new() } else { format!(" ({})", found.join(", ")) };
                return Err(FleetError::TooFew { found: found.len(), wanted: self.agents, names });
            }
            sleep(BEAT).await;
        }
    }

    /// Orders, starts and follows the run.
    async fn lead(&self, nats: &Nats, run: &Run, names: &[String]) -> Result<(), FleetError> {
        let failed = FleetError::nats("listening to the agents");
        let mut messages = nats.client.subscribe(run.messages_of("*")).await.map_err(failed)?;
        let waiting = "waiting for the agents";
        let answered = nats.runs.watch(run.answer("*")).await;
        let answered = answered.map_err(FleetError::nats(waiting))?;
        for (index, name) in names.iter().enumerate() {
            let settings = self.settings.clone();
            let order =
                Order { version: VERSION.to_owned(), index: index as u32, agents: self.agents, settings };
            nats.put(&run.order(name), &order).await?;
        }
        let answers = self.answers(run, names, answered).await?;
        let ready = names.iter().map(|name| (name.clone(), answers[name])).collect();
        self.send_event(Event::Ready(ready));
        // No agent delivers before it knows the start.
        let delivered = nats.runs.watch(run.delivered("*")).await;
        let mut delivered = delivered.map_err(FleetError::nats(waiting))?;
        let clock = RealClock::new();
        let start = clock.now() + HEAD_START;
        nats.put(&run.start(), &start.0).await?;
        let member = |index| Member { index, heard: start, told: 0, delivery: None };
        let mut left: BTreeMap<&str, Member> =
            names.iter().zip(0..).map(|(name, index)| (name.as_str(), member(index))).collect();
        let end = start + self.until + self.patience + DELIVERY_MAX;
        let mut ticks = interval(BEAT);
        while !left.is_empty() {
            match next(&mut messages, &mut delivered, &mut ticks).await {
                Next::Message(message) => self.take_message(&mut left, &message, clock.now()),
                Next::Entry(entry) => {
                    let name = left.keys().copied().find(|name| run.delivered(name) == entry.key);
                    let Some(name) = name else { continue };
                    match fetch(nats, run, name, &entry.value).await {
                        Ok(delivery) => {
                            if let Some(member) = left.get_mut(name) {
                                (member.heard, member.delivery) = (clock.now(), Some(delivery));
                            }
                        }
                        Err(error) => self.give_up_agent(&mut left, name, error.to_string()),
                    }
                }
                Next::Tick => self.sort_out(&mut left, clock.now(), end),
            }
        }
        Ok(())
    }

    /// Waits for the answers of all agents to their orders.
    async fn answers(
        &self,
        run: &Run,
        names: &[String],
        mut entries: Watch,
    ) -> Result<BTreeMap<String, ClockReading>, FleetError> {
        let clock = RealClock::new();
        let (mut answers, until) = (BTreeMap::new(), clock.now() + ANSWERS_MAX);
        let mut ticks = interval(BEAT);
        while answers.len() < names.len() {
            tokio::select! {
                Some(Ok(entry)) = entries.next() => {
                    let Some(name) = names.iter().find(|name| run.answer(name) == entry.key) else { continue };
                    let answer = serde_json::from_slice(&entry.value);
                    match answer.map_err(FleetError::nats("reading an answer"))? {
                        Answer::Ready(reading) => drop(answers.insert(name.clone(), reading)),
                        Answer::Refused(why) => {
                            let why = printable(&why).into_owned();
                            return Err(FleetError::Refused { name: name.clone(), why });
                        }
                    }
                }
                _ = ticks.tick() => {
                    if self.stop.is_requested() {
                        return Err(FleetError::EndedEarly);
                    }
                    if clock.now() > until {
                        let silent = names.iter().filter(|name| !answers.contains_key(*name)).cloned();
                        return Err(FleetError::NoAnswer(silent.collect::<Vec<_>>().join(", ")));
                    }
                }
            }
        }
        Ok(answers)
    }

    /// Takes a message of an agent that is still counted on.
    fn take_message(&self, left: &mut BTreeMap<&str, Member>, message: &async_nats::Message, now: Nanos) {
        let name = message.subject.rsplit('.').next().unwrap_or_default();
        let Some(member) = left.get_mut(name) else { return };
        member.heard = member.heard.max(now);
        match serde_json::from_slice(&message.payload) {
            Ok(FromAgent::Told(told)) => {
                member.told += 1;
                self.send_event(Event::Told(member.index, told));
            }
            Ok(FromAgent::Failed(why)) => self.give_up_agent(left, name, printable(&why).into_owned()),
            Ok(FromAgent::Alive) | Err(_) => {}
        }
    }

    /// Gives up an agent.
    fn give_up_agent(&self, left: &mut BTreeMap<&str, Member>, name: &str, why: String) {
        if let Some(member) = left.remove(name) {
            self.send_event(Event::Lost(member.index, why));
        }
    }

    /// Takes the complete deliveries, and gives up silent agents.
    fn sort_out(&self, left: &mut BTreeMap<&str, Member>, now: Nanos, end: Nanos) {
        left.retain(|_, member| {
            let silent = now.saturating_sub(member.heard) > SILENCE_MAX;
            // Intervals that were lost on the way are missing only in the series.
            if let Some(delivery) = member.delivery.take_if(|delivery| delivery.told <= member.told || silent)
            {
                self.send_event(Event::Delivered(member.index, delivery));
                return false;
            }
            let why = match (silent, now > end) {
                (true, _) => format!("silent for {}: killed, stopped or cut off", SILENCE_MAX.approximate()),
                (false, true) => "it delivered nothing in time".to_owned(),
                (false, false) => return true,
            };
            self.send_event(Event::Lost(member.index, why));
            false
        });
        self.left.replace(left.values().map(|member| member.index).collect());
    }

    /// Sends beats until NATS fails.
    async fn send_beats(&self, nats: &Nats, run: &Run) -> Result<(), FleetError> {
        let mut ticks = interval(BEAT);
        loop {
            ticks.tick().await;
            let beat = Beat {
                sent_ns: RealClock::new().now().0,
                rate_share: self.tempo.as_ref().map_or(1.0, Tempo::share),
                ends: self.stop.is_requested() || self.given_up.is_requested(),
                members: self.left.borrow().clone(),
            };
            nats.publish(run.beats(), &beat).await?;
        }
    }

    fn send_event(&self, event: Event) {
        // The receiver is gone only if gathering has failed; the run then ends with the receiver's error.
        let _ = self.sender.send(event);
    }
}

/// An event on which the leader of a run acts.
#[derive(Debug, PartialEq)]
enum Next<M, E> {
    Message(M),
    Entry(E),
    Tick,
}

/// Waits for the next message, entry or tick. A tick comes after all that has arrived: an agent is not silent while
/// its word or its delivery waits here.
async fn next<M, E, X>(
    messages: &mut (impl Stream<Item = M> + Unpin),
    entries: &mut (impl Stream<Item = Result<E, X>> + Unpin),
    ticks: &mut Interval,
) -> Next<M, E> {
    tokio::select! {
        biased;
        Some(message) = messages.next() => Next::Message(message),
        Some(Ok(entry)) = entries.next() => Next::Entry(entry),
        _ = ticks.tick() => Next::Tick,
    }
}

/// The names of the free agents, in order and once each. An agent that renews its entry meanwhile comes twice from
/// NATS.
async fn free_agents(nats: &Nats) -> Result<Vec<String>, FleetError> {
    let failed = "listing the agents";
    let mut keys = nats.agents.keys().await.map_err(FleetError::nats(failed))?;
    let mut found = BTreeSet::new();
    while let Some(key) = keys.next().await {
        let key = key.map_err(FleetError::nats(failed))?;
        let entry = nats.agents.get(&key).await.map_err(FleetError::nats(failed))?;
        let presence = entry.and_then(|entry| serde_json::from_slice::<Presence>(&entry).ok());
        if presence.is_some_and(|presence| !presence.busy && presence.version == VERSION) {
            found.insert(key);
        }
    }
    Ok(found.into_iter().collect())
}

/// Answers requests for this machine's time until NATS fails.
async fn answer_clock(nats: &Nats, run: &Run) -> Result<(), FleetError> {
    let subscribed = nats.client.subscribe(run.clock()).await;
    let mut requests = subscribed.map_err(FleetError::nats("listening for clock requests"))?;
    while let Some(request) = requests.next().await {
        if let Some(reply) = request.reply {
            nats.publish(reply.to_string(), &RealClock::new().now().0).await?;
        }
    }
    Err(FleetError::nats("listening for clock requests")("the subscription has ended"))
}

/// Reads the pieces of a delivery.
async fn fetch(nats: &Nats, run: &Run, name: &str, pieces: &[u8]) -> Result<Box<Delivery>, FleetError> {
    let failed = "reading a part";
    let pieces: usize = serde_json::from_slice(pieces).map_err(FleetError::nats(failed))?;
    let mut bytes = Vec::new();
    for number in 0..pieces {
        let piece = nats.runs.get(run.piece(name, number)).await.map_err(FleetError::nats(failed))?;
        bytes.extend_from_slice(&piece.ok_or_else(|| FleetError::nats(failed)("a piece is missing"))?);
    }
    serde_json::from_slice(&bytes).map_err(FleetError::nats(failed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::iter;

    #[tokio::test]
    async fn a_tick_comes_after_all_that_has_arrived() {
        let mut messages = iter(0..20);
        let mut entries = iter((0..20).map(Ok::<_, ()>));
        let mut ticks = interval(BEAT);
        for number in 0..20 {
            assert_eq!(next(&mut messages, &mut entries, &mut ticks).await, Next::Message(number));
        }
        for number in 0..20 {
            assert_eq!(next(&mut messages, &mut entries, &mut ticks).await, Next::Entry(number));
        }
        assert_eq!(next(&mut messages, &mut entries, &mut ticks).await, Next::Tick);
    }
}
