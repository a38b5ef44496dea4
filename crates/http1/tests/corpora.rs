//! Replays the corpora of the fuzz targets through the functions that the targets call.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

use corpus::replay;

#[test]
fn http1_server() {
    replay("http1_server", support::server_property);
}

#[test]
fn http1_client() {
    replay("http1_client", support::client_property);
}
