//! Any bytes to a server's connection over HTTP/2, in any pieces; the property is in the tests of `http2`, which also replay
//! this target's corpus.
#![no_main]

#[path = "../../crates/http2/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::server_property(data));
