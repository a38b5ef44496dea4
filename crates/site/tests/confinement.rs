//! No request gets a file from outside the root.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{SimulatedClock, WallTime};
use common::{Fixture, TODAY};
use proptest::prelude::*;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use site::{Options, Root, Site};

const SECRET: &str = "the secret outside";

/// A root with every kind of link that leads out. Secrets lie beside the root under names that exist inside
/// too.
fn besieged(options: Options) -> Fixture {
    let site = Fixture::with(options);
    let outside = site.place.path();
    fs::create_dir(outside.join("a")).unwrap();
    for name in ["secret", "a/secret", "index.html", "a/index.html"] {
        fs::write(outside.join(name), SECRET).unwrap();
    }
    for name in ["index.html", "a/index.html", "a/b/file", "..hidden", "%2e%2e", "..\\secret", ".x/file"] {
        site.write(name, format!("inside {name}"));
    }
    symlink("a/b", site.path("in")).unwrap();
    symlink("../b/file", site.path("a/b/again")).unwrap();
    symlink("..", site.path("out")).unwrap();
    symlink("../secret", site.path("file-out")).unwrap();
    symlink("../../secret", site.path("a/out")).unwrap();
    symlink(outside.join("secret"), site.path("absolute-out")).unwrap();
    symlink(site.path("a/b/file"), site.path("absolute-in")).unwrap();
    symlink("/", site.path("slash")).unwrap();
    symlink("/proc/self/cwd", site.path("magic")).unwrap();
    symlink("index.html", site.path("a/b/index.html")).unwrap();
    fs::remove_file(site.path("a/b/index.html")).unwrap();
    symlink("../../../index.html", site.path("a/b/index.html")).unwrap();
    site
}

#[test]
fn ways_out_are_refused() {
    let mut site = besieged(Options::default());
    for (target, status) in [
        ("/../secret", 400),
        ("/a/../../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/.%2e/secret", 400),
        ("/a/%2e%2e/%2e%2e/secret", 400),
        ("/..%2fsecret", 400),
        ("/%2e%2e%2fsecret", 400),
        ("/%252e%252e/secret", 404),
        ("/%252e%252e%252fsecret", 404),
        ("/..%5csecret", 404),
        ("/..\\secret", 404),
        ("/%c0%ae%c0%ae/secret", 404),
        ("/secret%00.html", 400),
        ("/out/secret", 404),
        ("/out", 404),
        ("/out/", 404),
        ("/out/root/index.html", 404),
        ("/file-out", 404),
        ("/a/out", 404),
        ("/a/b/", 404),
        ("/absolute-out", 404),
        ("/absolute-in", 200),
        ("/slash/etc/passwd", 404),
        ("/magic/Cargo.toml", 404),
        ("//etc/passwd", 404),
        ("/in/file", 200),
        ("/a/b/again", 200),
        ("/in/../index.html", 200),
    ] {
        for _ in 0..2 {
            let answer = site.get(target);
            assert_eq!(answer.status, status, "{target}");
            assert!(answer.status != 200 || answer.body.starts_with(b"inside"), "{target}");
        }
    }
    let counts = site.site.counts();
    assert_eq!((counts.bad_paths, counts.refused_escapes), (16, 20), "{counts:?}");
}

/// A root with links to shown and to hidden files.
fn linked(options: Options) -> Fixture {
    let site = Fixture::with(options);
    for name in ["page", "dir/page", ".git/config", ".secret", "dir/.secret", ".well-known/page", "page.gz"] {
        site.write(name, format!("inside {name}"));
    }
    for (target, link) in [
        (".secret", "to-secret"),
        (".git/config", "to-config"),
        (".git", "to-git"),
        ("dir/.secret", "deep"),
        ("to-secret", "twice"),
        (".hidden-link", "through-hidden"),
        ("page", ".hidden-link"),
        ("dir", "to-dir"),
        (".well-known/page", "well-known"),
        (".well-known", "to-well-known"),
        ("../.secret", "dir/up"),
        ("./././/dir//page", "untidy"),
        ("dir/../page", "up-and-down"),
        ("loop-b", "loop-a"),
        ("loop-a", "loop-b"),
        ("nothing", "dangling"),
        ("/", "top"),
    ] {
        symlink(target, site.path(link)).unwrap();
    }
    symlink(site.path(".secret"), site.path("absolute-secret")).unwrap();
    symlink(site.path("dir"), site.path("absolute-dir")).unwrap();
    symlink(site.path(""), site.path("absolute-root")).unwrap();
    symlink(site.path("../root/page"), site.path("absolute-up")).unwrap();
    symlink(site.path("../root-beside/page"), site.path("absolute-beside")).unwrap();
    let beside = site.place.path().join("root-beside");
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("page"), SECRET).unwrap();
    site
}

