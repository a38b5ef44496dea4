//! Any bytes as an OCSP response; the property is in the tests of `tls`, which also replay this target's corpus.
#![no_main]
#![allow(dead_code, reason = "the other property is another target's")]

#[path = "../../crates/tls/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::ocsp_response_property(data));
