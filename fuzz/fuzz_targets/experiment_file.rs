//! Any bytes as an experiment's file; the property is in the tests of `lab`, which also replay this target's corpus.
#![no_main]

#[path = "../../crates/lab/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    support::experiment_file_property(data);
});
