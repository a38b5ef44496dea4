//! The source of events: the one thread that waits for sockets and keeps the idle connections.
//!
//! ```text
//!   loop:  get_events ──> take_in (what the stages send back) ──> expire ──┐
//!             ^────────────────────────────────────────────────────────────┘
//!
//!   accepting:  Watching ──listener ready──> Asked ──empty────> Watching
//!                              ^               ├──no room──> an idle connection is to end, or Asked to turn away
//!                              │               v
//!                              └─delay over─ Paused
//! ```
//!
//! While a connection is with a stage, the source has no interest in its socket. It remembers an edge that comes in
//! that time, or was on its way. Such a connection returns to the stages instead of becoming idle.

use std::io;
use std::os::fd::AsFd;

use base::{Clock, Key, Nanos, Slab};
use connection::transfer::end;
use connection::{LiveSettings, SocketService};
use dispatch::{Dispatcher, Event, Interest, Mechanism, Timers, Token, Trigger};

use super::mail::Mail;
use super::work::Gate;
use super::{Crew, Ending, Peer, Phase, Step};
use crate::connections::accept::{Arrived, PhaseEnd, RECLAIM_PAUSE, Short};
use crate::connections::idle::IdleList;
use crate::driver::event_loop::{STOP, TIMER_SLOT, listener_token};
use crate::driver::lender::Lender;
use crate::ground::counters::Counters;
use crate::ground::listener::Listener;

/// The token of the mail. Connections have odd generations and listeners generation 0, so it is none of theirs.
const MAIL: Token = Token(STOP.0 - 1);

/// A connection's place in the table.
struct Place {
    /// The connection while it is idle; `None` while it is with a stage.
    idle: Option<Box<Peer>>,
    /// The time of its earliest entry in the timers.
    comes_up: Nanos,
    /// An event was reported while the connection was with a stage.
    reported: bool,
}

/// The state of accepting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepting {
    /// The listeners are watched.
    Watching,
    /// The accept stage has a task. `again`: a listener has been reported since.
    Asked { again: bool },
    /// There is no room, or accepting lacks a resource. Ends at this time.
    Paused(Nanos),
    /// The server is shutting down, and takes the last connections.
    Last,
    /// No more connections will come.
    Over,
}

/// The thread's state, on the mechanism `M`.
pub(super) struct Source<'scope, 'env, M, S: SocketService + Clone + Send + Sync> {
    crew: Crew<'scope, 'env, S>,
    dispatcher: Dispatcher<M>,
    lender: Lender<Gate<'env, S>>,
    settings: LiveSettings,
    places: Slab<Place>,
    /// The idle connections.
    idle: IdleList,
    events: Vec<Event>,
    timers: Timers,
    due: Vec<Token>,
    accepting: Accepting,
    /// The connection that was told to give way and has not come back from the stages. On a busy machine that takes
    /// longer than a pause. Meanwhile no other connection has to give way.
    giving_way: Option<Key>,
    drain_until: Option<Nanos>,
    /// The sum of all counts.
    totals: Counters,
    now: Nanos,
}

