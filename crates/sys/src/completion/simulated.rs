//! A kernel for tests: it carries out operations on real sockets, in an order, at times and with faults that a seed decides.
//!
//! It never sleeps: where a real one would, its clock moves. Both of its queues are short, so that they overflow.
//!
//! A connection that comes wakes one of the accepts in flight, as an exclusive wait does. The others go on sleeping, also if
//! that one is cancelled before it has run.
//!
//! It checks the rule of ownership. The bytes of a send are the same when it completes as when it was submitted. A receive
//! buffer is written to when it comes back, and nobody may give it back twice.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use base::{Nanos, Rng, Seed, SimulatedClock};
use io_uring::types::BufRingEntry;
use rand::RngExt;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use super::kernel::{Kernel, QUIET, Report, Sleep, Submission};
use crate::readiness::poll::{self, PollFd};

/// Operations that the submission queue holds.
const SUBMISSIONS: usize = 8;
/// Reports that the completion queue holds.
const REPORTS: usize = 3;
/// Attempts of a call that sleeps until there is a report.
const PATIENCE: usize = 64;

/// The number of times that each fault was injected.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Sends that took only a part.
    pub short_sends: u64,
    /// Receives that found no buffer, or were told so.
    pub no_buffers: u64,
    /// Operations that were cancelled.
    pub cancelled: u64,
    /// Reports that the completion queue had no room for.
    pub overflows: u64,
    /// Calls that took nothing, because reports had to be taken first: EBUSY.
    pub busy: u64,
    /// Calls that a signal interrupted: EINTR.
    pub interrupted: u64,
    /// Receives that ended although they were to go on.
    pub ended_early: u64,
    /// Accepts that failed: EMFILE, ECONNABORTED.
    pub failed_accepts: u64,
    /// Operations that completed after their descriptor had been closed.
    pub after_close: u64,
}

impl Faults {
    /// All numbers.
    pub fn all(&self) -> [u64; 9] {
        let Faults { short_sends, no_buffers, cancelled, overflows, busy, .. } = *self;
        let Faults { interrupted, ended_early, failed_accepts, after_close, .. } = *self;
        [
            short_sends,
            no_buffers,
            cancelled,
            overflows,
            busy,
            interrupted,
            ended_early,
            failed_accepts,
            after_close,
        ]
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Faults) {
        self.short_sends += other.short_sends;
        self.no_buffers += other.no_buffers;
        self.cancelled += other.cancelled;
        self.overflows += other.overflows;
        self.busy += other.busy;
        self.interrupted += other.interrupted;
        self.ended_early += other.ended_early;
        self.failed_accepts += other.failed_accepts;
        self.after_close += other.after_close;
    }
}

/// An operation in flight.
struct Pending {
    name: u64,
    submission: Submission,
    descriptor: RawFd,
    /// Open while the operation is in flight, as in a real kernel.
    file: OwnedFd,
    /// The bytes that a send found in its memory.
    lent: Vec<u8>,
    /// Its descriptor has been closed.
    is_closed: bool,
    /// It is to be attempted: accepts sleep until a connection wakes them.
    is_awake: bool,
}

/// The buffers that a ring has registered.
struct Buffers {
    entries: *mut BufRingEntry,
    count: u16,
    head: u16,
    free: VecDeque<(u16, *mut u8, usize)>,
    /// Buffers that the program has, by number.
    lent: BTreeSet<u16>,
}

/// A kernel that is told by a seed what it does.
pub struct SimulatedKernel {
    random: Rng,
    clock: SimulatedClock,
    faults: Rc<RefCell<Faults>>,
    arrivals: Rc<Cell<usize>>,
    submitted: Vec<(u64, Submission)>,
    pending: Vec<Pending>,
    /// Reports that come late.
    late: Vec<Report>,
    reports: VecDeque<Report>,
    overflowed: VecDeque<Report>,
    buffers: Option<Buffers>,
}

impl SimulatedKernel {
    /// A kernel whose sleep moves the clock.
    pub fn new(seed: Seed, clock: SimulatedClock) -> SimulatedKernel {
        SimulatedKernel {
            random: seed.child("kernel").rng(),
            clock,
            faults: Rc::default(),
            arrivals: Rc::default(),
            submitted: Vec::new(),
            pending: Vec::new(),
            late: Vec::new(),
            reports: VecDeque::new(),
            overflowed: VecDeque::new(),
            buffers: None,
        }
    }

