//! The parent's side: starts workers in numbered places, watches them, and ends them.
//!
//! ```text
//!            start                 ended unasked: counted, logged
//!   empty ───────────> running ─────────────────────────────────> waiting(delay)
//!     ^                  |  ^                                          |
//!     |  ended           v  └──────────────── delay over ──────────────┘
//!     └───────────── retiring                  (cannot be started: delay doubles)
//! ```
//!
//! The delay is [`FIRST_DELAY`] after a worker that lived for [`LONG_LIFE`]. Otherwise it is twice the last one, up
//! to [`LONGEST_DELAY`], so that a worker that dies at once costs little.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Clock, Nanos, RealClock};
use connection::Custody;
use sys::process::{Child, Program, Streams, this_very_program};
use sys::readiness::epoll::{self, Operation, bits};

use super::control::{Control, Kind, Message, PASSED_ON, Received, Sent, in_memory};
use crate::ground::config_text::ConfigText;
use crate::ground::counters::Board;
use crate::ground::error::{ServeError, system};
use crate::ground::instructions::Instructions;
use crate::ground::scoreboard::Scoreboard;
use crate::plan::Plan;

const FIRST_DELAY: Nanos = Nanos::from_millis(100);
const LONGEST_DELAY: Nanos = Nanos::from_secs(10);
/// A worker that lived this long did not die of its start.
const LONG_LIFE: Nanos = Nanos::from_secs(10);
/// A token that is not the number of a place.
const CONFIG_CHANGED: u64 = u64::MAX;

/// The role of a fleet's workers.
#[derive(Clone, Debug)]
pub struct Role {
    /// The architecture's name.
    pub architecture: &'static str,
    /// The word for one of them: `worker`, `helper`.
    pub noun: &'static str,
    /// Maximum number of workers at once.
    pub places: usize,
    /// The names of their service's totals, in order.
    pub service: Vec<&'static str>,
    /// True if they serve connections, and so need certificates and keys under TLS.
    pub serves: bool,
    /// Words of shared memory for each worker, in the architecture's own meaning; zero while the place is empty.
    pub own_words: usize,
}

/// An event of a worker.
#[derive(Debug)]
pub enum Event {
    /// A worker was started in place of a dead one.
    Started(usize),
    /// A worker sent a message.
    Said(usize, Message),
    /// A worker has ended as it was asked to. The place is empty.
    Ended(usize),
    /// A worker has died, or could not be started again. Another attempt follows.
    Died(usize),
}

/// The fleet's counters, for a board that outlives it.
#[derive(Debug, Default)]
struct Totals {
    started: AtomicU64,
    deaths: AtomicU64,
    not_started: AtomicU64,
    cut_off: AtomicU64,
}

enum Place {
    Empty,
    Running(Process),
    Waiting { until: Nanos, delay: Nanos },
}

struct Process {
    child: Child,
    control: Control,
    since: Nanos,
    /// The delay before its start, if it replaced another.
    delay: Option<Nanos>,
    retiring: bool,
}

/// The workers of one parent. All calls must come from one thread that stays, because the kernel kills a thread's
/// children when it ends. Dropping the fleet kills them.
pub struct Fleet {
    role: Role,
    text: ConfigText,
    custody: Custody,
    /// The memory of the accept-limit.
    limit: OwnedFd,
    inherited: Vec<OwnedFd>,
    scoreboard: Arc<Scoreboard>,
    places: Vec<Place>,
    watched: OwnedFd,
    totals: Arc<Totals>,
    clock: RealClock,
    /// True once dead workers are no longer replaced.
    going_down: bool,
}

impl Fleet {
    /// Makes a fleet without workers. Each worker will find `inherited` in the same order.
    ///
    /// # Errors
    /// [`ServeError::System`]: descriptors, memory. [`ServeError::Processes`]: this program cannot start
    /// itself again.
    pub fn new(plan: &Plan, role: Role, inherited: Vec<OwnedFd>) -> Result<Fleet, ServeError> {
        let refusal = || ServeError::Processes { architecture: role.architecture };
        let (text, limit) = plan.text().zip(plan.limit().memory()).ok_or_else(refusal)?;
        let scoreboard = Scoreboard::new(role.places, role.service.clone(), role.own_words)
            .map_err(system("make shared memory"))?;
        let watched = epoll::create().map_err(system("make an interest set"))?;
        let replaced = text.replaced().as_raw_fd();
        epoll::control(&watched, Operation::Add, replaced, bits::IN, CONFIG_CHANGED)
            .map_err(system("watch the configuration"))?;
        Ok(Fleet {
            places: (0..role.places).map(|_| Place::Empty).collect(),
            role,
            text,
            custody: plan.custody().clone(),
            limit,
            inherited,
            scoreboard: Arc::new(scoreboard),
            watched,
            totals: Arc::default(),
            clock: RealClock::new(),
            going_down: false,
        })
    }

