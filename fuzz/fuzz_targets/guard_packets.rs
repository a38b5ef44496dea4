//! Any bytes as a frame for the programs that refuse SYNs on devices, run by BPF_PROG_TEST_RUN. Needs root; without the
//! rights it says so once and tries nothing. The property is in the tests of `bpf`, which also replay this target's corpus.
#![no_main]

#[path = "../../crates/bpf/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| support::packet_property(data));