    /// The faults so far, which can be looked at while a ring owns the kernel.
    pub fn faults(&self) -> Rc<RefCell<Faults>> {
        Rc::clone(&self.faults)
    }

    /// Connections that have come and have not woken an accept yet. A client that connects adds one.
    pub fn arrivals(&self) -> Rc<Cell<usize>> {
        Rc::clone(&self.arrivals)
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.random_range(0..times) == 0
    }

    /// Takes an operation out of the submission queue.
    fn begin(&mut self, name: u64, submission: Submission) {
        let descriptor = match submission {
            Submission::Accept { listener: fd, .. } | Submission::Poll { fd, .. } => fd,
            Submission::Receive { socket, .. } | Submission::Send { socket, .. } => socket,
            Submission::Cancel(name) => return self.cancel(|pending| pending.name == name),
            Submission::CancelAll => return self.cancel(|_| true),
            Submission::Close(fd) => return self.close(fd),
        };
        // SAFETY: the program names a descriptor that it has open.
        let file =
            unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned().expect("a descriptor is left");
        let lent = match submission {
            // SAFETY: the program keeps this memory until the operation completes.
            Submission::Send { address, length, .. } => unsafe { bytes(address, length) }.to_vec(),
            _ => Vec::new(),
        };
        // A new accept looks at the queue before it sleeps.
        let (is_closed, is_awake) = (false, true);
        self.pending.push(Pending { name, submission, descriptor, file, lent, is_closed, is_awake });
    }

