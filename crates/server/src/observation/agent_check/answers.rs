//! The connections of the agent port: each gets one line and ends.
//!
//! ```text
//!   accepted ──line, end of sending──> ending ──peer's end, or 1 s, or 4 KiB──> closed
//! ```
//!
//! The loop ignores a client's bytes, but it reads them: closing a socket with unread bytes sends a reset, which may
//! overtake the line.
//!
//! A load balancer counts as told when it closes its side, because it acts on the line first. A line that was only
//! sent may still be in flight when the server ends.
//!
//! Invariants: each connection is answered before the next one is accepted, so a silent client delays nobody. At most
//! [`CONNECTIONS`] are ending at once; a new one replaces the oldest. Sending and receiving never block.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use base::{Clock, Nanos, RealClock, lock};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketFlags, acceptfrom_with, recv, send, shutdown,
};
use side_servers::AdminListener;
use sys::errno::{Failure, classify};
use sys::readiness::poll::timespec;
use sys::thread::stop::Stop;

use super::REGULAR;
use super::load::Meter;
use super::weight::Weight;

/// Maximum number of ending connections: several load balancers, each of which asks for several backends.
const CONNECTIONS: usize = 32;
/// The longest time for a client to close its side.
const ENDING: Nanos = Nanos::SECOND;
/// Maximum number of bytes read from a client.
const READ_MOST: usize = 4096;
/// The pause after an accept failed because of a shortage.
const PAUSE: Nanos = Nanos::from_millis(100);
/// Maximum age of an answer that is given again, so that a flood of connections does not read the load each time.
const ANSWER_AGE: Nanos = Nanos::from_millis(100);
/// The time in which the answers say `ready`.
const READY: Nanos = Nanos::from_secs(30);
/// Maximum number of load balancers whose addresses are remembered.
const ASKERS: usize = 64;

/// The shutdown's order to answer `drain`, and the report that the load balancers were told. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    asked: Arc<AtomicBool>,
    /// True once every regular asker has been told.
    told: Arc<(Mutex<bool>, Condvar)>,
}

impl Drain {
    /// Asks the loop to say `drain`. The loop notices when it wakes.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Blocks until every regular asker has been told, at most for this time.
    pub fn wait(&self, patience: Nanos) {
        let (told, changed) = &*self.told;
        let told = lock(told);
        // Without an answer in time, connections of a load balancer that was not told are refused.
        drop(changed.wait_timeout_while(told, Duration::from_nanos(patience.0), |told| !*told));
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    fn done(&self) {
        let (told, changed) = &*self.told;
        *lock(told) = true;
        changed.notify_all();
    }
}

/// A connection that has its answer.
struct Ending {
    socket: OwnedFd,
    until: Nanos,
    read: usize,
    /// The load balancer that this connection tells to drain the server.
    drains: Option<IpAddr>,
}

/// A load balancer that has asked, by its address.
struct Asker {
    address: IpAddr,
    at: Nanos,
    knows: bool,
}

/// The loop of the agent port.
pub struct AnswerLoop {
    listener: AdminListener,
    stop: Stop,
    drain: Drain,
    meter: Meter,
    weight: Weight,
    evicted: Arc<AtomicU64>,
    started: Nanos,
    /// The last weight in percent, and its time.
    percent: Option<(u32, Nanos)>,
    endings: VecDeque<Ending>,
    askers: Vec<Asker>,
    paused_until: Nanos,
    clock: RealClock,
}

impl AnswerLoop {
    /// Makes a loop without connections.
    pub fn new(
        listener: AdminListener,
        stop: Stop,
        drain: Drain,
        meter: Meter,
        weight: Weight,
        evicted: Arc<AtomicU64>,
        started: Nanos,
    ) -> AnswerLoop {
        AnswerLoop {
            listener,
            stop,
            drain,
            meter,
            weight,
            evicted,
            started,
            percent: None,
            endings: VecDeque::new(),
            askers: Vec::new(),
            paused_until: Nanos::ZERO,
            clock: RealClock::new(),
        }
    }

    /// Answers until the stop. Blocks.
    ///
    /// # Errors
    /// A failure of poll(2), which is a bug of Inrush.
    pub fn run(mut self) -> io::Result<()> {
        loop {
            let accepting = self.wait()?;
            self.stop.woken();
            if self.stop.asked() {
                return Ok(());
            }
            let now = self.clock.now();
            self.end(now);
            if accepting {
                self.accept(now);
            }
            self.tell_when_all_know(now);
        }
    }

