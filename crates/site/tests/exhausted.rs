//! Descriptor exhaustion. This is one test in a process of its own, because the limit holds for the process.

mod common;

use std::fs::File;

use common::Fixture;
use rustix::process::{Resource, getrlimit, setrlimit};

#[test]
fn exhausted_descriptors_serve_only_cached_files() {
    let mut site = Fixture::new();
    site.write("small", "small");
    site.write("large", vec![b'x'; 100_000]);
    site.write("unknown", "unknown");
    assert_eq!(site.get("/small").status, 200);
    assert_eq!(site.get("/large").status, 200);

    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(64);
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }

    site.second_passes();
    assert_eq!(site.get("/small").status, 200);
    let unknown = site.get("/unknown");
    assert_eq!((unknown.status, unknown.field("Retry-After")), (503, Some("1")));
    assert_eq!(site.get("/unknown").status, 503);
    let counts = site.site.counts();
    assert_eq!((counts.descriptors_exhausted, counts.revalidations_skipped), (2, 1));

    hoard.clear();
    assert_eq!(site.get("/unknown").body, b"unknown");
    assert_eq!(site.get("/large").body.len(), 100_000);
    site.second_passes();
    assert_eq!(site.get("/small").status, 200);
}