    fn close(&mut self, fd: RawFd) {
        for pending in &mut self.pending {
            pending.is_closed |= pending.descriptor == fd;
        }
        // SAFETY: the program has given this descriptor away.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }

    fn cancel(&mut self, is_meant: impl Fn(&Pending) -> bool) {
        let mut kept = Vec::new();
        let mut found = false;
        for mut pending in std::mem::take(&mut self.pending) {
            found |= is_meant(&pending);
            if !is_meant(&pending) {
                kept.push(pending);
                continue;
            }
            // An operation that is ready may overtake its cancellation.
            if !self.one_in(2) || self.attempt(&mut pending) {
                self.faults.borrow_mut().cancelled += 1;
                self.report(&pending, Err(Errno::CANCELED), false, None);
            }
        }
        self.pending = kept;
        if !found {
            let result = -Errno::NOENT.raw_os_error();
            self.late.push(Report { name: QUIET, result, more: false, buffer: None });
        }
    }

    fn report(&mut self, pending: &Pending, result: Result<i32, Errno>, more: bool, buffer: Option<u16>) {
        if let Submission::Send { address, length, .. } = pending.submission {
            // SAFETY: the program keeps this memory until the operation completes.
            let now = unsafe { bytes(address, length) };
            assert!(now == pending.lent, "the memory of a send changed before it completed");
        }
        self.faults.borrow_mut().after_close += u64::from(pending.is_closed);
        let result = result.unwrap_or_else(|errno| -errno.raw_os_error());
        self.late.push(Report { name: pending.name, result, more, buffer });
    }

    /// Carries out some of the operations in flight, in any order.
    fn work(&mut self) {
        self.take_buffers();
        (0..self.arrivals.take()).for_each(|_| self.wake_an_accept());
        let mut waiting = std::mem::take(&mut self.pending);
        while !waiting.is_empty() {
            let mut pending = waiting.swap_remove(self.random.random_range(0..waiting.len()));
            if self.one_in(3) || self.attempt(&mut pending) {
                self.pending.push(pending);
            }
        }
        self.deliver();
    }

    fn wake_an_accept(&mut self) {
        let asleep: Vec<&mut Pending> = self.pending.iter_mut().filter(|pending| !pending.is_awake).collect();
        if !asleep.is_empty() {
            let any = self.random.random_range(0..asleep.len());
            asleep.into_iter().nth(any).expect("chosen among them").is_awake = true;
        }
    }

    /// Makes some reports visible. Those of one operation keep their order.
    fn deliver(&mut self) {
        while let Some(report) = self.overflowed.pop_front() {
            if self.reports.len() == REPORTS {
                self.overflowed.push_front(report);
                break;
            }
            self.reports.push_back(report);
        }
        while !self.late.is_empty() && !self.one_in(4) {
            let any = self.late[self.random.random_range(0..self.late.len())].name;
            let first = self.late.iter().position(|report| report.name == any).expect("chosen among them");
            let report = self.late.remove(first);
            if self.reports.len() < REPORTS && self.overflowed.is_empty() {
                self.reports.push_back(report);
            } else {
                self.faults.borrow_mut().overflows += 1;
                self.overflowed.push_back(report);
            }
        }
    }

    /// Attempts an operation. Returns whether it stays in flight.
    fn attempt(&mut self, pending: &mut Pending) -> bool {
        match pending.submission {
            Submission::Accept { each, .. } => self.accept(pending, each),
            Submission::Receive { each, .. } => self.receive(pending, each),
            Submission::Send { .. } => self.send(pending),
            Submission::Poll { bits, .. } => {
                let ready = is_ready(pending.file.as_fd(), bits);
                if ready {
                    self.report(pending, Ok(i32::from(bits)), false, None);
                }
                !ready
            }
            Submission::Cancel(_) | Submission::CancelAll | Submission::Close(_) => false,
        }
    }

    fn accept(&mut self, pending: &mut Pending, each: bool) -> bool {
        pending.is_awake &= is_ready(pending.file.as_fd(), poll::bits::IN);
        if !pending.is_awake {
            return true;
        }
        let result = if self.one_in(10) {
            self.faults.borrow_mut().failed_accepts += 1;
            Err(if self.one_in(2) { Errno::MFILE } else { Errno::CONNABORTED })
        } else {
            rustix::net::accept_with(&pending.file, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
        };
        let more = each && result.is_ok();
        self.report(pending, result.map(IntoRawFd::into_raw_fd), more, None);
        more
    }

    fn receive(&mut self, pending: &Pending, each: bool) -> bool {
        if !is_ready(pending.file.as_fd(), poll::bits::IN) {
            return true;
        }
        let is_refused = self.one_in(12);
        let buffers = self.buffers.as_mut().expect("a ring has buffers");
        let Some((number, address, length)) = buffers.free.front().copied().filter(|_| !is_refused) else {
            self.faults.borrow_mut().no_buffers += 1;
            self.report(pending, Err(Errno::NOBUFS), false, None);
            return false;
        };
        // SAFETY: the program has given the buffer to the kernel, and takes it back by a report alone.
        let buffer = unsafe { std::slice::from_raw_parts_mut(address, length) };
        let most = self.random.random_range(1..=length);
        match rustix::net::recv(&pending.file, &mut buffer[..most], RecvFlags::DONTWAIT) {
            Ok((_, count)) => {
                let keeps_buffer = count == 0 && self.one_in(2);
                let ends_early = count > 0 && each && self.one_in(8);
                self.faults.borrow_mut().ended_early += u64::from(ends_early);
                let more = each && count > 0 && !ends_early;
                if !keeps_buffer {
                    let buffers = self.buffers.as_mut().expect("looked at above");
                    buffers.free.pop_front();
                    buffers.lent.insert(number);
                }
                self.report(pending, Ok(count as i32), more, (!keeps_buffer).then_some(number));
                more
            }
            Err(Errno::AGAIN) => true,
            Err(errno) => {
                self.report(pending, Err(errno), false, None);
                false
            }
        }
    }

    fn send(&mut self, pending: &Pending) -> bool {
        if self.one_in(60) {
            self.faults.borrow_mut().cancelled += 1;
            self.report(pending, Err(Errno::CANCELED), false, None);
            return false;
        }
        if self.one_in(20) {
            let errno = if self.one_in(2) { Errno::NOBUFS } else { Errno::INTR };
            self.report(pending, Err(errno), false, None);
            return false;
        }
        let whole = pending.lent.len();
        let most = if self.one_in(3) { self.random.random_range(1..=whole) } else { whole };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&pending.file, &pending.lent[..most], flags) {
            Ok(count) => {
                self.faults.borrow_mut().short_sends += u64::from(count < whole);
                self.report(pending, Ok(count as i32), false, None);
                false
            }
            Err(Errno::AGAIN) => true,
            Err(errno) => {
                self.report(pending, Err(errno), false, None);
                false
            }
        }
    }

    /// Takes the buffers that the program has given back, and writes to them.
    fn take_buffers(&mut self) {
        let Some(buffers) = &mut self.buffers else { return };
        // SAFETY: the tail lies in the first entry, which the program keeps while the ring lives.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(buffers.entries).cast_mut()) };
        while buffers.head != tail.load(Ordering::Acquire) {
            // SAFETY: there are `count` entries.
            let entry = unsafe { &*buffers.entries.add(usize::from(buffers.head % buffers.count)) };
            let (number, address, length) = (entry.bid(), entry.addr() as *mut u8, entry.len() as usize);
            assert!(buffers.lent.remove(&number), "receive buffer {number} was given back twice");
            // SAFETY: the buffer is the kernel's from now on.
            unsafe { address.write_bytes(b'?', length) };
            buffers.free.push_back((number, address, length));
            buffers.head = buffers.head.wrapping_add(1);
        }
    }

    /// Sleeps, which takes no time but the clock's.
    fn sleep(&mut self, sleep: Sleep) -> io::Result<()> {
        match sleep {
            Sleep::Never => Ok(()),
            Sleep::For(time) => {
                let part = if self.one_in(4) { time } else { Nanos(time.0 / 16) };
                self.clock.advance(part.min(time));
                Err(io::Error::from_raw_os_error(libc::ETIME))
            }
            Sleep::UntilReport => {
                (0..PATIENCE).for_each(|_| {
                    if self.reports.is_empty() {
                        self.work()
                    }
                });
                Ok(())
            }
        }
    }
}

impl Drop for SimulatedKernel {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.take_buffers();
            let lent = self.buffers.as_ref().map_or(0, |buffers| buffers.lent.len());
            assert_eq!(
                (self.pending.len(), lent),
                (0, 0),
                "operations in flight, and buffers not given back"
            );
        }
    }
}

