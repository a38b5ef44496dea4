//! The limit on this process's descriptors, and the kernel's table of them.
//!
//! The table begins with 64 places and doubles when it is full. In a process of several threads, the thread
//! that needs the next place must then wait. It waits until every CPU has gone through its scheduler (an RCU
//! grace period, some 20 ms). That happens eight times on the way to 16,000 connections, just while they rush in.
//! [`make_room`] grows the table beforehand.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Largest number of places that is reserved beforehand: 8 MiB of kernel memory.
const ROOM_MAX: u64 = 1 << 20;

/// Raises the soft limit to `needed` if it is lower, up to the hard limit. Returns the limit in force
/// afterwards; `None` if there is no limit.
pub fn raise_limit(needed: u64) -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = maximum.map_or(needed, |most| most.min(needed));
    if current.is_some_and(|current| current < raised) {
        // If the call fails, the caller learns the unchanged limit.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum });
    }
    getrlimit(Resource::Nofile).current
}

/// Maximum descriptors that this process may have open; `None` if there is no limit.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Enlarges the table of descriptors to `count` places, or to the limit. Call it before the process has a
/// second thread. Without memory for it, the table grows later, as it would otherwise.
pub fn make_room(count: u64) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let last = count.min(limit).min(ROOM_MAX).saturating_sub(1);
    // The table does not shrink when the descriptor is closed, so the place is all that is needed.
    if let Ok(descriptor) = eventfd(0, EventfdFlags::CLOEXEC) {
        let _ = fcntl_dupfd_cloexec(&descriptor, last as i32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places in this process's table, from `/proc`.
    fn places() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        line.trim().parse().unwrap()
    }

    #[test]
    fn the_table_has_room_for_what_the_limit_allows() {
        let limit = raise_limit(3000).unwrap_or(u64::MAX);
        assert!(limit >= getrlimit(Resource::Nofile).maximum.map_or(3000, |most| most.min(3000)));
        make_room(3000);
        assert!(places() >= limit.min(3000), "{} places", places());
        make_room(u64::MAX);
        assert!(places() >= limit.min(ROOM_MAX), "{} places", places());
    }
}