    /// Returns the fleet's clock.
    pub fn clock(&self) -> RealClock {
        self.clock
    }

    /// Returns the counters of all workers together; the board outlives the fleet.
    pub fn board(&self) -> Board {
        let (scoreboard, totals) = (Arc::clone(&self.scoreboard), Arc::clone(&self.totals));
        Board::with_live(move |counters| {
            counters.add(&scoreboard.sum());
            let loops = &mut counters.loops;
            loops.workers_started += totals.started.load(Ordering::Relaxed);
            loops.worker_deaths += totals.deaths.load(Ordering::Relaxed);
            loops.workers_not_started += totals.not_started.load(Ordering::Relaxed);
            loops.cut_off_at_shutdown += totals.cut_off.load(Ordering::Relaxed);
        })
    }

    /// Returns the architecture's words of a place.
    pub fn own(&self, place: usize) -> &[AtomicU64] {
        self.scoreboard.own(place)
    }

    /// Returns the open connections of a place, as its worker has last shown them.
    pub fn connections(&self, place: usize) -> u64 {
        self.scoreboard.connections(place)
    }

    /// Returns the number of connections of all workers, present and past, whose first request was refused because it
    /// had waited too long.
    pub fn late_connections(&self) -> u64 {
        self.scoreboard.late_connections()
    }

    /// Replaces the instructions for the open connections of all workers.
    pub fn instruct(&self, instructions: Instructions) {
        self.scoreboard.instruct(instructions);
    }

    /// Tells whether a place has a worker that is not asked to end.
    pub fn runs(&self, place: usize) -> bool {
        matches!(&self.places[place], Place::Running(process) if !process.retiring)
    }

    /// Tells whether a place has a worker that is asked to end.
    pub fn retires(&self, place: usize) -> bool {
        matches!(&self.places[place], Place::Running(process) if process.retiring)
    }

    /// Tells whether any place has a worker, or will get one.
    pub fn any_left(&self) -> bool {
        self.places.iter().any(|place| !matches!(place, Place::Empty))
    }

    /// Tells whether a place has no worker and will get none.
    pub fn is_vacant(&self, place: usize) -> bool {
        matches!(self.places[place], Place::Empty)
    }

    /// Returns the number of places.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Returns a descriptor that is readable when [`Fleet::handle_events`] has work.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }

    /// Returns the time to call [`Fleet::handle_events`] even if nothing is ready.
    pub fn due(&self) -> Option<Nanos> {
        let waiting = self.places.iter().filter_map(|place| match place {
            Place::Waiting { until, .. } => Some(*until),
            _ => None,
        });
        waiting.min()
    }

    /// Starts a worker in an empty place. Returns when its program runs; it may not listen yet.
    ///
    /// # Errors
    /// [`ServeError::System`]: no free process or descriptor.
    pub fn start(&mut self, place: usize) -> Result<(), ServeError> {
        assert!(matches!(self.places[place], Place::Empty), "one worker a place");
        self.start_after(place, None).map_err(system("start a worker process"))
    }

