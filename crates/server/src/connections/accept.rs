//! Accepts connections by a strategy: the number of connections per phase, and the response to a shortage.
//!
//! The strategy is that of Brecht 2004 (section 3). A ready listener is accepted from until the *accept-limit*, an
//! empty queue, or a shortage of room. The accept rate is the phases per second times the mean connections per
//! phase (equation 1). Both are counted ([`phase`]).
//!
//! At the connection limit, or when no descriptor is left (EMFILE, ENFILE), an acceptor tries in this order:
//!
//! ```text
//!   no room ──> reclaim: the connection that has been idle longest is closed ──> accept
//!      |                                   (the loop's, or another's that shares the limit)
//!      | none is idle
//!      v
//!   turn away: accept beyond the limit, hand over to be answered 503 ([`refusals`](crate::connections::refusals))
//!      |
//!      | no descriptor at all, or too many refusals at once
//!      v
//!   pause: leave the listener alone, for a delay that doubles until an accept succeeds
//! ```
//!
//! The refusals hold a reserve descriptor, which lets an acceptor turn a connection away when no other descriptor is
//! left. An acceptor without refusals, such as that of a worker process of mp, admits one connection with a reserve
//! descriptor of its own. At the connection limit, an acceptor holds one accepted connection, the newcomer, until there
//! is room.
//!
//! A client at one of its limits ([`clients`](connection::clients)) is refused before the acceptor looks for room, so its
//! connection reclaims no other.
//!
//! Owns the accept calls. Does not own connections: the caller of an acceptor reclaims its own idle ones.

mod limit;
mod phase;

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use base::Nanos;
use connection::clients::{Admission, Clients};
use connection::{LiveSettings, Machine};
use rustix::io::Errno;
use rustix::net::{SocketFlags, getpeername, sockopt};
use sys::errno::{Failure, classify};

use crate::connections::refusals::{Refusals, TurnedAway};
use crate::connections::slots::{Share, Slot};
use crate::ground::counters::LoopCounts;
use crate::ground::listener::Listener;
pub use limit::{AcceptLimit, LiveLimit};
pub use phase::{Look, Phase, PhaseEnd, Ready};

const FIRST_PAUSE: Nanos = Nanos::MILLISECOND;
const LONGEST_PAUSE: Nanos = Nanos::SECOND;
/// Delay between asking for a connection to be closed and looking for room again. Closing takes its owner some 50 us.
pub const RECLAIM_PAUSE: Nanos = Nanos::MILLISECOND;

/// Pending network errors that one accept skips; each is a connection that died in the queue.
const MOST_DEAD: u32 = 64;

/// An accepted connection, ready to be served.
#[derive(Debug)]
pub struct Arrived {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// The client's address.
    pub peer: Option<SocketAddr>,
    /// The time of the accept.
    pub at: Nanos,
    /// The connection's slot, returned when the connection ends.
    pub slot: Slot,
    /// The result of checking the client's limits.
    pub admission: Admission,
}

impl Arrived {
    /// Makes the arrival of a connection that another process has accepted, even beyond the limit.
    pub fn passed(socket: OwnedFd, at: Nanos, share: &Share) -> Arrived {
        let peer = peer_of(&socket);
        Arrived { socket, peer, at, slot: share.take_beyond(), admission: Admission::Free }
    }

    /// Makes the machine of the connection. It takes over the admission of the client.
    pub fn machine(&mut self, settings: &LiveSettings) -> Machine {
        let admission = std::mem::take(&mut self.admission);
        Machine::new(&self.socket, self.peer, self.at, admission, settings)
    }
}

/// Returns the client's address of a connection, if it still has one.
pub fn peer_of(socket: &OwnedFd) -> Option<SocketAddr> {
    getpeername(socket).ok().flatten().and_then(|peer| peer.try_into().ok())
}

/// The resource that is missing for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// The connection limit is reached.
    Connections,
    /// The process or the machine has no descriptor left.
    Descriptors,
}

/// The result of one accept.
#[derive(Debug)]
pub enum Accepted {
    /// A connection was accepted.
    Connection(Arrived),
    /// The queue is empty.
    Empty,
    /// The queue held only dead connections, [`MOST_DEAD`] of them; there may be more.
    Dead,
    /// A connection was refused because its client has reached a limit.
    TurnedAway,
    /// A connection waits, held by the acceptor or in the queue, and there is no room for it.
    NoRoom(Short),
    /// The accept failed for another shortage: leave the listener alone until this time.
    Pause(Nanos),
}

