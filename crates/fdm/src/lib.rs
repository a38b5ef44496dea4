//! `libfdm`: the C library of Liu and Chen, "A Scalable Locality-Aware Event Dispatching Mechanism for
//! Network Servers", over [`dispatch::locality`], which names the deviations in how sets are polled.
//! `include/fdm.h` is the contract and says what each function does; this module is its other side.
//!
//! Owns the C border: pointers become values here and nowhere else, failures become -1 and errno, and no
//! panic leaves. Owns no descriptors. Invariants: one instance a process, as in the paper, behind a lock
//! that nobody waits for: a call that overlaps with another, in a second thread or in a signal handler,
//! fails with EBUSY. After a panic there is no instance.
//!
//! The modules: `instance` is the library without pointers, `error` maps failures to errno.

mod error;
mod instance;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, TryLockError};

use base::{Nanos, RealClock};
use libc::{c_int, c_short, c_uint, c_void, pollfd, timeval};

use error::Error;
use instance::Instance;

/// Polling sets: `int fdm_setnum`, 3 until a program says otherwise; [`fdm_start`] reads it.
#[allow(non_upper_case_globals, reason = "the paper's name")]
#[unsafe(no_mangle)]
pub static fdm_setnum: AtomicI32 = AtomicI32::new(3);

/// N: `int fdm_default_live_counter`, 3 until a program says otherwise; [`fdm_start`] reads it.
#[allow(non_upper_case_globals, reason = "the paper's name")]
#[unsafe(no_mangle)]
pub static fdm_default_live_counter: AtomicI32 = AtomicI32::new(3);

/// `fdm_event_t`.
#[repr(C)]
#[derive(Debug)]
pub struct FdmEvent {
    /// Which descriptor.
    pub fd: c_int,
    /// What happened: the bits of poll(2), and [`FDM_TIMEOUT`].
    pub events: c_short,
    /// What the last [`fdm_update_fd_mode`] gave; null before the first.
    pub payload: *mut c_void,
}

/// The deadline of a descriptor has passed: a bit of [`FdmEvent::events`].
pub const FDM_TIMEOUT: c_short = instance::TIMED_OUT;

/// A pointer that is handed back as it came.
#[derive(Clone, Copy)]
struct Payload(*mut c_void);

// SAFETY: it is carried and never followed, so it does not matter which thread carries it.
unsafe impl Send for Payload {}

static LIBRARY: Mutex<Option<Instance<Payload>>> = Mutex::new(None);

/// Starts the library with the settings of the globals.
#[unsafe(no_mangle)]
pub extern "C" fn fdm_start() -> c_int {
    call(|library| {
        if library.is_some() {
            return Err(Error::AlreadyStarted);
        }
        let sets = fdm_setnum.load(Ordering::Relaxed);
        let live_counter = fdm_default_live_counter.load(Ordering::Relaxed);
        *library = Some(Instance::new(sets, live_counter, RealClock::new())?);
        Ok(0)
    })
}

/// Stops it and frees its memory.
#[unsafe(no_mangle)]
pub extern "C" fn fdm_stop() -> c_int {
    call(|library| library.take().map(|_| 0).ok_or(Error::NotStarted))
}

/// Registers a descriptor for one direction.
///
/// # Safety
/// `fd` is null or points to a `struct pollfd`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdm_reg_fd(fd: *const pollfd, lock: c_int) -> c_int {
    // SAFETY: the caller's promise is this function's own.
    let fd = unsafe { fd.as_ref() };
    started(|instance| {
        let fd = fd.ok_or(Error::Invalid)?;
        if !is_open(fd.fd) {
            return Err(Error::BadDescriptor);
        }
        instance.register(fd.fd, fd.events, lock != 0).map(|()| 0)
    })
}

/// Forgets a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn fdm_unreg_fd(fd: c_int) -> c_int {
    started(|instance| instance.unregister(fd).map(|()| 0))
}

/// Replaces a descriptor's direction, payload and deadline.
///
/// # Safety
/// `fd` is null or points to a `struct pollfd`, `deadline` is null or points to a `struct timeval`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdm_update_fd_mode(
    fd: *const pollfd,
    payload: *mut c_void,
    deadline: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promises are this function's own; neither is kept or written to.
    let (fd, deadline) = unsafe { (fd.as_ref(), deadline.as_ref()) };
    started(|instance| {
        let fd = fd.ok_or(Error::Invalid)?;
        let within = deadline.map(span).transpose()?;
        instance.update(fd.fd, fd.events, Payload(payload), within).map(|()| 0)
    })
}

/// Waits for events, at most `timeout` milliseconds (0: does not block; negative: for ever), and returns
/// how many it has written.
///
/// # Safety
/// `events` is null or has room for `count` events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdm_wait_event(events: *mut FdmEvent, count: c_uint, timeout: c_int) -> c_int {
    started(|instance| {
        if events.is_null() || count == 0 {
            return Err(Error::Invalid);
        }
        instance.wait(u64::try_from(timeout).ok().map(Nanos::from_millis))?;
        let room = c_int::try_from(count).unwrap_or(c_int::MAX);
        let mut written = 0;
        while written < room
            && let Some(event) = instance.next_event()
        {
            let payload = event.payload.map_or(ptr::null_mut(), |payload| payload.0);
            // SAFETY: `written` is less than `count`, for which the caller has promised room.
            unsafe {
                events.add(written as usize).write(FdmEvent { fd: event.fd, events: event.bits, payload })
            };
            written += 1;
        }
        Ok(written)
    })
}

/// One call of a started library.
fn started(work: impl FnOnce(&mut Instance<Payload>) -> Result<c_int, Error>) -> c_int {
    call(|library| work(library.as_mut().ok_or(Error::NotStarted)?))
}

/// One call: alone, with failures as -1 and errno.
fn call(work: impl FnOnce(&mut Option<Instance<Payload>>) -> Result<c_int, Error>) -> c_int {
    // What a panic leaves behind is never looked at again: the next call finds the lock poisoned.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut library = match LIBRARY.try_lock() {
            Ok(library) => library,
            Err(TryLockError::WouldBlock) => return Err(Error::Busy),
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut library = poisoned.into_inner();
                *library = None;
                LIBRARY.clear_poison();
                library
            }
        };
        work(&mut library)
    }));
    outcome.unwrap_or(Err(Error::Fault)).unwrap_or_else(|error| {
        // SAFETY: the C library's errno of this thread, which is always there to be written.
        unsafe { *libc::__errno_location() = error.errno() };
        -1
    })
}

fn is_open(fd: c_int) -> bool {
    // SAFETY: takes numbers only; one that is not open is an error it reports.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

fn span(time: &timeval) -> Result<Nanos, Error> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Error::Invalid)?;
    let micros = u64::try_from(time.tv_usec).ok().filter(|micros| *micros < 1_000_000);
    let micros = Nanos::from_micros(micros.ok_or(Error::Invalid)?);
    Ok(Nanos(seconds.saturating_mul(Nanos::SECOND.0)).saturating_add(micros))
}

#[cfg(test)]
mod tests;
