//! The interest of every descriptor, reconciled with a mechanism just before it waits.
//!
//! Invariants: `changed` names a descriptor at most once. A descriptor whose `wanted` and `applied` differ is
//! in `changed`. A closed descriptor has neither.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use base::Nanos;
use base::setting::Chosen;

use crate::mechanism::{Change, Mechanism, MechanismCounts};
use crate::spin::Spin;
use crate::{Event, Interest, Token, Waited};

/// The state of one descriptor number.
#[derive(Clone, Copy, Debug)]
struct Entry {
    token: Token,
    wanted: Option<Interest>,
    applied: Option<Interest>,
    /// The token that the mechanism has.
    applied_token: Token,
    locked: bool,
    changed: bool,
}

const UNKNOWN: Entry = Entry {
    token: Token(0),
    wanted: None,
    applied: None,
    applied_token: Token(0),
    locked: false,
    changed: false,
};

/// Counts of changes of interest since the dispatcher was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Changes handed to the mechanism. Each costs at most one system call, or four to begin with signals.
    pub applied: u64,
    /// Changes that the caller took back before the wait. They cost no system call.
    pub taken_back: u64,
}

/// Waits for events on many descriptors by one mechanism.
///
/// ```
/// use dispatch::{Dispatcher, Interest, Token, mechanism::Epoll};
/// use std::os::fd::AsFd;
///
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let mut dispatcher = Dispatcher::<Epoll>::new()?;
/// dispatcher.register(listener.as_fd(), Token(7), Interest::Read);
///
/// let _client = std::net::TcpStream::connect(listener.local_addr()?)?;
/// let mut events = Vec::new();
/// dispatcher.wait(&mut events, None)?;
/// assert_eq!(events[0].token, Token(7));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Dispatcher<M> {
    mechanism: M,
    entries: Vec<Entry>,
    changed: Vec<RawFd>,
    failed: Vec<Token>,
    reconciled: Reconciled,
    /// Replaces the mechanism's own way to wait.
    spin: Option<Spin>,
}

/// The descriptor that another interest set can watch in place of this one. It is readable while the kernel
/// has events for this set. Changes of interest reach the kernel only with this dispatcher's own wait.
impl<M: AsFd> AsFd for Dispatcher<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mechanism.as_fd()
    }
}

impl<M: Mechanism> Dispatcher<M> {
    /// A dispatcher with an empty interest set.
    ///
    /// # Errors
    /// As [`Mechanism::new`].
    pub fn new() -> io::Result<Dispatcher<M>> {
        M::new().map(Dispatcher::on)
    }

    /// A dispatcher with an empty interest set and settings for its mechanism.
    ///
    /// # Errors
    /// As [`Mechanism::new`].
    pub fn configured(chosen: &Chosen) -> io::Result<Dispatcher<M>> {
        let on = M::configured(chosen).map(Dispatcher::on)?;
        Ok(Dispatcher { spin: Spin::over::<M>(chosen), ..on })
    }

    /// A dispatcher on a mechanism that the caller has configured.
    pub fn on(mechanism: M) -> Dispatcher<M> {
        Dispatcher {
            mechanism,
            entries: Vec::new(),
            changed: Vec::new(),
            failed: Vec::new(),
            reconciled: Reconciled::default(),
            spin: None,
        }
    }

    /// Sets a descriptor's interest and the token of its events, from the next wait on. Registering the
    /// descriptor again changes both. The owner keeps the descriptor open until it has called
    /// [`closing`](Self::closing), or has called [`deregister`](Self::deregister) and waited.
    pub fn register(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) {
        let fd = fd.as_raw_fd();
        let entry = self.entry(fd);
        (entry.token, entry.locked) = (token, false);
        self.want(fd, Some(interest));
    }

    /// Registers a descriptor that must never be polled less often because it was quiet, such as a listener.
    /// It stays locked until it is closed or deregistered.
    pub fn register_locked(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) {
        self.register(fd, token, interest);
        self.entry(fd.as_raw_fd()).locked = true;
    }

    /// Changes a known descriptor's interest. Ignores an unknown descriptor.
    pub fn modify(&mut self, fd: BorrowedFd<'_>, interest: Interest) {
        let fd = fd.as_raw_fd();
        if self.entry(fd).wanted.is_some() {
            self.want(fd, Some(interest));
        }
    }