    fn start_after(&mut self, place: usize, delay: Option<Nanos>) -> io::Result<()> {
        self.scoreboard.clear_own(place);
        let (control, theirs) = Control::pair()?;
        let layout = self.scoreboard.layout();
        let name = format!("{} {}", self.role.architecture, self.role.noun);
        let (text, secrets) = self.configuration()?;
        let words = [place as u64, layout.service as u64, layout.own as u64, u64::from(secrets.is_some())]
            .map(u64::to_ne_bytes);
        let mut descriptors = vec![text.as_fd(), self.scoreboard.as_fd(), self.limit.as_fd()];
        descriptors.extend(secrets.as_ref().map(AsFd::as_fd));
        descriptors.extend(self.inherited.iter().map(AsFd::as_fd));
        let start = [words.as_flattened(), name.as_bytes()].concat();
        control.send_as(Kind::Start, &start, &descriptors)?;
        let child = Program::new(this_very_program())
            .called(format!("inrush: {}", self.role.architecture))
            .arguments([self.role.noun, &place.to_string()])
            .reading_from(theirs.as_fd())
            .with_streams(Streams::Output)
            .start()?;
        // From here on only the worker has its end, so its death closes the socket.
        drop(theirs);
        let token = 2 * place as u64;
        epoll::control(&self.watched, Operation::Add, child.end().as_raw_fd(), bits::IN, token)?;
        let socket = control.as_fd().as_raw_fd();
        epoll::control(&self.watched, Operation::Add, socket, bits::IN, token + 1)?;
        let process = Process { child, control, since: self.clock.now(), delay, retiring: false };
        self.places[place] = Place::Running(process);
        self.totals.started.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Handles events, and replaces workers whose delay is over. Blocks only to start a process.
    ///
    /// # Errors
    /// A wait fails, which is a bug of Inrush.
    pub fn handle_events(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        self.handle_events_within(Nanos::ZERO, events)
    }

    fn handle_events_within(&mut self, timeout: Nanos, events: &mut Vec<Event>) -> io::Result<()> {
        let mut ready = [epoll::Event::EMPTY; 64];
        let count = match epoll::wait(&self.watched, &mut ready, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        for event in &ready[..count] {
            match event.data() {
                CONFIG_CHANGED => self.tell_of_change(),
                token if token.is_multiple_of(2) => self.bury(token as usize / 2, events),
                token => self.listen(token as usize / 2, events),
            }
        }
        self.replace_the_dead(events);
        Ok(())
    }

    /// Returns the configuration for workers: the text and, if they need them, the secrets of TLS.
    fn configuration(&self) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
        let secrets = self.text.secrets().filter(|_| self.role.serves);
        Ok((in_memory(self.text.get().as_bytes())?, secrets.as_deref().map(in_memory).transpose()?))
    }

    fn tell_of_change(&mut self) {
        self.text.noticed();
        let Ok((text, secrets)) = self.configuration() else {
            return sys::say!("inrush: no descriptor left to tell workers of the new configuration");
        };
        let memory: Vec<_> = [Some(&text), secrets.as_ref()].into_iter().flatten().map(AsFd::as_fd).collect();
        for (place, process) in self.processes() {
            let cause = match process.control.send_as(Kind::Changed, b"", &memory) {
                // Who is gone is replaced by a worker that has the new configuration.
                Ok(Sent::Yes | Sent::Gone) => continue,
                Ok(Sent::Full) => "it does not listen".to_owned(),
                Err(error) => error.to_string(),
            };
            sys::say!("inrush: {} keeps its configuration: {cause}", self.name(place, process));
        }
    }

    fn processes(&self) -> impl Iterator<Item = (usize, &Process)> {
        self.places.iter().enumerate().filter_map(|(index, place)| match place {
            Place::Running(process) => Some((index, process)),
            _ => None,
        })
    }

    fn name(&self, place: usize, process: &Process) -> String {
        let Role { architecture, noun, .. } = self.role;
        format!("{architecture} {noun} {place} (process {})", process.child.id())
    }

    /// Reads the messages of a worker.
    fn listen(&mut self, place: usize, events: &mut Vec<Event>) {
        // A worker may have been removed already if its message and its end were reported together.
        let Place::Running(process) = &self.places[place] else { return };
        loop {
            match process.control.receive_any() {
                Ok(Received::Message(Kind::Own, message)) => events.push(Event::Said(place, message)),
                Ok(Received::Nothing) => return,
                Ok(Received::End) => break,
                Ok(Received::Message(..)) | Err(_) => {
                    sys::say!("inrush: {} says what nobody understands", self.name(place, process));
                    // Its end is handled like any other.
                    let _ = process.child.kill();
                    break;
                }
            }
        }
        // Its end follows. Until then epoll would report the end of the stream on every wait.
        let socket = process.control.as_fd().as_raw_fd();
        let _ = epoll::control(&self.watched, Operation::Delete, socket, 0, 0);
    }

    /// Handles the end of a worker: reads its last messages, and decides about a successor.
    fn bury(&mut self, place: usize, events: &mut Vec<Event>) {
        self.listen(place, events);
        let Place::Running(process) = &mut self.places[place] else { return };
        let exit = match process.child.wait(Nanos::ZERO) {
            Ok(Some(exit)) => exit,
            Ok(None) => return,
            Err(error) => return sys::say!("inrush: cannot wait for a worker process: {error}"),
        };
        let _ = epoll::control(&self.watched, Operation::Delete, process.child.end().as_raw_fd(), 0, 0);
        let Place::Running(process) = std::mem::replace(&mut self.places[place], Place::Empty) else {
            return;
        };
        let socket = process.control.as_fd().as_raw_fd();
        let _ = epoll::control(&self.watched, Operation::Delete, socket, 0, 0);
        let cut_off = self.scoreboard.vacate(place);
        if process.retiring && exit.status.success() {
            return events.push(Event::Ended(place));
        }
        self.totals.deaths.fetch_add(1, Ordering::Relaxed);
        let (name, why) = (self.name(place, &process), reason(exit.status));
        if process.retiring || self.going_down {
            self.totals.cut_off.fetch_add(cut_off, Ordering::Relaxed);
            sys::say!("inrush: {name} {why}");
            return events.push(Event::Ended(place));
        }
        let lived = self.clock.now() - process.since;
        let delay = if lived >= LONG_LIFE { FIRST_DELAY } else { next_delay(process.delay) };
        self.places[place] = Place::Waiting { until: self.clock.now() + delay, delay };
        sys::say!("inrush: {name} {why}; another is started in {delay}");
        events.push(Event::Died(place));
    }

    fn replace_the_dead(&mut self, events: &mut Vec<Event>) {
        let now = self.clock.now();
        for index in 0..self.places.len() {
            let Place::Waiting { until, delay } = self.places[index] else { continue };
            if until > now {
                continue;
            }
            match self.start_after(index, Some(delay)) {
                Ok(()) => events.push(Event::Started(index)),
                Err(error) => {
                    let delay = next_delay(Some(delay));
                    self.places[index] = Place::Waiting { until: now + delay, delay };
                    self.totals.not_started.fetch_add(1, Ordering::Relaxed);
                    let Role { architecture, noun, .. } = self.role;
                    sys::say!(
                        "inrush: cannot start {architecture} {noun} {index}: {error}; tried again in {delay}"
                    );
                    events.push(Event::Died(index));
                }
            }
        }
    }

    /// Sends a message of the architecture. Never blocks.
    ///
    /// # Errors
    /// The errors of [`Control::send`].
    pub fn send(&self, place: usize, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<Sent> {
        match &self.places[place] {
            Place::Running(process) => process.control.send(bytes, descriptors),
            _ => Ok(Sent::Gone),
        }
    }

    /// Asks a worker to close its longest-idle connection. Returns true if the request was sent.
    pub(super) fn tell_to_reclaim(&self, place: usize) -> bool {
        match &self.places[place] {
            Place::Running(process) => {
                matches!(process.control.send_as(Kind::Reclaim, b"", &[]), Ok(Sent::Yes))
            }
            _ => false,
        }
    }

    /// Asks a worker to finish its work and to end; it is not replaced. A dead worker is not replaced either.
    pub fn retire(&mut self, place: usize) {
        match &mut self.places[place] {
            Place::Empty => {}
            waiting @ Place::Waiting { .. } => *waiting = Place::Empty,
            Place::Running(process) => {
                process.retiring = true;
                let how = if self.custody.is_passed_on() { PASSED_ON } else { b"" };
                match process.control.send_as(Kind::Drain, how, &[]) {
                    Ok(Sent::Yes | Sent::Gone) => {}
                    // The worker has not read for a long time, so it would miss the request to end.
                    Ok(Sent::Full) | Err(_) => drop(process.child.kill()),
                }
            }
        }
    }

    /// Asks all workers to finish their work and to end.
    pub fn drain(&mut self) {
        self.going_down = true;
        (0..self.places.len()).for_each(|place| self.retire(place));
    }

    /// Ends all workers: asks them, kills the remaining ones after `within`, and reports events until the last one is
    /// gone. Blocks.
    ///
    /// # Errors
    /// A wait fails, which is a bug of Inrush.
    pub fn end(&mut self, within: Nanos, mut hear: impl FnMut(Event)) -> io::Result<()> {
        self.drain();
        let until = self.clock.now().saturating_add(within);
        let mut events = Vec::new();
        while self.any_left() {
            let left = until.saturating_sub(self.clock.now());
            if left == Nanos::ZERO {
                self.kill();
            }
            // A killed worker ends soon.
            self.handle_events_within(left.max(Nanos::MILLISECOND), &mut events)?;
            events.drain(..).for_each(&mut hear);
        }
        Ok(())
    }

    /// Kills the remaining workers. Their ends are handled like others.
    pub fn kill(&mut self) {
        for (place, process) in self.processes() {
            if let Err(error) = process.child.kill() {
                sys::say!("inrush: cannot kill {}: {error}", self.name(place, process));
            }
        }
    }
}

fn next_delay(last: Option<Nanos>) -> Nanos {
    last.map_or(FIRST_DELAY, |last| Nanos((last.0 * 2).min(LONGEST_DELAY.0)))
}

/// Describes the end of a process.
fn reason(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => format!("ended: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_bound() {
        let delays = std::iter::successors(Some(next_delay(None)), |last| Some(next_delay(Some(*last))));
        let delays: Vec<u64> = delays.take(9).map(|delay| delay.0 / Nanos::MILLISECOND.0).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    }

    #[test]
    fn an_end_has_a_reason() {
        assert_eq!(reason(ExitStatus::from_raw(9)), "was killed by signal 9");
        assert_eq!(reason(ExitStatus::from_raw(3 << 8)), "ended with exit code 3");
    }
}
