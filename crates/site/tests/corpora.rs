//! Replays the corpus of the fuzz target through the function that the target calls.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

#[test]
fn site_path() {
    corpus::replay("site_path", support::site_path_property);
}
