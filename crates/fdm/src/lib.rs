//! `libfdm`: the C library of Liu and Chen, "A Scalable Locality-Aware Event Dispatching Mechanism for
//! Network Servers", over [`dispatch::locality`]. That module names the deviations in polling the sets.
//! `include/fdm.h` is the contract and describes each function; this crate implements it. C programs link the library that
//! `install.sh` makes. The same calls from Rust:
//!
//! ```
//! use std::io::Write;
//! use std::os::fd::AsRawFd;
//! use std::ptr::null_mut;
//!
//! let (reader, mut writer) = std::io::pipe()?;
//! let interest = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
//! let mut event = fdm::FdmEvent { fd: -1, events: 0, payload: null_mut() };
//! assert_eq!(fdm::fdm_start(), 0);
//! // SAFETY: both pointers lead to values that live until the end of this example.
//! assert_eq!(unsafe { fdm::fdm_reg_fd(&interest, 0) }, 0);
//! writer.write_all(b"x")?;
//! // SAFETY: there is room for one event.
//! assert_eq!(unsafe { fdm::fdm_wait_event(&mut event, 1, -1) }, 1);
//! assert_eq!((event.fd, event.events), (interest.fd, libc::POLLIN));
//! assert_eq!(fdm::fdm_stop(), 0);
//! # Ok::<_, std::io::Error>(())
//! ```
//!
//! Owns the C border: pointers become values here and nowhere else, failures become -1 and errno, and no
//! panic crosses the border. Owns no descriptors. Invariants: a process has one instance, as in the paper,
//! behind a lock that no call waits for. A call that overlaps with another, in a second thread or in a signal
//! handler, fails with EBUSY. After a panic there is no instance.
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

/// Number of polling sets: `int fdm_setnum`, by default 3. [`fdm_start`] reads it.
#[allow(non_upper_case_globals, reason = "the paper's name")]
#[unsafe(no_mangle)]
pub static fdm_setnum: AtomicI32 = AtomicI32::new(3);

/// N: `int fdm_default_live_counter`, by default 3. [`fdm_start`] reads it.
#[allow(non_upper_case_globals, reason = "the paper's name")]
#[unsafe(no_mangle)]
pub static fdm_default_live_counter: AtomicI32 = AtomicI32::new(3);

/// An event of one descriptor: `fdm_event_t`.
#[repr(C)]
#[derive(Debug)]
pub struct FdmEvent {
    /// The descriptor's number.
    pub fd: c_int,
    /// The events: the bits of poll(2), and [`FDM_TIMEOUT`].
    pub events: c_short,
    /// The payload of the last [`fdm_update_fd_mode`]; null before the first.
    pub payload: *mut c_void,
}

/// The deadline of a descriptor has passed: a bit of [`FdmEvent::events`].
pub const FDM_TIMEOUT: c_short = instance::TIMED_OUT;

/// A caller's pointer, returned unchanged.
#[derive(Clone, Copy)]
struct Payload(*mut c_void);

// SAFETY: the library carries the pointer and never follows it, so any thread may carry it.
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

/// Stops the library and frees its memory.
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
    // SAFETY: the caller has made the same promise to this function.
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
    // SAFETY: the caller has made the same promises to this function; it neither keeps nor writes either
    // value.
    let (fd, deadline) = unsafe { (fd.as_ref(), deadline.as_ref()) };
    started(|instance| {
        let fd = fd.ok_or(Error::Invalid)?;
        let within = deadline.map(span).transpose()?;
        instance.update(fd.fd, fd.events, Payload(payload), within).map(|()| 0)
    })
}

/// Waits for events and returns the number of written ones. The timeout is in milliseconds: 0 does not block,
/// and a negative one waits forever.
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
            // SAFETY: `written` is less than `count`, and the caller has promised room for `count` events.
            unsafe {
                events.add(written as usize).write(FdmEvent { fd: event.fd, events: event.bits, payload })
            };
            written += 1;
        }
        Ok(written)
    })
}

/// Makes one call of a started library.
fn started(work: impl FnOnce(&mut Instance<Payload>) -> Result<c_int, Error>) -> c_int {
    call(|library| work(library.as_mut().ok_or(Error::NotStarted)?))
}

/// Makes one call, alone, and turns failures into -1 and errno.
fn call(work: impl FnOnce(&mut Option<Instance<Payload>>) -> Result<c_int, Error>) -> c_int {
    // No code uses the state that a panic leaves behind: the next call finds the lock poisoned.
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
        // SAFETY: the C library's errno of this thread can always be written.
        unsafe { *libc::__errno_location() = error.errno() };
        -1
    })
}

fn is_open(fd: c_int) -> bool {
    // SAFETY: takes numbers only. A descriptor that is not open is an error that the call reports.
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
