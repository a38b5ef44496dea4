//! `--wake`: whom a connection wakes, of the tasks that wait for it.

use super::named;
use crate::setting::{Declaration, Setting};

named! {
    /// How one of those who wait for connections is found and woken (Molloy and Lever 2000, and what came after).
    Wake {
        /// The kernel wakes one: EPOLLEXCLUSIVE, an interest set per thread.
        Exclusive = "exclusive",
        /// A waker is told of the connection and wakes one, by futex: their patch's wake-one in user space.
        One = "one",
        /// One thread at a time waits, under a mutex, and accepts: Apache's accept mutex.
        Mutex = "mutex",
        /// The kernel wakes all, one wins, the others sleep again: poll(2) in each.
        All = "all",
        /// Each has an accept queue of its own, among which the kernel chooses by a hash of the addresses.
        Reuseport = "reuseport",
        /// The same, but that of the processor that received the connection is chosen.
        Steered = "steered",
    }
}

/// The setting.
pub static WAKE: Setting<Wake> = Setting::new(Declaration {
    flag: "--wake",
    value: "HOW",
    help: "Tasks to wake for a connection",
    more: Some(
        "mt: exclusive (default), one, mutex, all or reuseport. mp: exclusive (default), mutex or all. per-core: \
         reuseport (default), or steered: the loop on the CPU that received the connection.",
    ),
    without: "has nobody to choose from who could be woken for a connection",
    in_kernel: None,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_parsed() {
        for wake in [Wake::Exclusive, Wake::One, Wake::Mutex, Wake::All, Wake::Reuseport, Wake::Steered] {
            assert_eq!(wake.to_string().parse(), Ok(wake));
        }
        let accepted = "accepted are exclusive, one, mutex, all, reuseport, steered";
        assert_eq!("many".parse::<Wake>(), Err(accepted.to_owned()));
    }
}
