//! `--wake`: the tasks that a connection wakes, of those that wait for one.

use base::setting::{Declaration, Setting};

use super::named;

named! {
    /// The way to choose and wake one of several waiters for a connection (Molloy and Lever 2000, and later
    /// mechanisms).
    Wake {
        /// The kernel wakes one: EPOLLEXCLUSIVE, an interest set per waiter. A waiter that finds connections without a sleep
        /// leaves the listener's wait queue until it sleeps again.
        Exclusive = "exclusive",
        /// The same, but nobody leaves the wait queue, so the kernel also asks waiters that are at work.
        EpollExclusive = "epoll-exclusive",
        /// A waker learns of the connection and wakes one waiter by futex: the paper's wake-one in user space.
        One = "one",
        /// One thread at a time waits, under a mutex, and accepts: Apache's accept mutex.
        Mutex = "mutex",
        /// The kernel wakes all, one wins, the others sleep again: poll(2) in each.
        All = "all",
        /// Each waiter has its own accept queue. The kernel chooses one by a hash of the addresses.
        Reuseport = "reuseport",
        /// As `reuseport`, but the kernel chooses the queue of the processor that received the connection.
        Steered = "steered",
    }
}

/// The setting.
pub static WAKE: Setting<Wake> = Setting::new(Declaration {
    flag: "--wake",
    value: "HOW",
    help: "Tasks to wake for a connection",
    more: Some("steered wakes the loop on the CPU that received the connection."),
    without: "has one waiter for connections, so none to choose",
    in_kernel: None,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_parsed() {
        for wake in [
            Wake::Exclusive,
            Wake::EpollExclusive,
            Wake::One,
            Wake::Mutex,
            Wake::All,
            Wake::Reuseport,
            Wake::Steered,
        ] {
            assert_eq!(wake.to_string().parse(), Ok(wake));
        }
        let accepted = "expected exclusive, epoll-exclusive, one, mutex, all, reuseport, steered";
        assert_eq!("many".parse::<Wake>(), Err(accepted.to_owned()));
    }
}
