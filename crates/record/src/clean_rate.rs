//! The load that one machine's generator can offer without distorting the result.
//!
//! [`CleanRate`] was measured on the machine alone, [`SharedCleanRate`] by two machines that share the same D.

use serde::{Deserialize, Serialize};

use crate::manifest::Manifest;

/// The schema this version writes.
pub const SCHEMA: &str = "inrush.clean-rate/2";

/// The schema of a [`SharedCleanRate`].
pub const SHARED_SCHEMA: &str = "inrush.shared-clean-rate/1";

/// One rate that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Sessions per second that were asked for, with one connect each.
    pub per_s: f64,
    /// Processes that shared the sessions.
    pub processes: u32,
    /// Connects per second that arrived at the other side.
    pub arrived_per_s: f64,
    /// Lateness of sessions at the 99th percentile.
    pub lateness_p99_ns: u64,
    /// CPU time of the generator, in cores.
    pub generator_cpu: f64,
    /// True if the generator offered everything on time, with processor time to spare.
    pub clean: bool,
}

/// A clean rate (Banga 1997, section 4.3), with the trials behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CleanRate {
    /// [`SCHEMA`].
    pub schema: String,
    /// The highest rate, in sessions per second, at which one process still offers the load that two would.
    pub clean_per_s: f64,
    /// The number of engine threads that the rate holds for.
    pub threads: u32,
    /// The TCP of the connections: `kernel`, `user`, or `user, server on CPUs LIST` if these receive the packets.
    pub stack: String,
    /// All trials, in their order.
    pub trials: Vec<Trial>,
    /// The machine and the time of the measurement.
    pub manifest: Manifest,
}

impl CleanRate {
    /// Tells whether the rate applies to a run with `threads` engine threads over this stack, on the machine that `there`
    /// describes.
    pub fn holds_for(&self, threads: u32, stack: &str, there: &Manifest) -> bool {
        let of = |manifest: &Manifest| {
            (manifest.cpu.clone(), manifest.cpus_allowed.clone(), manifest.kernel.clone())
        };
        self.schema == SCHEMA
            && self.threads == threads
            && self.stack == stack
            && of(&self.manifest) == of(there)
    }
}

/// The connects of one machine, and of two that share the same D.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedTrial {
    /// D: connects that are pending at any time, of all machines together.
    pub sockets: u32,
    /// Connects per second that arrived from one machine.
    pub one_per_s: f64,
    /// Connects per second that arrived from two machines.
    pub two_per_s: f64,
    /// True if two machines brought more than one.
    pub parted: bool,
}

/// A clean rate as Banga 1997, section 4.3, measures it: one machine's curve and the curve of two machines that share D
/// are the same up to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedCleanRate {
    /// [`SHARED_SCHEMA`].
    pub schema: String,
    /// Connects per second from one machine at the largest D where the curves are the same; 0 if there is none.
    pub clean_per_s: f64,
    /// That D; 0 if there is none.
    pub sockets: u32,
    /// Time after which a connect was abandoned.
    pub connect_timeout_ns: u64,
    /// All trials, in their order.
    pub trials: Vec<SharedTrial>,
    /// The coordinator's machine, and the time of the measurement.
    pub manifest: Manifest,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_where_it_was_measured() {
        let here = Manifest { cpu: "x".into(), cpus_allowed: "1".into(), ..Manifest::default() };
        let rate = CleanRate {
            schema: SCHEMA.to_owned(),
            clean_per_s: 5.0,
            threads: 2,
            stack: "user".to_owned(),
            trials: Vec::new(),
            manifest: here.clone(),
        };
        assert!(rate.holds_for(2, "user", &here) && !rate.holds_for(1, "user", &here));
        assert!(!rate.holds_for(2, "kernel", &here));
        for there in [
            Manifest { cpu: "y".into(), ..here.clone() },
            Manifest { cpus_allowed: "0-1".into(), ..here.clone() },
            Manifest { kernel: "6.1".into(), ..here.clone() },
        ] {
            assert!(!rate.holds_for(2, "user", &there), "{there:?}");
        }
        let earlier = CleanRate { schema: "inrush.clean-rate/1".to_owned(), ..rate };
        assert!(!earlier.holds_for(2, "user", &here));
    }
}
