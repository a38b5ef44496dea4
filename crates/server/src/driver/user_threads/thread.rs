//! A user-level thread's own view of itself: accepting, serving, and starting children.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use base::{Clock, Key, Nanos};
use connection::SocketService;
use dispatch::{Interest, Mechanism, Token, Trigger};
use overload::law::Sessions;

use super::{Ask, Child, Shared, Yielder};
use crate::connections::accept::Arrived;
use crate::driver::blocking::{Awaited, Waiter, Woken, serve};
use crate::ground::choices::IdleSessions;

/// The thread that is running.
pub struct UserThread<'a, M, S> {
    pub(super) key: Key,
    pub(super) yielder: &'a Yielder,
    pub(super) shared: Rc<Shared<M, S>>,
    /// The thread has taken other connections, which it serves after this one, and for which it gives this one up.
    pub(super) others_wait: bool,
}

impl<M: Mechanism + 'static, S: SocketService + 'static> UserThread<'_, M, S> {
    /// Takes up to accept-limit connections, and sleeps while there is none. Returns an empty batch when the server
    /// shuts down and nothing is left to serve.
    pub fn accept_n(&mut self) -> Vec<Arrived> {
        let mut batch = Vec::new();
        loop {
            let now = self.shared.lender.borrow().clock.now();
            if self.shared.drain_until.get().is_some() {
                batch.extend(self.shared.leftover.borrow_mut().pop());
                return batch;
            }
            if self.shared.paused_until.get().is_none() {
                self.shared.accept_phase(now, &mut batch);
                if !batch.is_empty() {
                    return batch;
                }
            }
            self.yielder.suspend(Ask::Connections);
        }
    }

    /// Serves a connection to its end.
    pub fn serve(&mut self, arrived: Arrived) {
        let shared = Rc::clone(&self.shared);
        serve(arrived, &shared.lender, self);
    }

    /// Serves connections to their ends, one after another.
    pub fn serve_serially(&mut self, batch: Vec<Arrived>) {
        let mut batch = batch.into_iter();
        while let Some(arrived) = batch.next() {
            self.others_wait = batch.len() > 0 && self.shared.idle_sessions == IdleSessions::GiveWay;
            self.serve(arrived);
        }
    }

    /// Serves connections side by side, each in a child thread, until the last one ends.
    pub fn serve_interleaved(&mut self, batch: Vec<Arrived>) {
        let siblings = Rc::new(Cell::new(batch.len()));
        for arrived in batch {
            let (shared, parent, siblings) = (Rc::clone(&self.shared), self.key, Rc::clone(&siblings));
            let child = Child { shared, parent, siblings };
            self.spawn(move |thread| {
                let _child = child;
                thread.serve(arrived);
            });
        }
        self.yielder.suspend(Ask::Children);
    }

    /// Starts another thread, which runs after the threads that are runnable now. Without memory for its stack, drops
    /// and counts it, and closes the connections that it was to serve.
    pub fn spawn(&self, body: impl FnOnce(&mut UserThread<'_, M, S>) + 'static) {
        self.shared.spawned.borrow_mut().push(Box::new(body));
    }

    /// Lets the other runnable threads run.
    pub fn let_others_run(&mut self) {
        self.yielder.suspend(Ask::Turn);
    }
}

impl<M: Mechanism + 'static, S: SocketService + 'static> Waiter for UserThread<'_, M, S> {
    const TRIGGER: Trigger = M::CAPABILITIES.trigger;

    fn drain_until(&self) -> Option<Nanos> {
        self.shared.drain_until.get()
    }

    fn wait(&mut self, awaited: Awaited<'_>) -> Woken {
        let Awaited { socket, interest, until, idle_from, .. } = awaited;
        let shared = Rc::clone(&self.shared);
        let now = shared.lender.borrow().clock.now();
        let (may_idle, is_idle) = (idle_from < Nanos::MAX, idle_from <= now);
        if self.others_wait && is_idle {
            return Woken::GiveWay;
        }
        if may_idle {
            shared.idle.borrow_mut().enter(self.key, idle_from);
        } else {
            shared.idle.borrow_mut().leave(self.key);
        }
        let until = if self.others_wait { until.min(idle_from) } else { until };
        // Under edge triggering the mechanism reports an edge once, even if the thread does not wait for that
        // direction. So it asks for both.
        let interest = if Self::TRIGGER == Trigger::Edge { Interest::Both } else { interest };
        shared.dispatcher.borrow_mut().register(socket.as_fd(), Token::from(self.key), interest);
        self.yielder.suspend(Ask::Socket(until));
        // The thread stays in the order, because this wake may find nothing to receive.
        let reclaimed = may_idle && !shared.idle.borrow().has(self.key);
        if reclaimed { Woken::GiveWay } else { Woken::Ready }
    }

    fn sessions(&self) -> Sessions {
        if self.shared.idle_sessions == IdleSessions::Stay {
            return Sessions::default();
        }
        let control = self.shared.control.borrow();
        control.as_ref().map_or_else(Sessions::default, |control| control.instructions(1).sessions)
    }

    fn pause(&mut self) {
        self.shared.idle.borrow_mut().leave(self.key);
        self.let_others_run();
    }

    fn closing(&mut self, socket: BorrowedFd<'_>) {
        self.shared.idle.borrow_mut().leave(self.key);
        self.shared.dispatcher.borrow_mut().closing(socket);
    }
}