impl Accepted {
    /// Returns the connection, or the look that an accept without one makes of a phase.
    ///
    /// # Errors
    /// The look.
    pub fn or_look(self) -> Result<Arrived, Look> {
        Err(match self {
            Accepted::Connection(arrived) => return Ok(arrived),
            Accepted::TurnedAway => Look::TurnedAway,
            Accepted::Empty => Look::Empty,
            Accepted::Dead => Look::Dead,
            Accepted::NoRoom(short) => Look::Stop(PhaseEnd::NoRoom(short)),
            Accepted::Pause(until) => Look::Stop(PhaseEnd::Pause(until)),
        })
    }
}

/// An accepted connection without a slot.
struct Newcomer {
    socket: OwnedFd,
    peer: Option<SocketAddr>,
    /// The result of checking the client's limits; `None` before the check.
    admission: Option<Admission>,
}

/// Accepts by one strategy for one loop or thread.
pub struct Acceptor {
    /// The most connections of a phase.
    pub limit: LiveLimit,
    /// The connection limit.
    pub share: Share,
    /// Answers the connections that are turned away; without it, they wait in the queue.
    refusals: Option<Refusals>,
    /// Released to accept one connection when no other descriptor is left. `None` with refusals, which hold their
    /// own.
    reserve: Option<OwnedFd>,
    /// The limits of each client, if there are any.
    clients: Option<Clients>,
    /// An accepted connection without a slot.
    newcomer: Option<Newcomer>,
    /// Connections refused or turned away since the last [`Acceptor::take_refused`].
    refused: u64,
    pause: Nanos,
    ready: Ready,
}

impl Acceptor {
    /// Makes an acceptor without a newcomer.
    pub fn new(limit: LiveLimit, share: Share, refusals: Option<Refusals>) -> Acceptor {
        let mut this = Acceptor {
            limit,
            share,
            refusals,
            reserve: None,
            clients: None,
            newcomer: None,
            refused: 0,
            pause: FIRST_PAUSE,
            ready: Ready::default(),
        };
        this.fill_reserve();
        this
    }

    /// Refuses connections of clients at their limits.
    pub fn limited_by(self, clients: Option<Clients>) -> Acceptor {
        Acceptor { clients, ..self }
    }

    fn fill_reserve(&mut self) {
        if self.refusals.is_none() && self.reserve.is_none() {
            self.reserve = File::open("/dev/null").map(OwnedFd::from).ok();
        }
    }

    /// Makes another acceptor with the same strategy, within the same limit.
    pub fn another(&self) -> Acceptor {
        Acceptor::new(self.limit.clone(), self.share.clone(), self.refusals.clone())
            .limited_by(self.clients.clone())
    }

    /// Takes one connection from the queue. Never blocks.
    pub fn accept(&mut self, listener: &Listener, now: Nanos, counts: &mut LoopCounts) -> Accepted {
        let is_new = self.newcomer.is_none();
        if is_new {
            match self.take(listener, counts) {
                Ok(Some((socket, peer))) => {
                    self.fill_reserve();
                    self.offer(socket, peer);
                }
                Ok(None) => return Accepted::Dead,
                // The parent process has shut the inherited listener down, so the stop follows.
                Err(Errno::INVAL) => return Accepted::Pause(now + self.next_pause()),
                Err(errno) => match classify(&errno.into()) {
                    Failure::WouldBlock => return Accepted::Empty,
                    // The kernel asks for a descriptor before it looks into the queue.
                    Failure::NoDescriptor if !listener.somebody_waits() => return Accepted::Empty,
                    Failure::NoDescriptor if self.reserve.take().is_some() => {
                        counts.no_descriptor += 1;
                        return self.accept(listener, now, counts);
                    }
                    Failure::NoDescriptor => {
                        counts.no_descriptor += 1;
                        return Accepted::NoRoom(Short::Descriptors);
                    }
                    _ => {
                        counts.accept_errors += 1;
                        return Accepted::Pause(now + self.next_pause());
                    }
                },
            }
        }
        if self.has_newcomer_refused(now, counts) {
            return Accepted::TurnedAway;
        }
        // The reserve comes first: without it other clients get no answer. Room was made for a
        // held newcomer already.
        if is_new && self.refusals.as_ref().is_some_and(|refusals| !refusals.has_reserve()) {
            counts.no_descriptor += 1;
            return Accepted::NoRoom(Short::Descriptors);
        }
        match self.share.take() {
            Some(slot) => Accepted::Connection(self.arrived(now, slot).expect("there is a newcomer")),
            None => Accepted::NoRoom(Short::Connections),
        }
    }

    /// Holds a connection that the kernel has accepted by itself. The next accept returns it.
    pub fn offer(&mut self, socket: OwnedFd, peer: Option<SocketAddr>) {
        self.pause = FIRST_PAUSE;
        self.newcomer = Some(Newcomer { socket, peer, admission: None });
    }