impl Kernel for SimulatedKernel {
    unsafe fn register(&mut self, entries: *mut BufRingEntry, count: u16) -> io::Result<()> {
        let lent = (0..count).collect();
        self.buffers = Some(Buffers { entries, count, head: 0, free: VecDeque::new(), lent });
        Ok(())
    }

    unsafe fn push(&mut self, name: u64, submission: &Submission) -> bool {
        let has_room = self.submitted.len() < SUBMISSIONS;
        if has_room {
            self.submitted.push((name, *submission));
        }
        has_room
    }

    fn has_work(&mut self) -> bool {
        !(self.submitted.is_empty() && self.pending.is_empty() && self.late.is_empty())
            || self.has_overflowed()
    }

    fn enter(&mut self, sleep: Sleep) -> io::Result<()> {
        self.deliver();
        if self.has_overflowed() && self.one_in(2) {
            self.faults.borrow_mut().busy += 1;
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        for (name, submission) in std::mem::take(&mut self.submitted) {
            self.begin(name, submission);
        }
        self.work();
        if self.one_in(30) {
            self.faults.borrow_mut().interrupted += 1;
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        if self.reports.is_empty() { self.sleep(sleep) } else { Ok(()) }
    }

    fn has_reports(&mut self) -> bool {
        !self.reports.is_empty()
    }

    fn next(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    fn has_overflowed(&mut self) -> bool {
        !self.overflowed.is_empty()
    }
}

fn is_ready(file: BorrowedFd<'_>, bits: i16) -> bool {
    matches!(poll::wait(&mut [PollFd::new(file.as_raw_fd(), bits)], Some(Nanos::ZERO)), Ok(1))
}

/// The memory of a send.
///
/// # Safety
/// The memory is valid.
unsafe fn bytes<'a>(address: *const u8, length: u32) -> &'a [u8] {
    // SAFETY: the caller says so.
    unsafe { std::slice::from_raw_parts(address, length as usize) }
}
