//! The work of a stage's threads on a connection before they queue it for the next stage.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use base::{Clock, Nanos, lock};
use connection::SocketService;
use connection::refusal::unavailable;
use connection::transfer::{Moved, receive, send, shut_down};
use dispatch::Interest;
use http_semantics::server::Wants;
use http_semantics::{Request, Responder, Response};

use super::mail::Mail;
use super::stage::Taken;
use super::{Crew, Ending, Peer, Phase, Pipeline, Step};
use crate::connections::accept::PhaseEnd;
use crate::driver::lender::Lender;
use crate::ground::counters::{Counters, LoopCounts};
use crate::ground::listener::Listener;

/// Admits a request, to be answered by the file stage, or refuses it.
pub(super) struct Gate<'a, S>(pub(super) &'a Pipeline<S>);

impl<S: SocketService + Clone + Send + Sync> Responder for Gate<'_, S> {
    type File = Arc<OwnedFd>;

    fn respond_or_wait(&mut self, _request: &Request<'_>, now: Nanos) -> Option<Response<Arc<OwnedFd>>> {
        if self.0.admission().admits(now) { None } else { Some(unavailable()) }
    }

    fn refuse_early(&self, request: &Request<'_>) -> Option<Response<Arc<OwnedFd>>> {
        self.0.service.refuse_early(request)
    }
}

impl<S: SocketService + Clone + Send + Sync> SocketService for Gate<'_, S> {
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A thread of the accept stage.
pub(super) fn accept<S: SocketService + Clone + Send + Sync>(crew: Crew<'_, '_, S>) {
    let pipeline = crew.pipeline;
    let (mut phases, mut worked_at) = (Vec::new(), pipeline.clock.now());
    while pipeline.accept.take(&mut phases, worked_at, true) == Taken::Events {
        worked_at = pipeline.clock.now();
        for phase in phases.drain(..) {
            let mut acceptor = lock(&pipeline.acceptor);
            let (mut counts, mut arrived) = (LoopCounts::default(), Vec::new());
            let end = match phase {
                Phase::One => acceptor.phase(&pipeline.listeners, worked_at, &mut counts, &mut arrived),
                Phase::TurnAway(short) => {
                    acceptor.turn_away_phase(&pipeline.listeners, short, worked_at, &mut counts)
                }
                Phase::Last => {
                    pipeline.listeners.iter().for_each(Listener::seal);
                    acceptor.last_phase(&pipeline.listeners, worked_at, &mut counts, &mut arrived);
                    PhaseEnd::Empty
                }
            };
            drop(acceptor);
            if phase == Phase::Last {
                for listener in &pipeline.listeners {
                    // Clients that connect later are refused at once.
                    listener.hand_over();
                }
            }
            let totals = Counters { loops: counts, ..Counters::default() };
            pipeline.mailbox.send([Mail::Accepted { phase, arrived, end }], Some(totals));
        }
    }
}

/// A thread of one of the other stages.
pub(super) fn work<S: SocketService + Clone + Send + Sync>(crew: Crew<'_, '_, S>, step: Step) {
    match step {
        Step::Read => Worker::new(crew, step, Gate(crew.pipeline)).run(Worker::read),
        Step::Parse => Worker::new(crew, step, Gate(crew.pipeline)).run(Worker::parse),
        Step::File => Worker::new(crew, step, crew.pipeline.service.clone()).run(Worker::answer),
        Step::Write => Worker::new(crew, step, Gate(crew.pipeline)).run(Worker::write),
    }
}

/// The next place of a connection that a stage has finished with.
enum Next {
    Stage(Step, Box<Peer>),
    Source(Mail),
}

impl Next {
    /// Moves mail into `mail`, and returns anything else.
    fn step_or_mail(self, mail: &mut Vec<Mail>) -> Option<(Step, Box<Peer>)> {
        match self {
            Next::Stage(step, peer) => Some((step, peer)),
            Next::Source(piece) => {
                mail.push(piece);
                None
            }
        }
    }
}

/// A thread, and the state that its connections share. `R` answers requests, in the stages that have any.
struct Worker<'scope, 'env, S, R> {
    crew: Crew<'scope, 'env, S>,
    step: Step,
    lender: Lender<R>,
}

