//! The sources of a loop's connections: listeners of its own, or a process or thread that passes it connections.
//!
//! The loop is generic over its source, so features that listeners do not need cost a loop with listeners nothing.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use base::{Limit, Nanos};
use dispatch::{Dispatcher, Mechanism};
use overload::AdaptiveLimit;
use overload::law::Sessions;
use sys::socket::AcceptQueue;

use crate::connections::accept::{
    AcceptLimit, Accepted, Acceptor, Arrived, Look, Phase, PhaseEnd, RECLAIM_PAUSE, Short,
};
use crate::connections::overload_control::AcceptControl;
use crate::connections::overload_control::ControlledQueue;
use crate::ground::counters::LoopCounts;
use crate::ground::listener::Listener;

/// A loop's report on itself before it waits.
#[derive(Clone, Copy, Debug)]
pub struct News {
    /// Replies sent so far.
    pub replies: u64,
    /// Connections closed so far.
    pub closed: u64,
    /// Since when the longest-idle connection has been idle; [`Nanos::MAX`] without one.
    pub idle_from: Nanos,
    /// The length of the turn up to its last phase.
    pub turn: Nanos,
}

/// A source of connections, on one or several descriptors that are readable when some wait.
pub trait Arrivals {
    /// The descriptors, by index.
    fn sources(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>>;

    /// The most connections that an accept phase may take.
    fn limit(&self) -> Limit;

    /// Takes one connection. Never blocks.
    fn accept(&mut self, index: usize, now: Nanos, counts: &mut LoopCounts) -> Accepted;

    /// Turns away a connection that has no room. A source that cannot turn connections away lets this one wait.
    fn turn_away(&mut self, _index: usize, _short: Short, now: Nanos, _counts: &mut LoopCounts) -> Look {
        Look::Stop(PhaseEnd::Pause(now + RECLAIM_PAUSE))
    }

    /// Notes the duration of an accept phase that took this many connections.
    fn accepting_took(&mut self, _taken: u64, _took: Nanos) {}

    /// Notes a work phase: `turns` connections had a turn, and `closed` connections have ended since the last one.
    fn worked(&mut self, _turns: u64, _closed: u64, _took: Nanos) {}

    /// Counts an accept phase.
    fn count(&self, phase: &Phase, counts: &mut LoopCounts) {
        phase.count(counts);
    }

    /// Asks another loop to close its longest-idle connection, if that has been idle since before `idle_from`. Returns
    /// true if there will be room soon.
    fn reclaim_elsewhere(&mut self, _idle_from: Nanos, _now: Nanos) -> bool {
        false
    }

    /// Returns the number of idle connections that other loops have asked this loop to close.
    fn asked(&mut self) -> usize {
        0
    }

    /// Notes that the loop has closed one of the requested connections, or found none idle.
    fn answered(&mut self) {}

    /// Returns the state of the kernel's accept queues.
    fn queue(&self) -> AcceptQueue;

    /// Keeps further connections out of the queues. The loop is about to take the waiting ones.
    fn seal(&self) {}

    /// Forgets the descriptors: the loop is shutting down and takes no more connections.
    fn close<M: Mechanism>(&mut self, dispatcher: &mut Dispatcher<M>);

    /// True if every source is a listener that the kernel may accept from for a completion loop.
    fn are_listeners(&self) -> bool {
        false
    }

    /// True if another process accepts from the sources from now on.
    fn are_passed_on(&self) -> bool {
        false
    }

    /// True if a connection waits for room.
    fn has_newcomer(&self) -> bool {
        false
    }

    /// Takes the connection that waits for room, even beyond the limit: a loop that shuts down still serves it.
    fn last_newcomer(&mut self, _now: Nanos) -> Option<Arrived> {
        None
    }

    /// Takes a connection that the kernel has accepted by itself; the next accept finds it.
    fn offer(&mut self, _socket: OwnedFd, _peer: Option<SocketAddr>) {}

    /// As [`Arrivals::close`], for a loop without a dispatcher.
    fn shut(&mut self) {}

    /// Returns the control of the accept queue; `None` if the loop has no queue of its own, or overload control is off.
    fn control(&mut self) -> Option<&mut AcceptControl> {
        None
    }

    /// Notes the number of connections so far whose first request was refused because it had waited too long.
    fn late_connections(&mut self, _so_far: u64) {}

    /// Runs the control if it is due. Call it once a turn, after the work and before accepting. Never blocks.
    fn tick(&mut self, _now: Nanos) {}

    /// Returns the instructions of overload control for open connections.
    fn sessions(&self) -> Sessions {
        Sessions::default()
    }

    /// Notes the news of a loop that is about to wait. Returns the latest time of the next call.
    fn take_news(&mut self, _news: News, _now: Nanos) -> Option<Nanos> {
        None
    }
}

/// Listeners of the loop's own.
pub struct Listeners {
    /// One listener for each address.
    pub listeners: Vec<Listener>,
    /// The accept policy.
    pub acceptor: Acceptor,
    control: Option<AcceptControl>,
    adaptive: AdaptiveLimit,
}

impl Listeners {
    /// The listeners of an accept queue.
    pub fn new(queue: ControlledQueue, acceptor: Acceptor) -> Listeners {
        let ControlledQueue { listeners, control } = queue;
        let target = control.as_ref().map_or(overload::Settings::default().target, AcceptControl::target);
        Listeners { listeners, acceptor, control, adaptive: AdaptiveLimit::new(target) }
    }

    /// Returns the time when the control must run even if no event comes.
    pub fn control_due(&self) -> Option<Nanos> {
        self.control.as_ref().and_then(AcceptControl::wakes_at)
    }

