//! Replays the corpus of a fuzz target. The tests of the crates with targets share it, by path.

use std::fs;
use std::path::Path;

/// Calls the target's function with each file of its corpus.
pub fn replay(target: &str, property: fn(&[u8])) {
    // The folder of the crate that includes this file.
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
