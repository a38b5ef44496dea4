//! The checked-in objects are the result of building the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use base::Nanos;
use sys::process::Program;

/// The exit code of `programs/build` without the pinned compiler.
const NO_COMPILER: i32 = 3;

fn names(folder: &Path, suffix: &str) -> BTreeSet<String> {
    let entries =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    entries.filter_map(|name| name.strip_suffix(suffix).map(str::to_owned)).collect()
}

#[test]
fn rebuilt_objects_equal_those_checked_in() {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/programs"));
    assert_eq!(names(sources, ".c"), names(sources, ".o"), "each source has its object");
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let built = Program::new(sources.join("build"))
        .arguments([folder.path()])
        .environment("ZIG_GLOBAL_CACHE_DIR", &cache)
        .environment("ZIG_LOCAL_CACHE_DIR", &cache)
        .start()
        .unwrap()
        .output(Nanos::from_millis(50), || true)
        .unwrap();
    let messages = String::from_utf8_lossy(&built.stderr);
    if built.exit.status.code() == Some(NO_COMPILER) {
        return println!("skipped: the pinned compiler is not installed: {}", messages.trim());
    }
    assert!(built.exit.status.success(), "{messages}");
    for name in names(sources, ".o") {
        let object = format!("{name}.o");
        let same = fs::read(sources.join(&object)).unwrap() == fs::read(folder.path().join(&object)).unwrap();
        assert!(same, "programs/{object} is not what programs/{name}.c gives: run programs/build");
    }
}