impl<'scope, 'env, M, S> Source<'scope, 'env, M, S>
where
    M: Mechanism,
    S: SocketService + Clone + Send + Sync,
{
    const EDGE: bool = matches!(M::CAPABILITIES.trigger, Trigger::Edge);

    /// Watches the listeners, the stages' mail, and the stop.
    ///
    /// # Errors
    /// The mechanism cannot be set up.
    pub(super) fn new(crew: Crew<'scope, 'env, S>) -> io::Result<Self> {
        let pipeline = crew.pipeline;
        let mut dispatcher = Dispatcher::configured(&pipeline.mechanism)?;
        for (index, listener) in pipeline.listeners.iter().enumerate() {
            dispatcher.register_locked(listener.socket.as_fd(), listener_token(index), Interest::Read);
        }
        dispatcher.register_locked(pipeline.mailbox.as_fd(), MAIL, Interest::Read);
        dispatcher.register(crew.stop.descriptor(), STOP, Interest::Read);
        let now = pipeline.clock.now();
        let settings = pipeline.settings.clone();
        Ok(Source {
            lender: Lender::new(Gate(pipeline), settings.clone(), crew.log(), pipeline.clock, super::BATCH),
            settings,
            crew,
            dispatcher,
            places: Slab::new(),
            idle: IdleList::default(),
            events: Vec::new(),
            timers: Timers::new(TIMER_SLOT, now),
            due: Vec::new(),
            accepting: Accepting::Watching,
            giving_way: None,
            drain_until: None,
            totals: Counters::default(),
            now,
        })
    }

    /// Runs until the server is told to stop and its connections have ended, or the drain timeout has passed. Blocks.
    ///
    /// # Errors
    /// The mechanism fails because of a bug of Inrush.
    pub(super) fn run(&mut self) -> io::Result<()> {
        self.publish();
        while !self.ended() {
            self.get_events()?;
            self.take_in();
            self.expire();
        }
        self.finish();
        Ok(())
    }

    fn ended(&self) -> bool {
        let all_gone = self.places.is_empty() && self.accepting == Accepting::Over;
        self.drain_until.is_some_and(|until| all_gone || self.now >= until)
    }

    /// Waits, and hands ready connections to the stages.
    fn get_events(&mut self) -> io::Result<()> {
        let paused = match self.accepting {
            Accepting::Paused(until) => Some(until),
            _ => None,
        };
        let next = [self.timers.next(), paused, self.drain_until, self.lender.publish_due()];
        let timeout = next.into_iter().flatten().min().map(|next| next.saturating_sub(self.now));
        let mut events = std::mem::take(&mut self.events);
        self.dispatcher.wait(&mut events, timeout)?;
        self.now = self.crew.pipeline.clock.now();
        let counts = self.lender.counting();
        counts.waits += 1;
        counts.events += events.len() as u64;
        for event in events.drain(..) {
            match Key::from(event.token) {
                _ if event.token == MAIL => self.crew.pipeline.mailbox.silence(),
                _ if event.token == STOP => {}
                key if key.generation == 0 => self.listener_ready(),
                key => self.reported(key),
            }
        }
        self.events = events;
        if self.drain_until.is_none() && self.crew.stop.asked() {
            self.begin_to_drain();
        }
        if let Accepting::Paused(until) = self.accepting
            && until <= self.now
        {
            self.ask_for_connections(Phase::One);
        }
        Ok(())
    }

    fn listener_ready(&mut self) {
        match &mut self.accepting {
            Accepting::Watching => self.ask_for_connections(Phase::One),
            Accepting::Asked { again } => *again = true,
            Accepting::Paused(_) | Accepting::Last | Accepting::Over => {}
        }
    }

    fn ask_for_connections(&mut self, phase: Phase) {
        self.accepting = Accepting::Asked { again: false };
        self.watch_listeners(Interest::None);
        self.crew.ask_for_connections(phase);
    }

    fn watch_listeners(&mut self, interest: Interest) {
        for listener in &self.crew.pipeline.listeners {
            self.dispatcher.modify(listener.socket.as_fd(), interest);
        }
    }

    /// Handles an event of a connection.
    fn reported(&mut self, key: Key) {
        let Some(place) = self.places.get_mut(key) else {
            self.lender.counts.stale_events += 1;
            return;
        };
        match place.idle.take() {
            Some(peer) => self.hand_on(peer),
            None => place.reported = true,
        }
    }

    /// Gives a connection to the stages. Until it comes back, the source has no interest in its socket.
    fn hand_on(&mut self, mut peer: Box<Peer>) {
        self.idle.leave(peer.key);
        self.dispatcher.modify(peer.arrived.socket.as_fd(), Interest::None);
        (peer.ready_at, peer.drained) = (self.now, false);
        let first = if peer.machine.may_receive(&self.settings) { Step::Read } else { Step::Write };
        self.crew.send(first, peer);
    }

    /// Takes in the mail of the stages.
    fn take_in(&mut self) {
        let post = self.crew.pipeline.mailbox.take();
        self.totals.add(&post.totals);
        for mail in post.mail {
            match mail {
                Mail::Accepted { phase, arrived, end } => self.accepted(phase, arrived, end),
                Mail::Idle(peer) => self.idle(peer),
                Mail::Broken(peer) => {
                    self.lender.counting().peers.broken += 1;
                    self.end(peer);
                }
                Mail::Ended(peer) => self.end(peer),
            }
        }
    }

    fn accepted(&mut self, phase: Phase, arrived: Vec<Arrived>, end: PhaseEnd) {
        for arrived in arrived {
            self.admit(arrived);
        }
        self.accepting = match (self.accepting, end) {
            (Accepting::Last, _) if phase == Phase::Last => return self.tell_everybody(),
            (Accepting::Last | Accepting::Over, _) => return,
            (Accepting::Asked { again: true }, PhaseEnd::Empty) | (_, PhaseEnd::AtLimit) => {
                return self.ask_for_connections(Phase::One);
            }
            // A connection may have ended since.
            (_, PhaseEnd::NoRoom(Short::Connections)) if !self.crew.pipeline.share.is_full() => {
                return self.ask_for_connections(Phase::One);
            }
            (_, PhaseEnd::NoRoom(_)) if self.giving_way.is_some() || self.reclaim() => {
                Accepting::Paused(self.now + RECLAIM_PAUSE)
            }
            (_, PhaseEnd::NoRoom(short)) => return self.ask_for_connections(Phase::TurnAway(short)),
            (_, PhaseEnd::Pause(until)) => Accepting::Paused(until),
            (_, PhaseEnd::Empty) => {
                self.watch_listeners(Interest::Read);
                Accepting::Watching
            }
        };
    }

    /// Makes the longest-idle connection end. Returns false if none is idle.
    fn reclaim(&mut self) -> bool {
        let longest = self.idle.longest(self.now);
        let Some(mut peer) = longest.and_then(|key| self.places.get_mut(key)?.idle.take()) else {
            return false;
        };
        peer.ending = Ending::GivesWay;
        self.giving_way = Some(peer.key);
        self.hand_on(peer);
        true
    }

    fn admit(&mut self, mut arrived: Arrived) {
        self.settings.refresh();
        let machine = arrived.machine(&self.settings);
        let place = Place { idle: None, comes_up: Nanos::MAX, reported: false };
        let key = self.places.insert(place);
        self.dispatcher.register(arrived.socket.as_fd(), Token::from(key), Interest::Read);
        let ready_at = arrived.at;
        let (received, ending) = (Vec::new(), Ending::No);
        self.idle(Box::new(Peer {
            key,
            arrived,
            machine,
            received,
            ready_at,
            admitted: false,
            // Bytes that have already arrived are reported as an event.
            drained: true,
            ending,
        }));
    }

    /// Keeps an idle connection, or hands it on if an event was reported while it was with a stage.
    fn idle(&mut self, mut peer: Box<Peer>) {
        self.has_come_back(&peer);
        let going_down = self.accepting == Accepting::Over && peer.ending != Ending::Told;
        if going_down {
            peer.ending = Ending::LastLook;
        }
        let Some(place) = self.places.get_mut(peer.key) else { return };
        let unread = Self::EDGE && !peer.drained && peer.interest() == Interest::Read;
        if std::mem::take(&mut place.reported) || going_down || unread {
            return self.hand_on(peer);
        }
        self.dispatcher.modify(peer.arrived.socket.as_fd(), peer.interest());
        let deadline = peer.machine.deadline();
        if deadline < place.comes_up {
            place.comes_up = self.timers.schedule(Token::from(peer.key), deadline);
        }
        if peer.machine.idle_from() < Nanos::MAX {
            self.idle.enter(peer.key, peer.machine.idle_from());
        }
        place.idle = Some(peer);
    }

    /// Notes that a connection has left the stages. If it was to give way, it has done so or has answered a request
    /// instead.
    fn has_come_back(&mut self, peer: &Peer) {
        self.giving_way.take_if(|key| *key == peer.key);
    }

    /// Ends a connection.
    fn end(&mut self, mut peer: Box<Peer>) {
        self.has_come_back(&peer);
        self.lender.counting().closed += 1;
        self.idle.leave(peer.key);
        let client = peer.machine.client();
        end(peer.arrived.socket.as_fd(), &mut peer.machine, &mut self.lender.turn(client));
        self.dispatcher.closing(peer.arrived.socket.as_fd());
        self.places.remove(peer.key);
        let Arrived { socket, slot, .. } = peer.arrived;
        // The descriptor closes before the slot comes free, because the slot's next owner needs a descriptor.
        drop(socket);
        drop(slot);
    }

    /// Hands on connections whose deadline has passed, and publishes counters that have become old.
    fn expire(&mut self) {
        self.timers.expire(self.now, &mut self.due);
        while let Some(token) = self.due.pop() {
            // A connection that has ended leaves its entries behind.
            let Some(place) = self.places.get_mut(Key::from(token)) else { continue };
            if place.comes_up > self.now {
                continue;
            }
            place.comes_up = Nanos::MAX;
            // A connection that is with a stage is checked when it comes back.
            let Some(peer) = place.idle.take() else { continue };
            if peer.machine.deadline() <= self.now {
                self.hand_on(peer);
            } else {
                place.comes_up = self.timers.schedule(token, peer.machine.deadline());
                place.idle = Some(peer);
            }
        }
        // Every wait counts an event, so a publication becomes due in time after each.
        if self.lender.publish_due().is_some_and(|due| due <= self.now) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.totals.add(&self.lender.take_totals(self.now));
        self.totals.connections = self.places.len() as u64;
        self.totals.queue = Listener::queues(&self.crew.pipeline.listeners);
        let reconciled = self.dispatcher.reconciled();
        self.totals.loops.interest_applied = reconciled.applied;
        self.totals.loops.interest_taken_back = reconciled.taken_back;
        self.totals.loops.event_queue_overflows = self.dispatcher.counts().overflows;
        self.crew.board.publish(self.totals.clone());
    }

    /// Makes the accept stage take the connections that still wait in the queues.
    fn begin_to_drain(&mut self) {
        self.drain_until = Some(self.now.saturating_add(self.crew.pipeline.drain_timeout));
        self.dispatcher.deregister(self.crew.stop.descriptor());
        self.accepting = Accepting::Last;
        self.watch_listeners(Interest::None);
        self.crew.ask_for_connections(Phase::Last);
    }

    /// Ends accepting, and makes every connection end when it has nothing more to do.
    fn tell_everybody(&mut self) {
        self.accepting = Accepting::Over;
        for key in self.places.keys().collect::<Vec<_>>() {
            if let Some(peer) = self.places.get_mut(key).and_then(|place| place.idle.take()) {
                self.idle(peer);
            }
        }
    }

    /// Cuts off the connections that have not finished in time, and publishes the last counters.
    fn finish(&mut self) {
        let on_their_way = self.crew.pipeline.close();
        self.crew.pipeline.wait_for_threads();
        let idle = self.places.keys().collect::<Vec<_>>();
        let idle = idle.into_iter().filter_map(|key| self.places.get_mut(key)?.idle.take());
        let mut unfinished: Vec<_> = idle.chain(on_their_way).collect();
        let post = self.crew.pipeline.mailbox.take();
        self.totals.add(&post.totals);
        for mail in post.mail {
            match mail {
                Mail::Ended(peer) | Mail::Broken(peer) => self.end(peer),
                Mail::Idle(peer) => unfinished.push(peer),
                Mail::Accepted { arrived, .. } => {
                    self.lender.counting().cut_off_at_shutdown += arrived.len() as u64;
                }
            }
        }
        for peer in unfinished {
            // After a hand-over, the client of an idle connection had the whole drain time for another request.
            let has_finished =
                self.lender.settings.custody().is_passed_on() && peer.machine.idle_from() <= self.now;
            self.lender.counting().cut_off_at_shutdown += u64::from(!has_finished);
            self.end(peer);
        }
        self.publish();
    }
}
