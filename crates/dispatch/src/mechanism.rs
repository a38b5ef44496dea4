//! The mechanisms, one file each, and their common contract.
//!
//! To add one, write a file here with a type that implements [`Mechanism`], add a line below, and add a line
//! in [`for_each_mechanism`](crate::for_each_mechanism). That line brings the mechanism into the command
//! line, the server's generic loop and the conformance suite. A build without the feature `mechanisms` has a shorter list: a
//! server's loops are compiled once for each of its lines. A setting of a mechanism is a static in its file, and a
//! name in its [`Capabilities`](crate::Capabilities); the command line finds it there.

mod contract;
mod epoll;
mod epoll_edge;
mod fdm;
mod poll;
mod rt_per_fd;
mod rt_signals;
mod rt_signals_select;
mod select;
mod signals;
mod upkeep;
mod uring_poll;

pub use contract::{Change, Mechanism, MechanismCounts};
use contract::{event, poll_bits, poll_event};
pub use epoll::Epoll;
pub use epoll_edge::EpollEdge;
pub use fdm::Fdm;
pub(crate) use fdm::{LIVE_COUNTER, RULE};
pub use poll::Poll;
pub use rt_per_fd::RtPerFd;
pub use rt_signals::RtSignals;
pub use rt_signals_select::RtSignalsSelect;
pub use select::Select;
pub use signals::RtFetch;
pub use uring_poll::UringPoll;

/// Calls a macro with the command-line name and the type of every mechanism, level-triggered or edge-triggered. What
/// follows the macro's name comes before them.
#[cfg(feature = "mechanisms")]
#[macro_export]
macro_rules! for_each_mechanism {
    ($then:ident $(, $with:tt)*) => {
        $then! {
            $($with)*
            "epoll" => $crate::mechanism::Epoll,
            "epoll-et" => $crate::mechanism::EpollEdge,
            "poll" => $crate::mechanism::Poll,
            "select" => $crate::mechanism::Select,
            "rt-signals" => $crate::mechanism::RtSignals,
            "rt-signals-select" => $crate::mechanism::RtSignalsSelect,
            "rt-per-fd" => $crate::mechanism::RtPerFd,
            "fdm" => $crate::mechanism::Fdm,
            "uring-poll" => $crate::mechanism::UringPoll,
        }
    };
}

/// Calls a macro with the command-line name and the type of the only mechanism of this build. What follows the macro's name
/// comes before them.
#[cfg(not(feature = "mechanisms"))]
#[macro_export]
macro_rules! for_each_mechanism {
    ($then:ident $(, $with:tt)*) => {
        $then! {
            $($with)*
            "epoll" => $crate::mechanism::Epoll,
        }
    };
}
