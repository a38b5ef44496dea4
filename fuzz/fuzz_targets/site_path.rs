//! Any bytes as the path of a request; the property is in the tests of `site`, which also replay this target's corpus.
#![no_main]

#[path = "../../crates/site/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::site_path_property(data));
