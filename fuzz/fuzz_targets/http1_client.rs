//! Any bytes to the reader of replies, in any pieces; the property is in the tests of `http1`, which
//! also replay this target's corpus.
#![no_main]

#[path = "../../crates/http1/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::client_property(data));
