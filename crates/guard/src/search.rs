//! The search for listeners and the processes behind them: from the user's name for a server to a place, and from a
//! listener to its owners and its cgroup.
//!
//! `target` finds the listener that the user means, `owner` its processes, and `cgroup` its cgroup.

pub mod cgroup;
pub mod owner;
pub mod target;
