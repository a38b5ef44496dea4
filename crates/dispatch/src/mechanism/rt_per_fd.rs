//! Real-time signals, one per descriptor (Chandra and Mosberger, "Scalability of Linux Event-Dispatch
//! Mechanisms", 2001; FDM, section 2). An event of a descriptor with a pending signal is added to that
//! signal.
//!
//! The paper's version is a kernel patch. With it the queue cannot overflow if it is as long as the
//! descriptor limit. In user space every wait fetches the *whole* queue and keeps one pending entry per
//! descriptor, so the entries cannot overflow. Deviation: the kernel's own queue can still overflow between
//! two waits. User space cannot keep the kernel from queueing a second announcement before the first is
//! fetched. After an overflow every member is polled.

use super::signals::{Delivery, Recovering, Variant};
use super::{Mechanism, Poll, RtSignals};
use crate::capabilities::{Capabilities, Overflow};

/// The mechanism with one signal per descriptor. It belongs to the thread that makes it.
pub type RtPerFd = Recovering<OnePerDescriptor>;

/// What sets [`RtPerFd`] apart.
pub struct OnePerDescriptor;

impl Variant for OnePerDescriptor {
    const CAPABILITIES: Capabilities = Capabilities {
        name: "rt-per-fd",
        collapses: true,
        overflow: Overflow::BetweenWaits,
        ..RtSignals::CAPABILITIES
    };
    const DELIVERY: Delivery = Delivery::Collapsed;
    type Recovery = Poll;
}
