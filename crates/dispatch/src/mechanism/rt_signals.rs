//! Real-time signals with recovery by poll: phhttpd's way, as the FDM paper measures it (section 2, figures 9
//! to 11). The array for poll follows every change of interest, so that an overflow of the queue needs no
//! preparation. The paper's server rearranges the array once in several fetches, which makes it slower than recovery
//! by select in figure 11; that is `upkeep`, a setting.
//!
//! Deviations: announcements are fetched in batches unless [`RtFetch::One`] is chosen. Even with `One`, the
//! mechanism sleeps in a poll of the queue, so that descriptors that announce nothing are watched beside it. A descriptor that
//! leaves the array is replaced by the last one, so a change moves one entry at most.

use super::Poll;
use super::signals::{Delivery, FETCH, Recovering, Variant};
use super::upkeep::UPKEEP;
use crate::capabilities::{Capabilities, InitialState, Overflow, Trigger};

/// The mechanism with recovery by poll. It belongs to the thread that makes it.
pub type RtSignals = Recovering<EachWithPoll>;

/// What sets [`RtSignals`] apart.
pub struct EachWithPoll;

impl Variant for EachWithPoll {
    const CAPABILITIES: Capabilities = Capabilities {
        name: "rt-signals",
        scales: true,
        collapses: false,
        many_events_per_call: true,
        overflow: Overflow::Queue,
        kernel_falls_back: false,
        recovers_by: Some("poll"),
        initial_state: InitialState::PolledOnce,
        many_interest_sets: false,
        one_set_per_file: true,
        trigger: Trigger::Edge,
        descriptor_limit: "RLIMIT_NOFILE",
        exclusive_wake: false,
        settings: &[&FETCH, &UPKEEP],
    };
    const DELIVERY: Delivery = Delivery::Each;
    type Recovery = Poll;
}