#[test]
fn name_of_a_links_target_decides_hiding() {
    for show_dot_files in [false, true] {
        let mut site = linked(Options { show_dot_files, ..Options::default() });
        let hidden = if show_dot_files { 200 } else { 404 };
        for (target, status) in [
            ("/page", 200),
            ("/to-dir/page", 200),
            ("/well-known", 200),
            ("/to-well-known/page", 200),
            ("/untidy", 200),
            ("/up-and-down", 200),
            ("/through-hidden", 200),
            ("/to-secret", hidden),
            ("/to-config", hidden),
            ("/to-git/config", hidden),
            ("/deep", hidden),
            ("/twice", hidden),
            ("/dir/up", hidden),
            ("/to-dir/.secret", hidden),
            ("/.hidden-link", hidden),
            ("/absolute-secret", hidden),
            ("/absolute-dir/.secret", hidden),
            ("/absolute-dir/page", 200),
            ("/absolute-root/absolute-root/dir/page", 200),
            ("/absolute-root/.secret", hidden),
            ("/absolute-up", 404),
            ("/absolute-beside", 404),
            ("/loop-a", 404),
            ("/dangling", 404),
            ("/top/etc/passwd", 404),
        ] {
            for _ in 0..2 {
                let answer = site.get(target);
                assert_eq!(answer.status, status, "{target}, dot-files shown: {show_dot_files}");
                assert!(status != 200 || answer.body.starts_with(b"inside"), "{target}");
            }
        }
        let counts = site.site.counts();
        assert_eq!(counts.hidden > 0, !show_dot_files, "{counts:?}");
    }
}

#[test]
fn a_hidden_precompressed_sibling_is_not_offered() {
    let mut site = linked(Options::default());
    symlink(".secret", site.path("page.br")).unwrap();
    let answer = site.get_with("/page", &[("Accept-Encoding", "br, gzip;q=0.5")]);
    assert_eq!((answer.status, answer.field("Content-Encoding")), (200, Some("gzip")));
}

#[test]
fn absolute_links_go_by_either_path_of_the_root() {
    let mut site = linked(Options::default());
    let current = site.place.path().join("current");
    symlink("root", &current).unwrap();
    symlink(current.join("page"), site.path("by-current")).unwrap();
    symlink(site.path("page"), site.path("by-root")).unwrap();
    let root = Arc::new(Root::open(&current).unwrap());
    site.site = Site::new(root, Options::default(), SimulatedClock::new(WallTime { seconds: TODAY }));
    for target in ["/by-current", "/by-root"] {
        assert_eq!(site.get(target).status, 200, "{target}");
    }
}

/// A directory becomes a link to the outside and back, as fast as the kernel allows, during look-ups below
/// it.
#[test]
fn link_changed_while_followed_leads_nowhere_else() {
    let mut site = linked(Options::default());
    let outside = site.place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("page"), SECRET).unwrap();
    symlink("dir/page", site.path("via")).unwrap();
    symlink(&outside, site.path("turned")).unwrap();
    let (dir, turned) = (site.path("dir"), site.path("turned"));
    let exchange = || renameat_with(CWD, &dir, CWD, &turned, RenameFlags::EXCHANGE);
    if let Err(errno) = exchange() {
        println!("skipped: this file system cannot exchange two names: {errno}");
        return;
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                exchange().unwrap();
            }
        });
        let mut served = 0;
        for _ in 0..2000 {
            site.second_passes();
            for target in ["/via", "/dir/page", "/dir/.secret"] {
                let answer = site.get(target);
                assert!(
                    answer.status != 200 || answer.body.starts_with(b"inside dir/page"),
                    "{target}: {answer:?}"
                );
                served += u32::from(answer.status == 200);
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(served > 0, "the link leads inside now and then");
    });
}

#[test]
fn a_link_turned_outwards_is_noticed() {
    let mut site = besieged(Options::default());
    assert_eq!(site.get("/in/file").status, 200);
    fs::remove_file(site.path("in")).unwrap();
    symlink("..", site.path("in")).unwrap();
    site.second_passes();
    assert_eq!(site.get("/in/secret").status, 404);
    assert_eq!(site.get("/in/file").status, 404);
}

#[test]
fn special_files_are_not_found_and_do_not_block() {
    let mut site = Fixture::new();
    let fifo = site.path("fifo");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o644));
    rustix::fs::mknodat(rustix::fs::CWD, fifo, kind, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.path("socket")).unwrap();
    for target in ["/fifo", "/socket"] {
        assert_eq!(site.get(target).status, 404, "{target}");
    }
}

#[test]
fn names_too_long_are_not_found() {
    let mut site = Fixture::new();
    assert_eq!(site.get(&format!("/{}", "x".repeat(300))).status, 404);
    assert_eq!(site.get(&format!("/{}", "x/".repeat(3000))).status, 404);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_the_paths_nothing_outside_is_served(
        built in proptest::collection::vec("(/|/|\\.\\.|\\.|%2e|%2E|%2f|%5c|\\\\|%25|a|b|in|out|secret|file-out|absolute-out|absolute-in|slash|index\\.html|root|\\PC){1,12}", 40),
        noise in proptest::collection::vec("\\PC{0,20}", 10),
        show_dot_files: bool,
    ) {
        let mut site = besieged(Options { show_dot_files, ..Options::default() });
        for path in built.iter().chain(&noise) {
            let answer = site.get(&format!("/{path}"));
            prop_assert!([200, 301, 400, 404].contains(&answer.status), "{path}: {}", answer.status);
            let inside = answer.status != 200 || answer.body.starts_with(b"inside");
            prop_assert!(inside, "{path}: {:?}", String::from_utf8_lossy(&answer.body));
            if let Some(location) = answer.field("Location") {
                prop_assert!(location.starts_with('/') && !location.starts_with("//"), "{path}: {location}");
            }
        }
    }
}
