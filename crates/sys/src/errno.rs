//! The meaning of an error number to a server, decided in one place.

use std::io;

use rustix::io::Errno;

/// The classes of failure that network code tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// EINTR: repeat the call at once.
    Retry,
    /// EAGAIN, EINPROGRESS: repeat the call when the descriptor is ready.
    WouldBlock,
    /// The peer is gone or was never reachable. Only this connection is over.
    PeerGone,
    /// EMFILE, ENFILE: no descriptor is left. Releasing one helps.
    NoDescriptor,
    /// ENOBUFS, ENOMEM: no kernel memory is left. Waiting helps.
    NoMemory,
    /// EADDRNOTAVAIL, or EADDRINUSE of a connect: every port is taken.
    NoPort,
    /// Any other error: the caller made a mistake, or the machine is misconfigured.
    Other,
}

/// The class of an error from a socket call.
pub fn classify(error: &io::Error) -> Failure {
    let Some(code) = error.raw_os_error() else { return Failure::Other };
    match Errno::from_raw_os_error(code) {
        Errno::INTR => Failure::Retry,
        Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY => Failure::WouldBlock,
        // Linux passes pending network errors of the new connection through accept(2). The peer causes them,
        // and accept's manual page says to treat them like a retry.
        Errno::CONNRESET
        | Errno::CONNABORTED
        | Errno::CONNREFUSED
        | Errno::PIPE
        | Errno::NOTCONN
        | Errno::TIMEDOUT
        | Errno::NETDOWN
        | Errno::NETUNREACH
        | Errno::HOSTDOWN
        | Errno::HOSTUNREACH
        | Errno::NONET
        | Errno::PROTO
        | Errno::NOPROTOOPT
        | Errno::SHUTDOWN => Failure::PeerGone,
        Errno::MFILE | Errno::NFILE => Failure::NoDescriptor,
        Errno::NOBUFS | Errno::NOMEM => Failure::NoMemory,
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => Failure::NoPort,
        _ => Failure::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: Errno) -> Failure {
        classify(&io::Error::from_raw_os_error(errno.raw_os_error()))
    }

    #[test]
    fn peer_errors_end_only_their_own_connection() {
        for errno in [Errno::CONNRESET, Errno::CONNABORTED, Errno::PIPE, Errno::HOSTUNREACH, Errno::TIMEDOUT]
        {
            assert_eq!(of(errno), Failure::PeerGone, "{errno:?}");
        }
    }

    #[test]
    fn shortages_are_told_apart_by_what_helps() {
        assert_eq!(of(Errno::MFILE), Failure::NoDescriptor);
        assert_eq!(of(Errno::NFILE), Failure::NoDescriptor);
        assert_eq!(of(Errno::NOBUFS), Failure::NoMemory);
        assert_eq!(of(Errno::ADDRNOTAVAIL), Failure::NoPort);
        assert_eq!(of(Errno::INTR), Failure::Retry);
        assert_eq!(of(Errno::AGAIN), Failure::WouldBlock);
        assert_eq!(of(Errno::BADF), Failure::Other);
    }
}