impl<'scope, 'env, S, R> Worker<'scope, 'env, S, R>
where
    S: SocketService + Clone + Send + Sync,
    R: SocketService,
{
    fn new(crew: Crew<'scope, 'env, S>, step: Step, responder: R) -> Self {
        let pipeline = crew.pipeline;
        let lender =
            Lender::new(responder, pipeline.settings.clone(), crew.log(), pipeline.clock, super::BATCH);
        Worker { crew, step, lender }
    }

    /// Works on the stage's events until the thread must end.
    fn run(mut self, handle: impl Fn(&mut Self, Box<Peer>) -> Next) {
        let pipeline = self.crew.pipeline;
        let stage = pipeline.step(self.step);
        let (mut peers, mut worked_at) = (Vec::new(), pipeline.clock.now());
        loop {
            let all_published = self.lender.publish_due().is_none();
            match stage.take(&mut peers, worked_at, all_published) {
                Taken::Events => {}
                // Another thread has taken the events.
                Taken::Quiet => {
                    pipeline.mailbox.send([], Some(self.lender.take_totals(worked_at)));
                    continue;
                }
                Taken::Over => return,
            }
            let next: Vec<Next> = peers.drain(..).map(|peer| handle(&mut self, peer)).collect();
            worked_at = pipeline.clock.now();
            // Totals go before the connections that they include.
            let publishes = self.lender.publish_due().is_some_and(|due| due <= worked_at) || stage.is_empty();
            let totals = publishes.then(|| self.lender.take_totals(worked_at));
            let mut mail = Vec::new();
            let steps: Vec<_> = next.into_iter().filter_map(|next| next.step_or_mail(&mut mail)).collect();
            if !mail.is_empty() || totals.is_some() {
                pipeline.mailbox.send(mail, totals);
            }
            steps.into_iter().for_each(|(step, peer)| self.crew.send(step, peer));
        }
    }

    /// Receives once, if the connection waits for that.
    fn read(&mut self, mut peer: Box<Peer>) -> Next {
        let mut next = Step::Write;
        let mut lent = self.lender.turn(peer.machine.client());
        if peer.machine.may_receive(lent.context.settings) {
            match receive(peer.arrived.socket.as_fd(), lent.scratch) {
                Ok(0) => {
                    let (mut http, _, counts) = lent.parts();
                    peer.machine.receive_end(&mut http, counts);
                }
                Ok(count) => {
                    peer.received.extend_from_slice(&lent.scratch[..count]);
                    next = Step::Parse;
                }
                Err(Moved::AsFarAsPossible) => peer.drained = true,
                Err(Moved::NoMemory) => self.lender.counts.peers.no_memory += 1,
                Err(Moved::Broken | Moved::TurnOver) => return Next::Source(Mail::Broken(peer)),
            }
        }
        Next::Stage(next, peer)
    }

    /// Hands the received bytes to the protocol machine.
    fn parse(&mut self, mut peer: Box<Peer>) -> Next {
        // An idle connection must not keep the memory.
        let received = std::mem::take(&mut peer.received);
        let mut lent = self.lender.turn(peer.machine.client());
        let (mut http, _, counts) = lent.parts();
        peer.machine.receive(&received, &mut http, counts);
        Next::Stage(if peer.machine.is_deferred() { Step::File } else { Step::Write }, peer)
    }

    /// Answers the admitted request; may wait for a disk.
    fn answer(&mut self, mut peer: Box<Peer>) -> Next {
        peer.machine.resume(&mut self.lender.turn(peer.machine.client()));
        peer.admitted = true;
        Next::Stage(Step::Write, peer)
    }

    /// Sends pending output, handles a deadline that has passed, and finds the next place.
    fn write(&mut self, mut peer: Box<Peer>) -> Next {
        let mut lent = self.lender.turn(peer.machine.client());
        let socket = peer.arrived.socket.as_fd();
        let mut moved = send(socket, &mut peer.machine, &mut lent);
        if std::mem::take(&mut peer.admitted) {
            let now = self.crew.pipeline.clock.now();
            let response_time = now.saturating_sub(peer.ready_at);
            self.crew.pipeline.admission().answered(response_time, now);
        }
        // The deadline is checked after the bytes: a connection is not late because it waited in a queue.
        if !matches!(moved, Moved::Broken) && lent.context.now >= peer.machine.deadline() {
            peer.machine.expire(&mut lent);
            moved = send(socket, &mut peer.machine, &mut lent);
        }
        let mut is_reclaimed = false;
        if !peer.machine.is_deferred() {
            match peer.ending {
                Ending::GivesWay => {
                    peer.machine.give_way(&mut lent);
                    is_reclaimed = peer.machine.wants() == Wants::Close;
                    peer.ending = Ending::No;
                }
                Ending::LastLook => {
                    peer.machine.drain(&mut lent);
                    peer.ending = Ending::Told;
                }
                Ending::No | Ending::Told => {}
            }
        }
        // Under TLS a closing connection may have an alert to send.
        if moved == Moved::AsFarAsPossible {
            moved = send(socket, &mut peer.machine, &mut lent);
        }
        self.lender.counts.reclaimed += u64::from(is_reclaimed);
        match moved {
            Moved::Broken => Next::Source(Mail::Broken(peer)),
            Moved::TurnOver => {
                self.lender.counts.limit_turn += 1;
                Next::Stage(Step::Write, peer)
            }
            Moved::NoMemory => {
                self.lender.counts.peers.no_memory += 1;
                Next::Stage(Step::Write, peer)
            }
            Moved::AsFarAsPossible => find_stage(peer),
        }
    }
}

/// Finds the stage that can act on the connection's wants; the source waits otherwise.
fn find_stage(mut peer: Box<Peer>) -> Next {
    match peer.machine.wants() {
        _ if peer.machine.is_deferred() => Next::Stage(Step::File, peer),
        Wants::Close => Next::Source(Mail::Ended(peer)),
        Wants::Receive | Wants::Transmit | Wants::Resume | Wants::Pause => Next::Source(Mail::Idle(peer)),
        Wants::ShutdownThenReceive => {
            shut_down(peer.arrived.socket.as_fd(), &mut peer.machine);
            Next::Stage(Step::Read, peer)
        }
    }
}

impl Peer {
    /// Returns the interest that the event mechanism gets.
    pub(super) fn interest(&self) -> Interest {
        match self.machine.wants() {
            Wants::Transmit => Interest::Write,
            Wants::Pause => Interest::None,
            _ => Interest::Read,
        }
    }
}
