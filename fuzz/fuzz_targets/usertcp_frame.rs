//! Any bytes as a packet and as an Ethernet frame; the property is in the tests of `usertcp`, which also replay this
//! target's corpus.
#![no_main]

#[path = "../../crates/usertcp/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::properties::frame_property(data));
