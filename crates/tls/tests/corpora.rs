//! Replays the corpora of the fuzz targets through the functions that the targets call.

#[path = "../../../fuzz/replay.rs"]
mod corpus;
mod hostile;

#[test]
fn tls_session() {
    corpus::replay("tls_session", hostile::tls_session_property);
}

#[test]
fn ocsp_response() {
    corpus::replay("ocsp_response", hostile::ocsp_response_property);
}
