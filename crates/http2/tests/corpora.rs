//! Replays the corpora of the fuzz targets through the functions that the targets call.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod support;

use corpus::replay;

#[test]
fn http2_server() {
    replay("http2_server", support::server_property);
}

#[test]
fn http2_client() {
    replay("http2_client", support::client_property);
}