    /// Forgets a descriptor that stays open here until the next wait or longer.
    pub fn deregister(&mut self, fd: BorrowedFd<'_>) {
        self.want(fd.as_raw_fd(), None);
    }

    /// Forgets a descriptor that its owner is about to close, and whose file nobody else has open. Costs no
    /// system call, and the number may be registered again at once.
    /// [`closing_shared`](Self::closing_shared) forgets a descriptor whose file others may have open.
    pub fn closing(&mut self, fd: BorrowedFd<'_>) {
        let fd = fd.as_raw_fd();
        let entry = self.entry(fd);
        let (was_applied, was_changed) = (entry.applied.is_some(), entry.changed);
        *entry = Entry { changed: was_changed, ..UNKNOWN };
        if was_applied {
            self.mechanism.closing(fd);
        }
    }

    /// Forgets a descriptor that its owner is about to close while another process, or a copy of the
    /// descriptor, may keep its file open. Costs one system call at once: a mechanism that watches files would
    /// otherwise report this one for as long as it is open, and nobody could name it any more. The number may be
    /// registered again at once.
    pub fn closing_shared(&mut self, fd: BorrowedFd<'_>) {
        let number = fd.as_raw_fd();
        let Entry { applied, applied_token: token, locked, .. } = *self.entry(number);
        if applied.is_some() {
            self.reconciled.applied += 1;
            // After an error the kernel no longer watches the descriptor.
            let _ = self.mechanism.update(Change { fd: number, token, from: applied, to: None, locked });
        }
        self.closing(fd);
    }

    /// Carries out the changes, then waits and appends the events to `events`. If the mechanism refuses a
    /// change, its descriptor is reported as failed and forgotten. A timeout of `None` waits forever.
    ///
    /// # Errors
    /// As [`Mechanism::wait`]: none that a peer can cause.
    pub fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Nanos>) -> io::Result<Waited> {
        self.reconcile();
        if self.failed.is_empty() {
            return match &mut self.spin {
                Some(spin) => spin.wait(&mut self.mechanism, events, timeout),
                None => self.mechanism.wait(events, timeout),
            };
        }
        let failed = self.failed.drain(..);
        events.extend(failed.map(|token| Event { token, readable: true, writable: true, failed: true }));
        self.mechanism.wait(events, Some(Nanos::ZERO))
    }

    /// Counts of the changes of interest so far.
    pub fn reconciled(&self) -> Reconciled {
        self.reconciled
    }

    /// The mechanism's counters so far.
    pub fn counts(&self) -> MechanismCounts {
        self.mechanism.counts()
    }

    fn entry(&mut self, fd: RawFd) -> &mut Entry {
        let index = fd as usize;
        if index >= self.entries.len() {
            self.entries.resize(index + 1, UNKNOWN);
        }
        &mut self.entries[index]
    }

    fn want(&mut self, fd: RawFd, interest: Option<Interest>) {
        let entry = self.entry(fd);
        entry.wanted = interest;
        let differs = entry.wanted != entry.applied || entry.token != entry.applied_token;
        if differs && !entry.changed {
            entry.changed = true;
            self.changed.push(fd);
        }
    }

    fn reconcile(&mut self) {
        for fd in self.changed.drain(..) {
            let entry = &mut self.entries[fd as usize];
            debug_assert!(entry.changed, "`changed` names a descriptor at most once");
            entry.changed = false;
            let same_token = entry.token == entry.applied_token || entry.wanted.is_none();
            if entry.wanted == entry.applied && same_token {
                self.reconciled.taken_back += 1;
                continue;
            }
            self.reconciled.applied += 1;
            let Entry { token, locked, applied: from, wanted: to, .. } = *entry;
            let change = Change { fd, token, from, to, locked };
            match self.mechanism.update(change) {
                Ok(()) => {
                    entry.applied = entry.wanted;
                    entry.applied_token = entry.token;
                }
                Err(_) => {
                    // The owner learns the error when it reads or writes the descriptor.
                    if entry.wanted.is_some() {
                        self.failed.push(entry.token);
                    }
                    *entry = UNKNOWN;
                }
            }
        }
    }
}