    /// Waits for events or a deadline. Returns true if connections wait.
    fn wait(&self) -> io::Result<bool> {
        let now = self.clock.now();
        let paused = now < self.paused_until;
        let stop = self.stop.descriptor();
        let accepting = if paused { PollFlags::empty() } else { PollFlags::IN };
        let mut polled = vec![PollFd::new(&stop, PollFlags::IN)];
        polled.push(PollFd::from_borrowed_fd(self.listener.socket(), accepting));
        polled.extend(self.endings.iter().map(|ending| PollFd::new(&ending.socket, PollFlags::IN)));
        let deadlines = self.endings.iter().map(|ending| ending.until);
        let next = deadlines.chain(paused.then_some(self.paused_until)).min().unwrap_or(Nanos::MAX);
        match poll(&mut polled, Some(&timespec(next.saturating_sub(now)))) {
            Ok(_) | Err(Errno::INTR) => Ok(!polled[1].revents().is_empty()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Answers waiting connections, at most [`CONNECTIONS`] of them.
    fn accept(&mut self, now: Nanos) {
        for _ in 0..CONNECTIONS {
            match acceptfrom_with(self.listener.socket(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((socket, peer)) => self.answer(socket, peer, now),
                Err(errno) => match classify(&errno.into()) {
                    Failure::WouldBlock => return,
                    Failure::Retry | Failure::PeerGone => {}
                    _ => {
                        self.endings.clear();
                        self.paused_until = now + PAUSE;
                        return;
                    }
                },
            }
        }
    }

    fn answer(&mut self, socket: OwnedFd, peer: Option<SocketAddrAny>, now: Nanos) {
        let drains = self.drain.is_asked();
        let line = if drains { "drain\n".to_owned() } else { self.up(now) };
        // The buffer of a new socket has room for a line. A failure means that the peer is gone.
        if send(&socket, line.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) != Ok(line.len()) {
            return;
        }
        let peer = peer.and_then(|peer| std::net::SocketAddr::try_from(peer).ok());
        let address = peer.map(|peer| peer.ip());
        if let Some(address) = address {
            self.note(address, now);
        }
        let drains = address.filter(|_| drains);
        if shutdown(&socket, Shutdown::Write).is_err() {
            // Load balancers reset the connection once they have read the line.
            note_drain_known(&mut self.askers, drains);
            return;
        }
        if self.endings.len() == CONNECTIONS {
            self.endings.pop_front();
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        self.endings.push_back(Ending { socket, until: now + ENDING, read: 0, drains });
    }

    fn up(&mut self, now: Nanos) -> String {
        let is_fresh = |(_, at): &(u32, Nanos)| now.saturating_sub(*at) < ANSWER_AGE;
        let (percent, _) = match self.percent.filter(is_fresh) {
            Some(fresh) => fresh,
            None => *self.percent.insert((self.weight.report(now, &self.meter.read(now).signals), now)),
        };
        let ready = if now.saturating_sub(self.started) < READY { "ready " } else { "" };
        format!("{ready}up {percent}%\n")
    }

    /// Remembers an asker. It replaces the oldest one when the list is full.
    fn note(&mut self, address: IpAddr, at: Nanos) {
        let mut knows = false;
        self.askers.retain(|known| {
            let is_same = known.address == address;
            knows |= is_same && known.knows;
            !is_same && at.saturating_sub(known.at) < REGULAR
        });
        if self.askers.len() == ASKERS {
            self.askers.remove(0);
        }
        self.askers.push(Asker { address, at, knows });
    }

    /// Closes the connections whose peer has closed its side, and those whose time or bytes are used up.
    fn end(&mut self, now: Nanos) {
        let askers = &mut self.askers;
        self.endings.retain_mut(|ending| {
            let goes_on = ending.goes_on(now);
            if !goes_on {
                note_drain_known(askers, ending.drains);
            }
            goes_on
        });
    }

    fn tell_when_all_know(&mut self, now: Nanos) {
        let all = |asker: &Asker| asker.knows || now.saturating_sub(asker.at) >= REGULAR;
        if self.drain.is_asked() && self.askers.iter().all(all) {
            self.drain.done();
        }
    }
}

/// Notes that the asker at this address knows of the drain.
fn note_drain_known(askers: &mut [Asker], address: Option<IpAddr>) {
    if let Some(asker) = askers.iter_mut().find(|asker| Some(asker.address) == address) {
        asker.knows = true;
    }
}

impl Ending {
    /// Reads and drops the client's bytes. Returns false at their end, or when the time or the bytes are used up.
    fn goes_on(&mut self, now: Nanos) -> bool {
        let mut scratch = [0; 512];
        while now < self.until && self.read < READ_MOST {
            match recv(&self.socket, &mut scratch, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((read, _)) => self.read += read,
                Err(errno) => {
                    return matches!(classify(&errno.into()), Failure::WouldBlock | Failure::Retry);
                }
            }
        }
        false
    }
}
