//! Any bytes as the header of the PROXY protocol, in pieces; the property is in the tests of `connection`, which also replay
//! this target's corpus.
#![no_main]

#[path = "../../crates/connection/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::proxy_header_property(data));
