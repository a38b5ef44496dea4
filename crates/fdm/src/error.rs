//! The reasons for refusing a call, and their errno.

use libc::c_int;

/// The reason why a call failed. A failed call has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// `fdm_start` has not been called, or `fdm_stop` has been called since.
    #[error("the library is not started")]
    NotStarted,
    /// `fdm_start` was called before.
    #[error("the library is started already")]
    AlreadyStarted,
    /// Another call is under way, in another thread or in the code that a signal handler interrupted.
    #[error("another call is under way")]
    Busy,
    /// A pointer is null, or a value is out of range.
    #[error("an argument or setting is out of range")]
    Invalid,
    /// The number is not an open descriptor.
    #[error("not an open descriptor")]
    BadDescriptor,
    /// The descriptor is registered already.
    #[error("registered already")]
    Known,
    /// The descriptor is not registered.
    #[error("not registered")]
    Unknown,
    /// A signal handler ran before an event came.
    #[error("interrupted by a signal")]
    Interrupted,
    /// poll(2) failed with this errno.
    #[error("poll failed with errno {0}")]
    Poll(c_int),
    /// The library itself failed; the failure stops at its border.
    #[error("a fault in the library")]
    Fault,
}

impl Error {
    /// The errno of the error, as in `fdm.h`.
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
