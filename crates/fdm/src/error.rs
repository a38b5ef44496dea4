//! What a call can be refused for, and the errno that says so.

use libc::c_int;

/// Why a call failed. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// `fdm_start` has not been called, or `fdm_stop` has.
    #[error("the library is not started")]
    NotStarted,
    /// `fdm_start` again.
    #[error("the library is started already")]
    AlreadyStarted,
    /// Another call is under way: in another thread, or in the one that a signal handler interrupted.
    #[error("another call is under way")]
    Busy,
    /// A null pointer, or a value out of range.
    #[error("an argument or setting is out of range")]
    Invalid,
    /// Not an open descriptor.
    #[error("not an open descriptor")]
    BadDescriptor,
    /// It is registered already.
    #[error("registered already")]
    Known,
    /// It is not registered.
    #[error("not registered")]
    Unknown,
    /// A signal handler ran before there was an event.
    #[error("interrupted by a signal")]
    Interrupted,
    /// poll(2) failed with this errno.
    #[error("poll failed with errno {0}")]
    Poll(c_int),
    /// A fault of this library, stopped at its border.
    #[error("a fault in the library")]
    Fault,
}

impl Error {
    /// As `fdm.h` lists them.
    pub(crate) fn errno(self) -> c_int {
        match self {
            Error::NotStarted => libc::ENXIO,
            Error::AlreadyStarted => libc::EALREADY,
            Error::Busy => libc::EBUSY,
            Error::Invalid => libc::EINVAL,
            Error::BadDescriptor => libc::EBADF,
            Error::Known => libc::EEXIST,
            Error::Unknown => libc::ENOENT,
            Error::Interrupted => libc::EINTR,
            Error::Poll(errno) => errno,
            Error::Fault => libc::ENOTRECOVERABLE,
        }
    }
}
