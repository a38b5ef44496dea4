//! Any bytes as the settings of a fleet's order; the property is in the tests of `load`, which also replay this target's
//! corpus.
#![no_main]
#![allow(dead_code, reason = "the other property is another target's")]

#[path = "../../crates/load/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    support::fleet_order_property(data);
});
