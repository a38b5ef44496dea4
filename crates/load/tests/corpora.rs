//! Replays the corpus of the fuzz target through the function that the target calls.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

#[test]
fn requests_file() {
    corpus::replay("requests_file", support::requests_file_property);
}
