//! Nothing outside the root is ever served, whatever is asked.

mod common;

use std::fs;
use std::os::unix::fs::symlink;

use common::Fixture;
use proptest::prelude::*;
use site::Options;

const SECRET: &str = "the secret outside";

/// A root with every kind of way out, and secrets next to it under names that are also found inside.
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
        ("/absolute-in", 404),
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
    assert_eq!((counts.bad_paths, counts.refused_escapes), (16, 22), "{counts:?}");
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
fn fifos_sockets_and_devices_are_not_found_and_do_not_block() {
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
        built in proptest::collection::vec("(/|/|\\.\\.|\\.|%2e|%2E|%2f|%5c|\\\\|%25|a|b|in|out|secret|file-out|absolute-out|slash|index\\.html|root|\\PC){1,12}", 40),
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
