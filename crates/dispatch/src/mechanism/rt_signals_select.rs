//! Real-time signals with recovery by select (FDM, section 5, figure 11). The bitmaps follow every change, so
//! that an overflow of the queue needs no preparation.

use super::signals::{Delivery, Recovering, Variant};
use super::{Mechanism, RtSignals, Select};
use crate::capabilities::Capabilities;

/// The mechanism with recovery by select. It belongs to the thread that makes it.
pub type RtSignalsSelect = Recovering<EachWithSelect>;

/// What sets [`RtSignalsSelect`] apart.
pub struct EachWithSelect;

impl Variant for EachWithSelect {
    const CAPABILITIES: Capabilities =
        Capabilities { name: "rt-signals-select", recovers_by: Some("select"), ..RtSignals::CAPABILITIES };
    const DELIVERY: Delivery = Delivery::Each;
    type Recovery = Select;
}
