//! The blocking driver: serves one connection from its first byte to its end, and sleeps in between.
//!
//! ```text
//!   serve:  move bytes ──> wants to receive or to transmit ──> wait ──┐
//!              ^   |                                                  |
//!              |   └──> wants to be closed: the end                   |
//!              └─── ready, deadline, to give way, or going down <─────┘
//! ```
//!
//! Whoever serves - a kernel thread or a user-level one - sleeps through its [`Waiter`], and only there. A
//! socket is tried before it is waited for, and a wait has a deadline: that is how Apache's run-time library
//! blocks, too. A read(2) that blocks could be ended neither by a deadline nor by a shutdown.
//!
//! Owns the life of a connection. Does not accept, and does not know who else is served.
//!
//! Invariants: a connection is told once that the server is going down; nothing of the [`Lender`] is borrowed
//! during a wait; a wait may end early, and then the socket is tried again.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use base::Nanos;
use dispatch::{Interest, Trigger};
use http1::server::Wants;

use super::lender::Lender;
use super::machine::Machine;
use super::socket_service::SocketService;
use super::transfer::{Moved, end, move_bytes, send, shut_down};
use crate::accept::Arrived;
use crate::listener::are_passed_on;

/// What a connection is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Awaited<'a> {
    /// The socket.
    pub socket: &'a Arc<OwnedFd>,
    /// That it is readable, or writable.
    pub interest: Interest,
    /// When the wait ends in any case.
    pub until: Nanos,
    /// The connection has been told that the server is going down.
    pub told: bool,
    /// When the connection counts as idle if nothing arrives until then; [`Nanos::MAX`] while it is in use.
    pub idle_from: Nanos,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The socket may be ready, or the time is over.
    Ready,
    /// The connection is idle and is to be closed for another.
    GiveWay,
}

/// How a thread sleeps.
pub trait Waiter {
    /// Whether a wait ends once for what stays ready, or only for what becomes ready.
    const TRIGGER: Trigger;

    /// When every connection is cut off; nothing while the server is not going down.
    fn drain_until(&self) -> Option<Nanos>;

    /// Sleeps until the socket may be ready, the time is over, the connection is to give way, or the server begins to
    /// go down.
    fn wait(&mut self, awaited: Awaited<'_>) -> Woken;

    /// Lets others go first: this connection has used up its turn.
    fn pause(&mut self);

    /// The socket is about to be closed.
    fn closing(&mut self, socket: BorrowedFd<'_>);
}

/// Serves a connection until it ends. Blocks, in `waiter` alone.
pub fn serve<S: SocketService, W: Waiter>(mut arrived: Arrived, lender: &RefCell<Lender<S>>, waiter: &mut W) {
    let mut machine = Machine::new(&mut arrived, &lender.borrow().settings);
    let Arrived { socket, slot, .. } = arrived;
    let socket = Arc::new(socket);
    let (mut told, mut woken) = (false, Woken::Ready);
    loop {
        let drain_until = waiter.drain_until();
        let going_down = drain_until.is_some() && !std::mem::replace(&mut told, drain_until.is_some());
        let moved = turn::<S, W>(&socket, &mut machine, lender, going_down, woken);
        let interest = match machine.wants() {
            _ if matches!(moved, Moved::Broken) => {
                lender.borrow_mut().counts.broken += 1;
                break;
            }
            Wants::Close => {
                lender.borrow_mut().counts.reclaimed += u64::from(woken == Woken::GiveWay);
                break;
            }
            Wants::Receive => Interest::Read,
            Wants::Transmit => Interest::Write,
            Wants::Resume => unreachable!("who answers a thread's connection waits by itself"),
            Wants::ShutdownThenReceive => {
                shut_down(socket.as_fd(), &mut machine);
                continue;
            }
        };
        if drain_until.is_some_and(|until| lender.borrow().now() >= until) {
            let mut lender = lender.borrow_mut();
            // After a hand-over its client had the whole time for another request.
            let has_finished = are_passed_on() && machine.idle_from() <= lender.now();
            lender.counts.cut_off_at_shutdown += u64::from(!has_finished);
            break;
        }
        match moved {
            Moved::TurnOver => lender.borrow_mut().counts.limit_turn += 1,
            Moved::NoMemory => lender.borrow_mut().counts.no_memory += 1,
            Moved::AsFarAsPossible | Moved::Broken => {
                let until = machine.deadline().min(drain_until.unwrap_or(Nanos::MAX));
                woken = waiter.wait(Awaited {
                    socket: &socket,
                    interest,
                    until,
                    told,
                    idle_from: machine.idle_from(),
                });
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
    // The descriptor before the slot: whoever gets the slot needs one.
    drop(socket);
    drop((slot, machine));
}

/// Does what can be done without waiting.
fn turn<S: SocketService, W: Waiter>(
    socket: &Arc<OwnedFd>,
    machine: &mut Machine,
    lender: &RefCell<Lender<S>>,
    going_down: bool,
    woken: Woken,
) -> Moved {
    let mut lender = lender.borrow_mut();
    let mut lent = lender.turn(machine.client());
    let socket = socket.as_fd();
    let moved = move_bytes(socket, machine, &mut lent, true, W::TRIGGER);
    // What has arrived already was answered.
    if going_down {
        machine.drain(&mut lent);
    }
    if woken == Woken::GiveWay {
        machine.give_way(&mut lent);
    }
    // Asked after the bytes: one that waited for its thread while its deadline passed is not at fault.
    let is_late = lent.context.now >= machine.deadline();
    match moved {
        Moved::Broken => return moved,
        Moved::TurnOver | Moved::NoMemory if !is_late => return moved,
        _ if is_late => machine.expire(&mut lent),
        _ => {}
    }
    // Under TLS every end has something to say.
    send(socket, machine, &mut lent)
}