    /// Runs the control if it is due, at this used fraction of the connection limit.
    pub fn tick_at(&mut self, now: Nanos, occupancy: f64) {
        if let Some(control) = &mut self.control {
            control.occupied(occupancy);
            control.connection_costs(self.adaptive.connection_cost());
            control.tick(now, &self.listeners);
            self.adaptive.set_target(control.target());
        }
    }

    /// Tells overload control of the connections that were refused or turned away.
    fn report_refused(&mut self) {
        if let Some(control) = &mut self.control {
            control.accepted(self.acceptor.take_refused(), PhaseEnd::AtLimit);
        }
    }

    /// Splits them into their queue and their acceptor.
    pub fn into_parts(self) -> (ControlledQueue, Acceptor) {
        let Listeners { listeners, acceptor, control, .. } = self;
        (ControlledQueue { listeners, control }, acceptor)
    }
}

impl Arrivals for Listeners {
    fn sources(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.socket.as_fd())
    }

    fn limit(&self) -> Limit {
        let adaptive = self.adaptive.limit();
        match self.acceptor.limit.get() {
            AcceptLimit::Fixed(limit) if self.control.is_none() => limit,
            // A limit that empties the queue would move the wait into the loop, where overload control does not see it.
            AcceptLimit::Fixed(Limit::AtMost(most)) => Limit::AtMost(most.min(adaptive)),
            AcceptLimit::Fixed(Limit::Infinite) | AcceptLimit::Adaptive => Limit::AtMost(adaptive),
        }
    }

    fn accepting_took(&mut self, taken: u64, took: Nanos) {
        self.adaptive.accepted(count(taken), took);
    }

    fn worked(&mut self, turns: u64, closed: u64, took: Nanos) {
        self.adaptive.worked(count(turns), count(closed), took);
    }

    fn accept(&mut self, index: usize, now: Nanos, counts: &mut LoopCounts) -> Accepted {
        let accepted = self.acceptor.accept(&self.listeners[index], now, counts);
        self.report_refused();
        accepted
    }

    fn turn_away(&mut self, index: usize, short: Short, now: Nanos, counts: &mut LoopCounts) -> Look {
        let look = self.acceptor.turn_away(&self.listeners[index], short, now, counts);
        self.report_refused();
        look
    }

    fn reclaim_elsewhere(&mut self, idle_from: Nanos, now: Nanos) -> bool {
        self.acceptor.share.reclaim_elsewhere(idle_from, now)
    }

    fn asked(&mut self) -> usize {
        self.acceptor.share.asked()
    }

    fn answered(&mut self) {
        self.acceptor.share.answered();
    }

    fn queue(&self) -> AcceptQueue {
        Listener::queues(&self.listeners)
    }

    fn seal(&self) {
        self.listeners.iter().for_each(Listener::seal);
    }

    fn are_listeners(&self) -> bool {
        true
    }

    fn are_passed_on(&self) -> bool {
        Listener::are_passed_on(&self.listeners)
    }

    fn has_newcomer(&self) -> bool {
        self.acceptor.has_newcomer()
    }

    fn last_newcomer(&mut self, now: Nanos) -> Option<Arrived> {
        self.acceptor.last_newcomer(now)
    }

    fn offer(&mut self, socket: OwnedFd, peer: Option<SocketAddr>) {
        self.acceptor.offer(socket, peer);
    }

    fn shut(&mut self) {
        self.control.take().into_iter().for_each(|control| control.withdraw());
        self.listeners.drain(..).for_each(|listener| listener.hand_over());
    }

    fn close<M: Mechanism>(&mut self, dispatcher: &mut Dispatcher<M>) {
        self.control.take().into_iter().for_each(|control| control.withdraw());
        for listener in self.listeners.drain(..) {
            dispatcher.closing_shared(listener.socket.as_fd());
            // A pending io_uring request keeps the listener open until the kernel cancels the request. Meanwhile
            // connects would still succeed, and be reset later.
            listener.hand_over();
        }
    }

    fn control(&mut self) -> Option<&mut AcceptControl> {
        self.control.as_mut()
    }

    fn late_connections(&mut self, so_far: u64) {
        if let Some(control) = &mut self.control {
            control.late_connections(so_far);
        }
    }

    fn tick(&mut self, now: Nanos) {
        self.tick_at(now, self.acceptor.share.occupancy());
    }

    fn sessions(&self) -> Sessions {
        let cost = self.adaptive.work_cost();
        self.control.as_ref().map_or_else(Sessions::default, |control| control.sessions(cost))
    }

    fn take_news(&mut self, news: News, _now: Nanos) -> Option<Nanos> {
        self.acceptor.share.show(news.idle_from);
        self.control_due()
    }
}

/// A number of connections, at most as many as the measurement counts.
pub fn count(connections: u64) -> u32 {
    u32::try_from(connections).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::accept::LiveLimit;
    use crate::connections::slots::Share;

    #[test]
    fn only_the_adaptive_limit_follows_the_work_cost() {
        let live = LiveLimit::new(AcceptLimit::Adaptive);
        let acceptor = Acceptor::new(live.clone(), Share::alone(1), None);
        let mut without_control =
            Listeners::new(ControlledQueue { listeners: Vec::new(), control: None }, acceptor);
        let mut most = |limit| {
            live.set(limit);
            for _ in 0..100 {
                without_control.worked(100, 100, Nanos::from_millis(100));
            }
            without_control.limit()
        };
        // Four milliseconds have room for three connections that take 1 ms each, with their accepts.
        assert_eq!(most(AcceptLimit::Adaptive), Limit::AtMost(3));
        for fixed in [Limit::AtMost(1), Limit::AtMost(1000), Limit::Infinite] {
            assert_eq!(most(AcceptLimit::Fixed(fixed)), fixed);
        }
    }
}