    /// Checks the limits of the newcomer's client, at most once. Returns true if the connection was refused.
    fn has_newcomer_refused(&mut self, now: Nanos, counts: &mut LoopCounts) -> bool {
        let Some(newcomer) = self.newcomer.as_mut().filter(|newcomer| newcomer.admission.is_none()) else {
            return false;
        };
        let clients = self.clients.as_ref();
        match clients
            .map_or(Admission::Free, |clients| clients.admit_peer(newcomer.peer, now, &mut counts.peers))
        {
            Admission::Refused => {
                self.refused += 1;
                self.refuse_newcomer(counts);
                true
            }
            admission => {
                newcomer.admission = Some(admission);
                counts.limit_connections += u64::from(self.share.is_full());
                false
            }
        }
    }

    /// Refuses the newcomer: has it answered 429, or resets it.
    fn refuse_newcomer(&mut self, counts: &mut LoopCounts) {
        let Some(Newcomer { socket, peer, .. }) = self.newcomer.take() else { return };
        let resets = self.clients.as_ref().is_some_and(Clients::resets);
        match self.refusals.as_ref().filter(|refusals| !resets && refusals.has_room_for_refused_clients()) {
            Some(refusals) => refusals.take(TurnedAway { socket, peer, admission: Admission::Refused }),
            None => {
                counts.peers.client_refusals_unanswered += 1;
                // Without the option the close resets as well, if the client has sent anything.
                let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
            }
        }
    }

    /// Returns the number of connections refused for their client's limits, or turned away, since the last call.
    /// Overload control needs it, because these connections have left the accept queue.
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// Tells whether the acceptor holds a connection that waits for room.
    pub fn has_newcomer(&self) -> bool {
        self.newcomer.is_some()
    }

    fn arrived(&mut self, now: Nanos, slot: Slot) -> Option<Arrived> {
        let Newcomer { socket, peer, admission } = self.newcomer.take()?;
        Some(Arrived { socket, peer, at: now, slot, admission: admission.unwrap_or_default() })
    }

    /// Takes the newcomer, even beyond the limit: a server that shuts down still serves it.
    pub fn last_newcomer(&mut self, now: Nanos) -> Option<Arrived> {
        let slot = self.share.take_beyond();
        self.arrived(now, slot)
    }

    /// Answers one connection 503: the newcomer, or the next connection in the queue. Never blocks.
    pub fn turn_away(
        &mut self,
        listener: &Listener,
        short: Short,
        now: Nanos,
        counts: &mut LoopCounts,
    ) -> Look {
        let pause = |this: &mut Acceptor| Look::Stop(PhaseEnd::Pause(now + this.next_pause()));
        let Some(refusals) = self.refusals.clone().filter(Refusals::has_room) else { return pause(self) };
        let newcomer = self.newcomer.take().map(|newcomer| (newcomer.socket, newcomer.peer));
        if short == Short::Descriptors && newcomer.is_none() {
            refusals.use_reserve();
        }
        match newcomer.map_or_else(|| self.take(listener, counts), |it| Ok(Some(it))) {
            Ok(Some((socket, peer))) => {
                self.pause = FIRST_PAUSE;
                self.refused += 1;
                counts.turned_away += 1;
                refusals.take(TurnedAway { socket, peer, admission: Admission::Free });
                Look::TurnedAway
            }
            nothing => {
                refusals.fill_reserve();
                match nothing {
                    Ok(_) => Look::Dead,
                    Err(Errno::AGAIN) => Look::Empty,
                    Err(_) => pause(self),
                }
            }
        }
    }

