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
//! Invariants: a connection is told once that the server is going down; nothing of [`Common`] is borrowed
//! during a wait; a wait may end early, and then the socket is tried again.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use base::{Clock, Nanos, RealClock};
use dispatch::{Interest, Trigger};
use http1::HttpDate;
use http1::server::{Buffers, Context, Wants};

use super::machine::{Lent, Machine};
use super::readiness::{DATE_EVERY, RECEIVE_BYTES, SocketService};
use super::transfer::{Moved, end, move_bytes, send, shut_down};
use crate::accept::Arrived;
use crate::access_log::LoopLog;
use crate::counters::{Counters, LoopCounts, PUBLISH_EVERY};
use crate::settings::LiveSettings;

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

/// What the connections of one kernel thread have in common.
pub struct Common<S> {
    /// Who answers.
    pub service: S,
    /// Time, the same for all threads of a server.
    pub clock: RealClock,
    /// Totals that have not been published.
    pub counts: LoopCounts,
    /// Totals of the protocol that have not been published.
    pub http: http1::server::Counts,
    /// Totals of HTTP/2 alone that have not been published.
    pub http2: http2::Counts,
    /// The access log, if it is kept.
    pub log: Option<LoopLog>,
    settings: LiveSettings,
    buffers: Buffers,
    scratch: Box<[u8]>,
    now: Nanos,
    date: HttpDate,
    dated: Nanos,
    published: Nanos,
    unpublished: bool,
}

impl<S: SocketService> Common<S> {
    /// For a thread that serves so many connections side by side.
    pub fn new(
        service: S,
        settings: LiveSettings,
        log: Option<LoopLog>,
        clock: RealClock,
        side_by_side: usize,
    ) -> Self {
        Common {
            service,
            clock,
            counts: LoopCounts::default(),
            http: http1::server::Counts::default(),
            http2: http2::Counts::default(),
            log,
            settings,
            buffers: Buffers::new(side_by_side.clamp(2, 64), 128 * 1024),
            scratch: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            now: clock.now(),
            date: HttpDate::new(clock.wall()),
            dated: Nanos::ZERO,
            published: Nanos::ZERO,
            unpublished: false,
        }
    }

    /// The totals of this thread, which are going to change and to be published.
    pub fn counting(&mut self) -> &mut LoopCounts {
        self.unpublished = true;
        &mut self.counts
    }

    /// When the totals are to be published; nothing while they are.
    pub fn publish_due(&self) -> Option<Nanos> {
        self.unpublished.then(|| self.published + PUBLISH_EVERY)
    }

    /// Takes the totals since the last time, for whoever adds them up, and hands over log lines.
    pub fn take_totals(&mut self, now: Nanos) -> Counters {
        if let Some(log) = &mut self.log {
            log.flush();
        }
        self.published = now;
        self.unpublished = false;
        Counters {
            loops: std::mem::take(&mut self.counts),
            http: std::mem::take(&mut self.http),
            http2: std::mem::take(&mut self.http2),
            ..Counters::default()
        }
    }

    /// Begins a turn of a connection: reads the time, and lends what its machine works with.
    pub(super) fn turn(&mut self, peer: Option<SocketAddr>) -> Lent<'_, S> {
        self.now = self.clock.now();
        self.settings.refresh();
        self.unpublished = true;
        if self.now - self.dated >= DATE_EVERY {
            let wall = self.clock.wall();
            self.date = HttpDate::new(wall);
            self.dated = self.now;
            if let Some(log) = &mut self.log {
                log.wall = wall;
            }
        }
        let log = self.log.as_mut().map(|log| {
            log.peer = peer;
            log as &mut dyn http1::server::Log
        });
        let context = Context {
            service: &mut self.service,
            settings: &self.settings,
            buffers: &mut self.buffers,
            date: &self.date,
            counts: &mut self.http,
            log,
            now: self.now,
        };
        Lent { context, scratch: &mut self.scratch, counts: &mut self.counts, http2: &mut self.http2 }
    }
}

/// Serves a connection until it ends. Blocks, in `waiter` alone.
pub fn serve<S: SocketService, W: Waiter>(arrived: Arrived, common: &RefCell<Common<S>>, waiter: &mut W) {
    let mut machine = Machine::new(arrived.at, &common.borrow().settings);
    let Arrived { socket, peer, at: _, slot } = arrived;
    let socket = Arc::new(socket);
    let (mut told, mut woken) = (false, Woken::Ready);
    loop {
        let drain_until = waiter.drain_until();
        let going_down = drain_until.is_some() && !std::mem::replace(&mut told, drain_until.is_some());
        let moved = turn::<S, W>(&socket, peer, &mut machine, common, going_down, woken);
        let interest = match machine.wants() {
            _ if matches!(moved, Moved::Broken) => {
                common.borrow_mut().counts.broken += 1;
                break;
            }
            Wants::Close => {
                common.borrow_mut().counts.reclaimed += u64::from(woken == Woken::GiveWay);
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
        if drain_until.is_some_and(|until| common.borrow().now >= until) {
            common.borrow_mut().counts.cut_off_at_shutdown += 1;
            break;
        }
        match moved {
            Moved::TurnOver => common.borrow_mut().counts.limit_turn += 1,
            Moved::NoMemory => common.borrow_mut().counts.no_memory += 1,
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
    let mut common = common.borrow_mut();
    end(socket.as_fd(), &mut machine, &mut common.turn(peer));
    common.counts.closed += 1;
    drop(common);
    waiter.closing(socket.as_fd());
    // The descriptor before the slot: whoever gets the slot needs one.
    drop(socket);
    drop(slot);
}

/// Does what can be done without waiting.
fn turn<S: SocketService, W: Waiter>(
    socket: &Arc<OwnedFd>,
    peer: Option<SocketAddr>,
    machine: &mut Machine,
    common: &RefCell<Common<S>>,
    going_down: bool,
    woken: Woken,
) -> Moved {
    let mut common = common.borrow_mut();
    let mut lent = common.turn(peer);
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
