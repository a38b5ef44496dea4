//! The contents of the cache, their lifetime, and their limits.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use base::{Nanos, SimulatedClock, WallTime};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use site::{CacheLimits, Options, Root, Site};

use crate::common::{Fixture, THEN, TODAY};

#[test]
fn cache_hit_notices_a_change_after_a_second() {
    let mut site = Fixture::new();
    site.write("page", "one");
    assert_eq!(site.get("/page").body, b"one");
    site.write_at("page", "two", Duration::from_secs(THEN + 1));
    site.now += Nanos(Nanos::SECOND.0 - 1);
    assert_eq!(site.get("/page").body, b"one");
    site.now += Nanos(1);
    assert_eq!(site.get("/page").body, b"two");
    site.second_passes();
    assert_eq!(site.get("/page").body, b"two");
    let counts = site.site.counts();
    assert_eq!((counts.misses, counts.hits, counts.changed, counts.revalidations), (1, 1, 1, 1));
}

#[test]
fn replaced_removed_and_new_files_are_noticed() {
    let mut site = Fixture::new();
    site.write("replaced", "old");
    site.write("removed", "old");
    site.write("large", vec![b'a'; 100_000]);
    assert_eq!(site.get("/replaced").body, b"old");
    assert_eq!(site.get("/removed").status, 200);
    assert_eq!(site.get("/new").status, 404);
    assert_eq!(site.get("/large").body, vec![b'a'; 100_000]);

    // The new file has the same length and time, but another inode.
    site.write("temporary", "new");
    fs::rename(site.path("temporary"), site.path("replaced")).unwrap();
    fs::remove_file(site.path("removed")).unwrap();
    site.write("new", "new");
    site.write("temporary", vec![b'b'; 100_000]);
    fs::rename(site.path("temporary"), site.path("large")).unwrap();

    assert_eq!(site.get("/new").status, 404);
    site.second_passes();
    assert_eq!(site.get("/replaced").body, b"new");
    assert_eq!(site.get("/removed").status, 404);
    assert_eq!(site.get("/new").body, b"new");
    assert_eq!(site.get("/large").body, vec![b'b'; 100_000]);
}

#[test]
fn siblings_that_come_and_go_are_noticed() {
    let mut site = Fixture::new();
    let accept = [("Accept-Encoding", "gzip")];
    site.write("a.css", "original");
    assert_eq!(site.get_with("/a.css", &accept).field("Vary"), None);
    site.write("a.css.gz", "gz");
    site.second_passes();
    assert_eq!(site.get_with("/a.css", &accept).body, b"gz");
    site.write_at("a.css", "original, changed", Duration::from_secs(THEN + 5));
    site.second_passes();
    let changed = site.get_with("/a.css", &accept);
    assert_eq!((changed.field("Vary"), &changed.body[..]), (None, &b"original, changed"[..]));
}

#[test]
fn a_file_that_becomes_a_directory_and_back() {
    let mut site = Fixture::new();
    site.write("name", "file");
    assert_eq!(site.get("/name").status, 200);
    fs::remove_file(site.path("name")).unwrap();
    site.write("name/index.html", "index");
    site.second_passes();
    assert_eq!(site.get("/name").status, 301);
    assert_eq!(site.get("/name/").body, b"index");
    fs::remove_dir_all(site.path("name")).unwrap();
    site.write("name", "file");
    site.second_passes();
    assert_eq!(site.get("/name").body, b"file");
    assert_eq!(site.get("/name/").status, 404);
}

#[test]
fn spellings_of_one_path_share_one_entry() {
    let mut site = Fixture::new();
    site.write("a b/é", "x");
    assert_eq!(site.get("/a%20b/%C3%A9").status, 200);
    for spelling in ["/a b/é", "//a%20b//%c3%a9", "/./a%20b/x/../%C3%A9", "/%61%20b/%c3%A9?query"] {
        assert_eq!(site.get(spelling).status, 200, "{spelling}");
    }
    let counts = site.site.counts();
    assert_eq!((counts.misses, counts.hits), (1, 4));
}

