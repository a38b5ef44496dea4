//! The capabilities of a mechanism: the columns of Table 1 of the FDM paper, and columns of our own.
//!
//! Every mechanism declares its [`Capabilities`] beside its code. The [`table`](crate::table) sets them side by side.

use base::setting::AnySetting;
use serde::Serialize;

/// The condition under which a mechanism reports a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// Reports a descriptor as long as it is ready.
    Level,
    /// Reports a descriptor once, when it becomes ready; its owner must drain it until the call would block.
    /// A mechanism may report an edge without need, and may name a direction without interest.
    Edge,
}

/// The ways in which a mechanism can lose reports when its queue is full. After a loss every descriptor must
/// be polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// The mechanism has room for one report of every descriptor.
    Never,
    /// The kernel's queue of events is fetched in batches and can exceed its limit.
    Queue,
    /// The kernel's queue can overflow between two waits. Every wait empties it into one entry per
    /// descriptor.
    BetweenWaits,
}

/// The way a mechanism reports readiness that precedes registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitialState {
    /// The kernel reports it.
    Reported,
    /// The mechanism polls each descriptor once after its registration, because the kernel does not report
    /// it.
    PolledOnce,
}

/// The capabilities of a mechanism.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Capabilities {
    /// The mechanism's name on the command line.
    pub name: &'static str,
    /// The cost of a wait grows with the ready descriptors, not with the registered ones.
    pub scales: bool,
    /// The mechanism merges several events of one descriptor into one report.
    pub collapses: bool,
    /// One call reports many events.
    pub many_events_per_call: bool,
    /// Tells how the mechanism can overflow.
    pub overflow: Overflow,
    /// The kernel itself polls every descriptor after an overflow.
    pub kernel_falls_back: bool,
    /// The system call by which the mechanism polls every descriptor after an overflow.
    pub recovers_by: Option<&'static str>,
    /// Tells how a descriptor that is ready at registration is reported.
    pub initial_state: InitialState,
    /// A process may have several interest sets at once.
    pub many_interest_sets: bool,
    /// The kernel reports the events of a file to one interest set alone, whichever processes have the file open. The
    /// set that registers it last takes it away from the others.
    pub one_set_per_file: bool,
    /// Level-triggered or edge-triggered.
    pub trigger: Trigger,
    /// The system setting that bounds the number of watched descriptors.
    pub descriptor_limit: &'static str,
    /// The kernel can wake one of several waiters on a listener instead of all.
    pub exclusive_wake: bool,
    /// The mechanism's settings, by their names on the command line.
    pub settings: &'static [&'static dyn AnySetting],
}

impl Capabilities {
    /// True if the owner of a reported descriptor must go on until the call would block.
    pub fn must_drain(&self) -> bool {
        self.trigger == Trigger::Edge
    }
}
