//! Answers from memory alone. A site serves what is in memory, reports the rest as missing, and can serve it
//! after another site's look-up.

mod common;

use std::fs::File;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use base::SimulatedClock;
use common::Fixture;
use http_semantics::{Body, Request, Response, Service, Status};
use rustix::fs::{Advice, fadvise, fsync};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};
use site::Site;

fn get(target: &str) -> Request<'_> {
    Request { host: "h", ..Request::get(target) }
}

fn from_memory(
    site: &mut Site<SimulatedClock>,
    fixture_now: base::Nanos,
    target: &str,
) -> Option<Response<site::File>> {
    site.respond_from_memory(&get(target), fixture_now)
}

/// The length of a file that takes a disk milliseconds. To ask for contents makes the kernel read them, and those
/// of a short file can be there before the kernel looks.
const LONG: usize = 16 << 20;

/// Options that keep a file of [`LONG`] bytes in the site's own cache.
fn keeps_long_files() -> site::Options {
    site::Options { small_file: base::Bytes(LONG as u64), ..Default::default() }
}

/// Makes the kernel forget a file's contents.
fn evict(file: &File) {
    fsync(file).unwrap();
    // The kernel silently keeps a page that is in use at the moment, for instance by reclaim.
    for _ in 0..100 {
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
    }
}

/// True if the kernel forgets a file's contents when told to, and reports it. The check uses a file of its
/// own, because checking makes the kernel read the file.
fn forgets(fixture: &Fixture) -> bool {
    fixture.write("shown.txt", vec![b'x'; LONG]);
    let file = File::open(fixture.path("shown.txt")).unwrap();
    evict(&file);
    let mut whole = vec![0; LONG];
    let read = preadv2(&file, &mut [IoSliceMut::new(&mut whole)], 0, ReadWriteFlags::NOWAIT);
    !matches!(read, Ok(LONG) | Err(Errno::OPNOTSUPP))
}

#[test]
fn page_cache_content_is_served_and_missing_is_absent() {
    let mut fixture = Fixture::new();
    fixture.write("small.txt", "content");
    fixture.write(".hidden", "hidden");
    symlink("small.txt", fixture.path("link.txt")).unwrap();
    symlink(fixture.path("small.txt"), fixture.path("absolute.txt")).unwrap();
    symlink(".hidden", fixture.path("to-hidden.txt")).unwrap();
    // The other site's look-up puts the names into the kernel's cache, including those that do not exist.
    for target in ["/small.txt", "/nothing.txt", "/link.txt", "/absolute.txt", "/to-hidden.txt"] {
        fixture.get(target);
    }
    let root = Arc::new(site::Root::open(fixture.path("")).unwrap());
    let mut site = Site::new(
        root,
        site::Options::default(),
        SimulatedClock::new(base::WallTime { seconds: common::TODAY }),
    );
    for target in ["/small.txt", "/link.txt", "/absolute.txt"] {
        let found = from_memory(&mut site, fixture.now, target).expect("it has just been read");
        assert!(matches!(found.body, Body::Bytes(bytes) if &bytes[..] == b"content"));
    }
    for target in ["/nothing.txt", "/to-hidden.txt"] {
        let absent = from_memory(&mut site, fixture.now, target).expect("its absence has just been found");
        assert_eq!(absent.status, Status::NOT_FOUND);
    }
    assert_eq!(site.counts().cold, 0);
}

#[test]
fn contents_that_are_not_in_memory_are_not_waited_for() {
    let mut fixture = Fixture::new();
    let content = vec![b'x'; LONG];
    fixture.write("long.txt", &content);
    fixture.get("/long.txt");
    if !forgets(&fixture) {
        println!("skipped: this file system keeps what it is told to forget, or cannot tell what it has");
        return;
    }
    evict(&File::open(fixture.path("long.txt")).unwrap());
    let root = Arc::new(site::Root::open(fixture.path("")).unwrap());
    let clock = SimulatedClock::new(base::WallTime { seconds: common::TODAY });
    let mut site = Site::new(Arc::clone(&root), keeps_long_files(), clock.clone());
    assert!(from_memory(&mut site, fixture.now, "/long.txt").is_none());
    assert_eq!((site.counts().cold, site.counts().hits), (1, 0));
    let mut helper = Site::new(root, keeps_long_files(), clock);
    assert_eq!(helper.respond(&get("/long.txt"), fixture.now).status, Status::OK);
    let found = from_memory(&mut site, fixture.now, "/long.txt").expect("a helper has read it");
    assert!(matches!(found.body, Body::Bytes(bytes) if bytes[..] == content));
    // From here on the site's own cache has the file.
    evict(&File::open(fixture.path("long.txt")).unwrap());
    assert!(from_memory(&mut site, fixture.now, "/long.txt").is_some());
    assert_eq!(site.counts().hits, 1);
}
