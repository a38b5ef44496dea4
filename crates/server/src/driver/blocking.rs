//! The blocking driver: serves one connection from its first byte to its end, and sleeps in between.
//!
//! ```text
//!   serve:  move bytes ──> wants to receive, to transmit, a pause ──> wait ──┐
//!              ^   |                                                         |
//!              |   └──> wants to be closed: the end                          |
//!              └─── ready, deadline, to give way, or going down <────────────┘
//! ```
//!
//! The serving thread, a kernel thread or a user-level one, sleeps only in its [`Waiter`]. It tries a socket before it
//! waits for it, and every wait has a deadline. Apache's run-time library blocks in the same way. Neither a deadline
//! nor a shutdown could end a blocking read(2).
//!
//! Owns the life of a connection. Does not accept, and knows no other connection.
//!
//! Invariants: a connection is told once that the server is shutting down; nothing of the [`Lender`] is borrowed during
//! a wait; a wait may end early, and then the socket is tried again.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use base::Nanos;
use connection::transfer::{Moved, end, move_bytes, send, shut_down};
use connection::{Machine, SocketService};
use dispatch::{Interest, Trigger};
use http_semantics::server::Wants;
use overload::law::Sessions;
use sys::readiness::poll::{PollFd, bits};

use super::lender::Lender;
use crate::connections::accept::Arrived;

/// The terms of a wait for a connection.
#[derive(Clone, Copy, Debug)]
pub struct Awaited<'a> {
    /// The socket.
    pub socket: &'a Arc<OwnedFd>,
    /// The wanted readiness: readable or writable. [`Interest::None`] waits for the time, not for the socket.
    pub interest: Interest,
    /// The time when the wait ends in any case.
    pub until: Nanos,
    /// The connection has been told that the server is shutting down.
    pub told: bool,
    /// The time from which the connection counts as idle if nothing arrives; [`Nanos::MAX`] while it is in use.
    pub idle_from: Nanos,
}

impl Awaited<'_> {
    /// The socket's entry in a set of poll(2). A wait for the time has none, which poll(2) ignores: it would report a
    /// socket that has failed again and again.
    pub fn watched(&self) -> PollFd {
        match self.interest {
            Interest::None => PollFd::new(-1, 0),
            interest => {
                PollFd::new(self.socket.as_raw_fd(), if interest.writes() { bits::OUT } else { bits::IN })
            }
        }
    }
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The socket may be ready, or the wait has reached its deadline.
    Ready,
    /// The connection is idle and must make room for another.
    GiveWay,
    /// The same, and the receiving side of the socket has been shut down for it.
    Reclaimed,
}

/// The way in which a thread sleeps.
pub trait Waiter {
    /// The triggering of waits: level, or edge for waits that end only when a socket becomes ready.
    const TRIGGER: Trigger;

    /// Returns the time when every connection is cut off; `None` before the shutdown.
    fn drain_until(&self) -> Option<Nanos>;

