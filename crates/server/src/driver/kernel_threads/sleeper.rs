//! A kernel thread's wait for its connection: it also ends at the stop, and for others that the thread could serve.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;

use base::{Clock, Nanos};
use connection::SocketService;
use dispatch::Trigger;
use overload::law::Sessions;
use sys::readiness::poll::{self, PollFd};

use super::Group;
use crate::driver::blocking::{Awaited, Waiter, Woken};
use crate::driver::lender::Lender;
use crate::driver::pools::idle_threads::{Entry, Leaving};
use crate::driver::pools::waiters::readable;
use crate::ground::counters::Board;
use crate::ground::instructions::Instructions;
use crate::ground::listener::Listener;

/// A kernel thread's wait for its connection and the stop, in poll(2).
pub(super) struct Sleeper<'a, 'group, S> {
    pub(super) group: &'group Group,
    pub(super) lender: &'a RefCell<Lender<S>>,
    pub(super) board: &'a Board,
    pub(super) own_queue: &'a [Listener],
    /// The thread has taken other connections, which it serves after this one, and for which it gives this one up.
    pub(super) others_wait: bool,
    pub(super) set: &'a mut Vec<PollFd>,
    /// The connection is being given up for another.
    pub(super) leaving: Option<Leaving<'group>>,
}

impl<S: SocketService> Waiter for Sleeper<'_, '_, S> {
    const TRIGGER: Trigger = Trigger::Level;

    fn drain_until(&self) -> Option<Nanos> {
        self.group.drain_until.get().copied()
    }

    fn wait(&mut self, awaited: Awaited<'_>) -> Woken {
        let Awaited { socket, until, told, idle_from, .. } = awaited;
        let now = self.group.clock.now();
        let in_the_way = self.others_wait || !self.own_queue.is_empty();
        let is_idle = idle_from <= now;
        if self.others_wait && is_idle {
            return Woken::GiveWay;
        }
        let entry = (idle_from < Nanos::MAX).then(|| self.group.idle.enter(socket, idle_from));
        let until = if in_the_way && !is_idle { until.min(idle_from) } else { until };
        self.set.clear();
        self.set.push(awaited.watched());
        // The thread polls the stop, which stays readable, until its connection has been told.
        if !told {
            self.set.push(readable(&self.group.stop.descriptor()));
        }
        let first_queue = self.set.len();
        if is_idle {
            self.set.extend(self.own_queue.iter().map(|listener| readable(&listener.socket)));
        }
        self.sleep(until);
        let waits = self.set[first_queue..].iter().any(|queue| queue.reported() != 0);
        match entry.and_then(Entry::leave) {
            Some(leaving) => {
                self.leaving = Some(leaving);
                Woken::Reclaimed
            }
            None if waits => Woken::GiveWay,
            None => Woken::Ready,
        }
    }

    fn sessions(&self) -> Sessions {
        match &self.group.controller {
            _ if self.group.keeps_sessions() => Sessions::default(),
            Some(controller) => controller.sessions(),
            None => Instructions::read(&self.group.instructions).sessions,
        }
    }

    fn pause(&mut self) {
        // The kernel shares the processor among threads.
    }

    fn closing(&mut self, _socket: BorrowedFd<'_>) {}
}

impl<S: SocketService> Sleeper<'_, '_, S> {
    /// Sleeps until a descriptor is ready or the time is over. Publishes the counts that fall due.
    fn sleep(&mut self, until: Nanos) {
        loop {
            let due = self.lender.borrow().publish_due();
            let next = due.unwrap_or(until).min(until);
            match poll::wait(self.set, Some(next.saturating_sub(self.group.clock.now()))) {
                Ok(0) if next < until => self.group.publish(&mut self.lender.borrow_mut(), self.board),
                // An interrupted wait counts as ready: the socket is tried again.
                _ => return,
            }
        }
    }
}