#[test]
fn limits_are_kept_by_dropping_the_least_recent() {
    let limits = CacheLimits { entries: 4, ..CacheLimits::default() };
    let mut site = Fixture::with(Options { cache: limits, ..Options::default() });
    for name in 0..6 {
        site.write(&name.to_string(), "x");
        assert_eq!(site.get(&format!("/{name}")).status, 200);
        site.get("/0");
    }
    let counts = site.site.counts();
    assert_eq!((counts.misses, counts.evicted_for_entries), (6, 2));
    site.get("/0");
    assert_eq!(site.site.counts().misses, 6, "the one used all the time stays");
    site.get("/1");
    assert_eq!(site.site.counts().misses, 7);
}

#[test]
fn bytes_and_open_files_are_bounded() {
    let limits = CacheLimits { bytes: base::Bytes(2500), open_files: 2, ..CacheLimits::default() };
    let options = Options { cache: limits, small_file: base::Bytes(1000), ..Options::default() };
    let mut site = Fixture::with(options);
    for name in 0..5 {
        site.write(&format!("small{name}"), [b'x'; 1000]);
        assert_eq!(site.get(&format!("/small{name}")).status, 200);
    }
    assert_eq!(site.site.counts().evicted_for_bytes, 3);
    for name in 0..5 {
        site.write(&format!("large{name}"), [b'x'; 1001]);
        assert!(site.get(&format!("/large{name}")).from_file);
    }
    // The two small files are the least recent and go first.
    assert_eq!(site.site.counts().evicted_for_open_files, 5);
}

#[test]
fn what_nobody_asks_for_is_closed_after_a_while() {
    let mut site = Fixture::new();
    site.write("forgotten", vec![b'x'; 100_000]);
    site.write("popular", "x");
    site.get("/forgotten");
    for _ in 0..61 {
        assert_eq!(site.site.counts().dropped_idle, 0);
        site.get("/popular");
        site.second_passes();
    }
    site.get("/popular");
    assert_eq!(site.site.counts().dropped_idle, 1);
    site.get("/forgotten");
    assert_eq!(site.site.counts().misses, 3);
}

#[test]
fn absent_names_do_not_crowd_out_files() {
    let limits = CacheLimits { entries: 2, absent: 10, ..CacheLimits::default() };
    let mut site = Fixture::with(Options { cache: limits, ..Options::default() });
    site.write("page", "x");
    site.get("/page");
    for name in 0..50 {
        assert_eq!(site.get(&format!("/absent{name}")).status, 404);
    }
    site.get("/page");
    let counts = site.site.counts();
    assert_eq!((counts.hits, counts.evicted_absent, counts.not_found), (1, 40, 50));
}

#[test]
fn vanished_root_gives_503_until_its_return() {
    let mut site = Fixture::new();
    site.write("page", "before");
    assert_eq!(site.get("/page").body, b"before");
    fs::rename(site.path(""), site.place.path().join("away")).unwrap();
    site.second_passes();
    let missing = site.get("/page");
    assert_eq!((missing.status, missing.field("Retry-After")), (503, Some("1")));
    site.second_passes();
    assert_eq!(site.get("/page").status, 503);
    site.write("page", "after");
    site.second_passes();
    assert_eq!(site.get("/page").body, b"after");
    let counts = site.site.counts();
    assert_eq!((counts.root_missing, counts.root_replaced), (2, 1));

    fs::remove_dir_all(site.path("")).unwrap();
    site.write("page", "again");
    site.second_passes();
    assert_eq!(site.get("/page").body, b"again");
}

/// Takes from this thread what lets root read every file.
fn respect_permissions() {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    set_capabilities(None, sets).unwrap();
}

