//! Replays the corpus of the fuzz target through the function that the target calls.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

#[test]
fn experiment_file() {
    corpus::replay("experiment_file", support::experiment_file_property);
}