    /// Sleeps until the socket may be ready, the time is over, the connection must give way, or the server begins to
    /// shut down.
    fn wait(&mut self, awaited: Awaited<'_>) -> Woken;

    /// Returns the instructions of overload control.
    fn sessions(&self) -> Sessions;

    /// Lets other threads run, because this connection has used up its turn.
    fn pause(&mut self);

    /// Notes that the socket is about to be closed.
    fn closing(&mut self, socket: BorrowedFd<'_>);
}

/// Serves a connection until it ends. Blocks, in `waiter` alone.
pub fn serve<S: SocketService, W: Waiter>(mut arrived: Arrived, lender: &RefCell<Lender<S>>, waiter: &mut W) {
    let mut machine = begin(&mut arrived, &mut lender.borrow_mut());
    let Arrived { socket, slot, .. } = arrived;
    let socket = Arc::new(socket);
    let (mut told, mut woken) = (false, Woken::Ready);
    let mut sessions = waiter.sessions();
    loop {
        let drain_until = waiter.drain_until();
        let going_down = drain_until.is_some() && !std::mem::replace(&mut told, drain_until.is_some());
        let begun = Begun { sessions, going_down, woken };
        let moved = turn::<S, W>(&socket, &mut machine, &mut lender.borrow_mut(), begun);
        let interest = match machine.wants() {
            _ if matches!(moved, Moved::Broken) => {
                lender.borrow_mut().counts.peers.broken += 1;
                break;
            }
            Wants::Close => {
                lender.borrow_mut().counts.reclaimed += u64::from(woken == Woken::GiveWay);
                break;
            }
            Wants::Receive => Interest::Read,
            Wants::Transmit => Interest::Write,
            Wants::Pause => Interest::None,
            Wants::Resume => unreachable!("who answers a thread's connection waits by itself"),
            Wants::ShutdownThenReceive => {
                shut_down(socket.as_fd(), &mut machine);
                continue;
            }
        };
        if drain_until.is_some_and(|until| lender.borrow().now() >= until) {
            let mut lender = lender.borrow_mut();
            // After a hand-over, its client had the whole drain time for another request.
            let has_finished =
                lender.settings.custody().is_passed_on() && machine.idle_from() <= lender.now();
            lender.counts.cut_off_at_shutdown += u64::from(!has_finished);
            break;
        }
        match moved {
            Moved::TurnOver => lender.borrow_mut().counts.limit_turn += 1,
            Moved::NoMemory => lender.borrow_mut().counts.peers.no_memory += 1,
            Moved::AsFarAsPossible | Moved::Broken => {
                let until = machine.deadline().min(drain_until.unwrap_or(Nanos::MAX));
                let idle_from = machine.idle_from();
                woken = waiter.wait(Awaited { socket: &socket, interest, until, told, idle_from });
                let may_receive = interest == Interest::Read;
                sessions = if may_receive { waiter.sessions() } else { Sessions::default() };
                continue;
            }
        }
        waiter.pause();
    }
    let mut lender = lender.borrow_mut();
    let client = machine.client();
    end(socket.as_fd(), &mut machine, &mut lender.turn(client));
    lender.counts.closed += 1;
    drop(lender);
    waiter.closing(socket.as_fd());
    // The descriptor closes before the slot comes free, because the slot's next owner needs a descriptor.
    drop(socket);
    drop((slot, machine));
}

/// The circumstances in which a turn begins.
struct Begun {
    /// The instructions of overload control, for a turn that may bring bytes.
    sessions: Sessions,
    /// The server has just begun to shut down.
    going_down: bool,
    woken: Woken,
}

/// Makes the machine of a connection by the settings in force.
fn begin<S: SocketService>(arrived: &mut Arrived, lender: &mut Lender<S>) -> Machine {
    lender.begin_turn();
    arrived.machine(&lender.settings)
}

/// Does the work that needs no waiting.
fn turn<S: SocketService, W: Waiter>(
    socket: &Arc<OwnedFd>,
    machine: &mut Machine,
    lender: &mut Lender<S>,
    Begun { sessions, going_down, woken }: Begun,
) -> Moved {
    let socket = socket.as_fd();
    lender.obey(sessions, socket, machine);
    let mut lent = lender.turn(machine.client());
    if woken == Woken::Reclaimed {
        machine.was_shut();
    }
    // A pause ends before the bytes, because those that came in it are received behind the response.
    if machine.wants() == Wants::Pause {
        machine.expire(&mut lent);
    }
    let moved = move_bytes(socket, machine, &mut lent, true, W::TRIGGER);
    // Requests that had arrived were answered before this.
    if going_down {
        machine.drain(&mut lent);
    }
    if woken == Woken::GiveWay {
        machine.give_way(&mut lent);
    }
    // The deadline is checked after the bytes: a connection is not late because it waited for its thread.
    let is_late = lent.context.now >= machine.deadline();
    match moved {
        Moved::Broken => return moved,
        Moved::TurnOver | Moved::NoMemory if !is_late => return moved,
        _ if is_late => machine.expire(&mut lent),
        _ => {}
    }
    // Under TLS a closing connection may have an alert to send.
    send(socket, machine, &mut lent)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn wait_for_the_time_ignores_a_failed_socket() {
        let (server, client) = UnixStream::pair().unwrap();
        drop(client);
        let socket = Arc::new(OwnedFd::from(server));
        for (interest, reported) in [(Interest::Read, 1), (Interest::Write, 1), (Interest::None, 0)] {
            let (until, told, idle_from) = (Nanos::MAX, true, Nanos::MAX);
            let awaited = Awaited { socket: &socket, interest, until, told, idle_from };
            let mut set = [awaited.watched()];
            assert_eq!(
                sys::readiness::poll::wait(&mut set, Some(Nanos::ZERO)).unwrap(),
                reported,
                "{interest:?}"
            );
        }
    }
}
