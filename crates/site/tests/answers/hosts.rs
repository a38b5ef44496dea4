//! Several hosts: each request gets the files and the rules of its host, and of no other.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use base::{Clock, Nanos, SimulatedClock, WallTime};
use http_semantics::{Body, Request, Service, Sni, Transport};
use proptest::prelude::*;
use site::hosts::{Names, Speaks};
use site::{Host, HostName, Hosts, LiveRules, Options, Root, Rules, Sites};

/// A default host, one with the names `a.test` and `*.wild.test`, and one with `b.test`.
struct Fixture {
    _place: tempfile::TempDir,
    live: LiveRules,
    hosts: Hosts,
    sites: Sites<SimulatedClock>,
}

fn clock() -> SimulatedClock {
    SimulatedClock::new(WallTime { seconds: 2_000_000_000 })
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with_certificates(None)
    }

    fn with_certificates(speaks: Option<Speaks>) -> Fixture {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("secret"), "secret").unwrap();
        let live = LiveRules::default();
        let host = |name: &str, rules: &LiveRules| {
            let root = place.path().join(name);
            fs::create_dir(&root).unwrap();
            fs::write(root.join("name"), name).unwrap();
            fs::write(root.join(format!("only-{name}")), name).unwrap();
            Host {
                root: Arc::new(Root::open(root).unwrap()),
                options: Options { rules: rules.clone(), ..Options::default() },
            }
        };
        let redirects = vec!["/old /new".parse().unwrap()];
        let ruled = LiveRules::new(Rules { redirects, ..Rules::default() });
        let list = vec![host("default", &LiveRules::default()), host("a", &ruled), host("b", &live)];
        let names: [&[&str]; 3] = [&[], &["a.test", "*.wild.test"], &["b.test"]];
        let names =
            names.map(|names| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<HostName>>());
        let names = Arc::new(Names::new(names.iter().map(Vec::as_slice)).unwrap());
        let hosts = Hosts::new(list, names, speaks);
        Fixture { _place: place, live, sites: hosts.sites(clock()), hosts }
    }

    fn ask(&mut self, host: &str, target: &str, sni: Option<Sni>) -> (u16, Vec<u8>) {
        let request = Request {
            host,
            transport: sni.map_or(Transport::Plain, |sni| Transport::Tls(Some(sni))),
            ..Request::get(target)
        };
        let response = self.sites.respond(&request, clock().now());
        let Body::Bytes(bytes) = response.body else { panic!("{:?}", response.body) };
        (response.status.0, bytes.to_vec())
    }

    fn get(&mut self, host: &str, target: &str) -> (u16, String) {
        let (status, bytes) = self.ask(host, target, None);
        (status, String::from_utf8(bytes).unwrap())
    }
}

#[test]
fn each_host_has_its_files_and_its_rules() {
    let mut fixture = Fixture::new();
    // Twice: from the disk and from the caches.
    for _ in 0..2 {
        for (host, name) in [
            ("a.test", "a"),
            ("A.TEST.:8080", "a"),
            ("x.y.wild.test", "a"),
            ("b.test", "b"),
            ("wild.test", "default"),
            ("", "default"),
            ("127.0.0.1:80", "default"),
        ] {
            assert_eq!(fixture.get(host, "/name"), (200, name.to_owned()), "{host}");
            assert_eq!(fixture.get(host, "/only-default").0 == 200, name == "default", "{host}");
            assert_eq!(fixture.get(host, "/old").0, if name == "a" { 302 } else { 404 }, "{host}");
        }
    }
    let counts = fixture.sites.counts();
    assert_eq!((counts.redirects, counts.misdirected), (6, 0));
    assert!(counts.hits > 0, "{counts:?}");
}

#[test]
fn rules_change_for_one_host() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.get("b.test", "/gone").0, 404);
    let fallback = Some("/name".parse().unwrap());
    fixture.live.take_from(&LiveRules::new(Rules { fallback, ..Rules::default() }));
    // A loop that begins now has the new rules at once.
    fixture.sites = fixture.hosts.sites(clock());
    assert_eq!(fixture.get("b.test", "/gone"), (200, "b".to_owned()));
    assert_eq!(fixture.get("a.test", "/gone").0, 404);
    assert_eq!(fixture.get("", "/gone").0, 404);
}

#[test]
fn a_connection_with_another_certificate_is_refused() {
    // Certificate 0 names nobody, 1 names a.test and 2 names b.test and a.test.
    let speaks: Speaks = Arc::new(|certificate, host| match certificate {
        1 => host == "a.test",
        2 => ["a.test", "b.test"].contains(&host),
        _ => false,
    });
    let mut fixture = Fixture::with_certificates(Some(speaks));
    for (host, certificate, asked, expected) in [
        (1, 1, "a.test:443", 200),
        (1, 1, "x.wild.test", 200),
        (1, 1, "b.test", 421),
        (1, 1, "B.test.:443", 421),
        (1, 1, "unknown.test", 200),
        (2, 2, "a.test", 200),
        (2, 2, "x.wild.test", 421),
        (0, 0, "unknown.test", 200),
        (0, 0, "a.test", 421),
    ] {
        let (status, _) = fixture.ask(asked, "/name", Some(Sni { host, certificate }));
        assert_eq!(status, expected, "{host} {asked}");
    }
    assert_eq!(fixture.get("b.test", "/name").0, 200, "a client without SNI");
    assert_eq!(fixture.sites.counts().misdirected, 4);
}

#[test]
fn a_server_of_one_host_looks_at_no_name() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("name"), "one").unwrap();
    let root = Arc::new(Root::open(place.path()).unwrap());
    let hosts = Hosts::one(root, Options::default());
    assert_eq!((hosts.number("a.test"), hosts.sites(clock()).number("a.test")), (0, 0));
}

#[test]
fn a_host_nobody_asks_for_drops_its_files() {
    let mut fixture = Fixture::new();
    fixture.get("b.test", "/name");
    let clock = clock();
    let mut ask = |now: Nanos| {
        let request = Request { host: "a.test", ..Request::get("/name") };
        fixture.sites.respond(&request, clock.now() + now);
        fixture.sites.counts().dropped_idle
    };
    let dropped: BTreeSet<u64> = (120..123).map(|second| ask(Nanos::from_secs(second))).collect();
    assert_eq!(dropped.last(), Some(&1), "the file of b.test");
}

#[test]
fn no_host_leaves_a_root() {
    let fixture = std::cell::RefCell::new(Fixture::new());
    proptest!(|(host in "[-a-z0-9.:/%@\\[\\]\\\\*~]{0,40}", climbs in 0..4_usize)| {
        let mut fixture = fixture.borrow_mut();
        for target in [format!("/{}secret", "../".repeat(climbs)), "/%2e%2e/secret".to_owned(), "//secret".to_owned()] {
            let (status, body) = fixture.get(&host, &target);
            prop_assert!(status != 200 && body != "secret", "{} {}", host, target);
        }
        let (status, body) = fixture.get(&host, "/name");
        prop_assert!(status == 200 && ["default", "a", "b"].contains(&body.as_str()), "{}", host);
    });
}
