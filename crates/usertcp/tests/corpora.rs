//! Replays the corpora of the fuzz targets through the functions that the targets call, and tries random
//! inputs.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

use corpus::replay;
use proptest::prelude::*;
use support::properties::{endpoint_property, frame_property};

#[test]
fn usertcp_frame() {
    replay("usertcp_frame", frame_property);
}

#[test]
fn usertcp_endpoint() {
    replay("usertcp_endpoint", endpoint_property);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_of_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        frame_property(&bytes);
    }

    /// The endpoint is established at once, so that most of the input concerns the rest of its life.
    #[test]
    fn endpoints_under_any_input(
        setting in any::<u8>(),
        rest in prop::collection::vec(prop_oneof![2 => any::<u8>(), 1 => Just(0), 1 => 5_u8..10, 1 => Just(32)], 0..400),
    ) {
        endpoint_property(&[&[setting | 4][..], &rest].concat());
    }
}
