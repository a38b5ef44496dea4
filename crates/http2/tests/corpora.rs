//! Replays the corpora of the fuzz targets through the functions that the targets call.

mod support;

use std::fs;
use std::path::Path;

fn replay(target: &str, property: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut replayed = 0;
    for file in files {
        let path = file.unwrap().path();
        println!("{}", path.display());
        property(&fs::read(&path).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 10, "{}: only {replayed} files", corpus.display());
}

#[test]
fn http2_server() {
    replay("http2_server", support::server_property);
}

#[test]
fn http2_client() {
    replay("http2_client", support::client_property);
}