#[test]
fn unreadable_files_are_forbidden() {
    // A thread of its own: the test's may run other tests.
    let asked = thread::spawn(|| {
        respect_permissions();
        let mut site = Fixture::new();
        site.write("page", "x");
        fs::set_permissions(site.path("page"), PermissionsExt::from_mode(0o000)).unwrap();
        assert_eq!(site.get("/page").status, 403);
        fs::set_permissions(site.path("page"), PermissionsExt::from_mode(0o644)).unwrap();
        site.second_passes();
        assert_eq!(site.get("/page").status, 200);
    });
    asked.join().unwrap();
}

#[test]
fn change_within_a_second_changes_the_entity_tag() {
    let mut site = Fixture::new();
    site.write("page", "one");
    let first = site.get("/page").field("ETag").unwrap().to_owned();
    site.write("page", "two");
    let file = File::options().write(true).open(site.path("page")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(THEN, 1)).unwrap();
    site.second_passes();
    let second = site.get_with("/page", &[("If-None-Match", &first)]);
    assert_eq!((second.status, &second.body[..]), (200, &b"two"[..]));
}

/// The entity tags of a small file, of a large file, and of a small file's sibling.
fn entity_tags(site: &mut Fixture) -> [String; 3] {
    let gzip = &[("Accept-Encoding", "gzip")][..];
    [("/small", &[][..]), ("/large", &[]), ("/small", gzip)]
        .map(|(target, fields)| site.get_with(target, fields).field("ETag").unwrap().to_owned())
}

#[test]
fn file_of_equal_time_and_length_has_another_tag() {
    let mut site = Fixture::new();
    let files = [("small", 3), ("large", 100_000), ("small.gz", 2)];
    let write = |site: &Fixture, letter: &str, suffix: &str| {
        for (name, length) in files {
            site.write(&format!("{name}{suffix}"), letter.repeat(length));
        }
    };
    write(&site, "a", "");
    let first = entity_tags(&mut site);
    write(&site, "b", ".new");
    for (name, _) in files {
        fs::rename(site.path(&format!("{name}.new")), site.path(name)).unwrap();
    }
    site.second_passes();
    let replaced = entity_tags(&mut site);
    // The file is rewritten in place. The kernel's time of change must have moved on, which takes a tick on
    // older kernels.
    let changed = |site: &Fixture| {
        files.map(|(name, _)| {
            let data = fs::metadata(site.path(name)).unwrap();
            (data.ctime(), data.ctime_nsec())
        })
    };
    let before = changed(&site);
    while changed(&site).iter().zip(&before).any(|(now, before)| now == before) {
        write(&site, "c", "");
    }
    site.second_passes();
    let rewritten = entity_tags(&mut site);
    for tags in [&first, &replaced, &rewritten] {
        assert!(tags.iter().all(|tag| first == *tags || !first.contains(tag)), "{first:?} {tags:?}");
    }
    assert!(replaced.iter().all(|tag| !rewritten.contains(tag)), "{replaced:?} {rewritten:?}");
    let old = site.get_with("/small", &[("If-None-Match", &first[0])]);
    assert_eq!((old.status, &old.body[..]), (200, &b"ccc"[..]));
}

#[test]
fn entity_tag_is_equal_in_every_loop_and_restart() {
    let mut site = Fixture::new();
    site.write("small", "abc");
    site.write("small.gz", "ab");
    site.write("large", "x".repeat(100_000));
    let first = entity_tags(&mut site);
    let root = Arc::new(Root::open(site.path("")).unwrap());
    let clock = SimulatedClock::new(WallTime { seconds: TODAY + 1000 });
    site.site = Site::new(root, Options::default(), clock);
    assert_eq!(entity_tags(&mut site), first);
}

#[test]
fn site_moves_to_its_thread_and_shares_the_root() {
    fn movable<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    movable::<site::Site>();
    shared::<site::Root>();
}
