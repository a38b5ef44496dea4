//! Replays the corpora of the fuzz targets through the functions that the targets call.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

#[test]
fn requests_file() {
    corpus::replay("requests_file", support::requests_file_property);
}

#[test]
fn fleet_order() {
    corpus::replay("fleet_order", support::fleet_order_property);
}