    /// Accepts past connections that died in the queue; returns `None` after [`MOST_DEAD`] of them.
    fn take(
        &self,
        listener: &Listener,
        counts: &mut LoopCounts,
    ) -> Result<Option<(OwnedFd, Option<SocketAddr>)>, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..MOST_DEAD {
            match rustix::net::acceptfrom_with(&listener.socket, flags) {
                Ok((socket, peer)) => return Ok(Some((socket, peer.and_then(|peer| peer.try_into().ok())))),
                Err(errno) => match classify(&errno.into()) {
                    Failure::Retry => {}
                    Failure::PeerGone => counts.aborted_in_queue += 1,
                    _ => return Err(errno),
                },
            }
        }
        Ok(None)
    }

    /// Runs a whole accept phase for a thread that serves its own connections: at most accept-limit connections, from
    /// each listener in turn.
    pub fn phase(
        &mut self,
        listeners: &[Listener],
        now: Nanos,
        counts: &mut LoopCounts,
        batch: &mut Vec<Arrived>,
    ) -> PhaseEnd {
        let phase = self.look_at_all(listeners, |this, index| {
            // Connections beyond this thread's capacity are left to others.
            if this.share.is_full() && !batch.is_empty() {
                return Look::Stop(PhaseEnd::AtLimit);
            }
            match this.accept(&listeners[index], now, counts).or_look() {
                Ok(arrived) => {
                    batch.push(arrived);
                    Look::Taken
                }
                Err(look) => look,
            }
        });
        phase.count(counts);
        phase.end
    }

    /// Runs an accept phase that turns every connection away.
    pub fn turn_away_phase(
        &mut self,
        listeners: &[Listener],
        short: Short,
        now: Nanos,
        counts: &mut LoopCounts,
    ) -> PhaseEnd {
        self.look_at_all(listeners, |this, index| this.turn_away(&listeners[index], short, now, counts)).end
    }

    fn look_at_all(
        &mut self,
        listeners: &[Listener],
        mut look: impl FnMut(&mut Acceptor, usize) -> Look,
    ) -> Phase {
        let mut ready = std::mem::take(&mut self.ready);
        ready.report_all(listeners.len());
        let phase = ready.phase(self.limit.get().of_a_thread(), |index| look(self, index));
        self.ready = ready;
        phase
    }

    /// Empties the accept queues before the listeners are closed. Serves the connections, or answers 503 when there
    /// is no room. Counts the connections that it can neither serve nor answer as cut off. Does not touch the queues
    /// of listeners that were passed on to another process.
    pub fn last_phase(
        &mut self,
        listeners: &[Listener],
        now: Nanos,
        counts: &mut LoopCounts,
        batch: &mut Vec<Arrived>,
    ) {
        if Listener::are_passed_on(listeners) {
            return batch.extend(self.last_newcomer(now));
        }
        loop {
            // A phase that has taken connections does not tell a full share from the accept-limit.
            let mut taken = Vec::new();
            let end = match self.phase(listeners, now, counts, &mut taken) {
                PhaseEnd::NoRoom(short) => self.turn_away_phase(listeners, short, now, counts),
                end => end,
            };
            batch.append(&mut taken);
            match end {
                PhaseEnd::AtLimit | PhaseEnd::NoRoom(_) => {}
                PhaseEnd::Empty => return,
                PhaseEnd::Pause(_) => {
                    batch.extend(self.last_newcomer(now));
                    counts.cut_off_at_shutdown += u64::from(Listener::queues(listeners).depth);
                    return;
                }
            }
        }
    }

    /// Returns the time to leave an exhausted resource alone. It doubles until an accept succeeds.
    pub fn next_pause(&mut self) -> Nanos {
        let pause = self.pause;
        self.pause = Nanos((pause.0 * 2).min(LONGEST_PAUSE.0));
        pause
    }
}

#[cfg(test)]
mod tests {
    use base::Limit;

    use super::*;
    use crate::ground::listener::{connect, listen};

    #[test]
    fn last_phase_answers_connections_beyond_the_limit() {
        let listeners = listen("127.0.0.1:0".parse().unwrap(), 8, 1, false).unwrap();
        let _clients = connect(&listeners[0], 5);
        let (share, refusals) = (Share::alone(3), Refusals::new().unwrap());
        let _open = share.take().unwrap();
        let limit = LiveLimit::new(AcceptLimit::Fixed(Limit::AtMost(1)));
        let mut acceptor = Acceptor::new(limit, share, Some(refusals.clone()));
        let (mut counts, mut batch) = (LoopCounts::default(), Vec::new());
        acceptor.last_phase(&listeners, Nanos::ZERO, &mut counts, &mut batch);
        assert_eq!((batch.len(), refusals.len(), acceptor.take_refused()), (2, 3, 3));
        assert_eq!((counts.accepts, counts.turned_away, counts.cut_off_at_shutdown), (2, 3, 0));
        assert!(!listeners[0].somebody_waits());
    }

    #[test]
    fn last_phase_without_refusals_keeps_its_newcomer() {
        let listeners = listen("127.0.0.1:0".parse().unwrap(), 8, 1, false).unwrap();
        let _clients = connect(&listeners[0], 4);
        let limit = LiveLimit::new(AcceptLimit::Fixed(Limit::Infinite));
        let mut acceptor = Acceptor::new(limit, Share::alone(2), None);
        let (mut counts, mut batch) = (LoopCounts::default(), Vec::new());
        acceptor.last_phase(&listeners, Nanos::ZERO, &mut counts, &mut batch);
        assert_eq!((batch.len(), counts.cut_off_at_shutdown), (3, 1));
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let limit = LiveLimit::new(AcceptLimit::Adaptive);
        let mut acceptor = Acceptor::new(limit, Share::alone(1), None);
        let pauses: Vec<Nanos> = (0..12).map(|_| acceptor.next_pause()).collect();
        assert_eq!(pauses[..3], [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4]);
        assert_eq!(pauses[11], LONGEST_PAUSE);
    }
}
