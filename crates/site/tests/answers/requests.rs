//! The answers that depend on more of a request than its path: its client, its transport, its password. And those of
//! addresses without endings.

use std::fs;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_semantics::Method;
use site::{Rules, Slashes};

use crate::common::Fixture;

fn parsed<R: std::str::FromStr<Err = String>>(rules: &[&str]) -> Vec<R> {
    rules.iter().map(|rule| rule.parse().unwrap()).collect()
}

fn clean(slashes: Slashes) -> Fixture {
    let endings = vec![".html".to_owned(), ".htm".to_owned()];
    let site = Fixture::ruled(Rules { endings, slashes, ..Rules::default() });
    site.write("about.html", "about");
    site.write("old.htm", "old");
    site.write("plain", "plain");
    site.write("plain.html", "hidden by plain");
    site.write("folder/index.html", "folder");
    site.write("folder/page.html", "page");
    site.write("both.html", "file");
    site.write("both/index.html", "both");
    site.write("empty/x", "x");
    site.write("index.html", "start");
    site
}

#[track_caller]
fn check(site: &mut Fixture, path: &str, status: u16, expected: &str) {
    // From the disk, and from the cache.
    for _ in 0..2 {
        let answer = site.get(path);
        let told = match answer.field("Location") {
            Some(location) => location.to_owned(),
            None => String::from_utf8(answer.body.clone()).unwrap(),
        };
        let told = told.lines().next().unwrap_or_default();
        assert_eq!((answer.status, told), (status, expected), "{path}");
    }
}

#[test]
fn clean_address_finds_the_file_with_its_ending() {
    let mut site = clean(Slashes::Add);
    check(&mut site, "/about", 200, "about");
    check(&mut site, "/about.html", 200, "about");
    check(&mut site, "/old", 200, "old");
    check(&mut site, "/plain", 200, "plain");
    check(&mut site, "/both", 200, "file");
    check(&mut site, "/both/", 200, "both");
    check(&mut site, "/folder", 301, "/folder/");
    check(&mut site, "/folder/page?q", 200, "page");
    check(&mut site, "/about/", 404, "404 Not Found");
    check(&mut site, "/none", 404, "404 Not Found");
    assert_eq!(site.get("/about").field("Content-Type"), Some("text/html; charset=utf-8"));
}

#[test]
fn clean_address_negotiates_its_encoding() {
    let mut site = clean(Slashes::Add);
    site.write("about.html.gz", "compressed");
    let answer = site.get_with("/about", &[("Accept-Encoding", "gzip")]);
    assert_eq!((answer.field("Content-Encoding"), &answer.body[..]), (Some("gzip"), &b"compressed"[..]));
}

#[test]
fn removed_slash_redirects_to_the_address_without() {
    let mut site = clean(Slashes::Remove);
    check(&mut site, "/folder", 200, "folder");
    check(&mut site, "/folder/?q=1", 301, "/folder?q=1");
    check(&mut site, "/about", 200, "about");
    check(&mut site, "/about/", 301, "/about");
    check(&mut site, "/both", 200, "file");
    check(&mut site, "/both/", 301, "/both");
    check(&mut site, "/", 200, "start");
    check(&mut site, "/none/", 404, "404 Not Found");
    check(&mut site, "/empty", 404, "404 Not Found");
    check(&mut site, "/empty/", 404, "404 Not Found");
}

#[test]
fn listed_folder_keeps_its_slash() {
    let mut site = Fixture::ruled(Rules { slashes: Slashes::Remove, listing: true, ..Rules::default() });
    site.write("empty/x", "x");
    check(&mut site, "/empty", 301, "/empty/");
    assert!(String::from_utf8(site.get("/empty/").body).unwrap().contains(">x</a>"));
}

#[test]
fn fixed_response_needs_no_file() {
    let mut site = Fixture::ruled(Rules {
        fixed: parsed(&["/healthz 200 ok", "/gone/* 410", "/quiet 204", "/secret 404", "/closed* 405"]),
        headers: parsed(&["/* X-Own: 1"]),
        error_pages: parsed(&["404 /404.html"]),
        ..Rules::default()
    });
    site.write("404.html", "nothing");
    site.write("healthz", "a file");
    fs::remove_dir_all(site.path("gone")).unwrap_or_default();
    check(&mut site, "/healthz?x", 200, "ok");
    check(&mut site, "/gone/a", 410, "410 Gone");
    check(&mut site, "/quiet", 204, "");
    check(&mut site, "/secret", 404, "nothing");
    assert_eq!(site.get("/healthz").field("X-Own"), Some("1"));
    assert_eq!(site.ask(Method::Post, "/healthz", &[]).status, 405);
    let closed = site.get("/closed");
    assert_eq!((closed.status, closed.field("Allow")), (405, Some("OPTIONS")));
    assert_eq!(site.ask(Method::Options, "/closed", &[]).status, 204);
}

#[test]
fn page_of_an_error_does_not_replace_a_fixed_response() {
    let mut site = Fixture::ruled(Rules {
        fixed: parsed(&["/404.html 410"]),
        error_pages: parsed(&["404 /404.html"]),
        ..Rules::default()
    });
    site.write("404.html", "nothing");
    check(&mut site, "/none", 404, "nothing");
    check(&mut site, "/404.html", 410, "410 Gone");
}

#[test]
fn cached_file_is_kept_from_other_networks() {
    let mut site = Fixture::ruled(Rules {
        access: parsed(&["/in/* allow 10.0.0.0/8", "/in/* deny all"]),
        error_pages: parsed(&["403 /403.html"]),
        ..Rules::default()
    });
    site.write("in/file", "inside");
    site.write("403.html", "no");
    for _ in 0..2 {
        for (client, path, status, body) in [
            ("10.1.1.1", "/in/file", 200, "inside"),
            ("192.0.2.1", "/in/file", 403, "no"),
            ("192.0.2.1", "/x/../%69n//file", 403, "no"),
            ("192.0.2.1", "/in/absent", 403, "no"),
            ("10.1.1.1", "/in/absent", 404, "404 Not Found"),
        ] {
            site.client = Some(client.parse().unwrap());
            check(&mut site, path, status, body);
        }
    }
    site.client = None;
    check(&mut site, "/in/file", 403, "no");
}

fn basic(text: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(text))
}

#[test]
fn cached_file_is_kept_from_wrong_passwords() {
    let place = tempfile::tempdir().unwrap();
    let passwords = place.path().join("passwords");
    fs::write(&passwords, "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").unwrap();
    let rule = format!("/private/* {} Our staff", passwords.display());
    let mut site = Fixture::ruled(Rules { auths: parsed(&[&rule, "/private/open/* -"]), ..Rules::default() });
    site.write("private/file", "inside");
    site.write("private/open/file", "open");
    site.client = Some("192.0.2.1".parse().unwrap());
    let (right, wrong) = (basic("ann:secret"), basic("ann:secre"));
    for _ in 0..3 {
        let answer = site.get_with("/private/file", &[("Authorization", &right)]);
        assert_eq!((answer.status, &answer.body[..]), (200, &b"inside"[..]));
        let answer = site.get("/private/file");
        assert_eq!(
            (answer.status, answer.field("WWW-Authenticate")),
            (401, Some("Basic realm=\"Our staff\""))
        );
        for path in ["/private/file", "/private/absent", "/x/../private//file"] {
            assert_eq!(site.get_with(path, &[("Authorization", &wrong)]).status, 401);
        }
        let twice = [("Authorization", &*right), ("Authorization", &*right)];
        assert_eq!(site.get_with("/private/file", &twice).status, 401);
        assert_eq!(site.get("/private/open/file").status, 200);
    }
    // The tenth wrong try was the first of these; requests without a password are none.
    assert_eq!(site.get_with("/private/file", &[("Authorization", &wrong)]).status, 401);
    let refused = site.get_with("/private/file", &[("Authorization", &right)]);
    assert_eq!((refused.status, refused.field("Retry-After")), (429, Some("60")));
    assert_eq!(site.site.counts().refused_tries, 1);
}

#[test]
fn hsts_is_sent_over_tls_alone() {
    let mut site = Fixture::ruled(Rules {
        headers: parsed(&["/* Strict-Transport-Security: max-age=9", "/* X-Own: 1"]),
        ..Rules::default()
    });
    site.write("file", "12345");
    let etag = site.get("/file").field("ETag").unwrap().to_owned();
    for is_secure in [true, false, true] {
        site.is_secure = is_secure;
        for (path, field) in [
            ("/file", ("X", "")),
            ("/file", ("If-None-Match", &*etag)),
            ("/file", ("If-Match", "\"x\"")),
            ("/file", ("Range", "bytes=1-2")),
            ("/file", ("Range", "bytes=1-1,3-3")),
            ("/file", ("Range", "bytes=9-")),
            ("/absent", ("X", "")),
        ] {
            let answer = site.get_with(path, &[field]);
            let expected = is_secure.then_some("max-age=9");
            assert_eq!(answer.field("Strict-Transport-Security"), expected, "{path} {field:?}");
            assert_eq!(answer.field("X-Own"), Some("1"));
        }
    }
}

#[test]
fn plain_request_for_a_cached_file_is_redirected() {
    let mut site = Fixture::ruled(Rules { redirects: parsed(&["/open/* -", "https"]), ..Rules::default() });
    site.write("file", "content");
    site.write("open/file", "open");
    for _ in 0..2 {
        site.is_secure = true;
        check(&mut site, "/file", 200, "content");
        site.is_secure = false;
        check(&mut site, "/file?q", 301, "https://site.example/file?q");
        check(&mut site, "/open/file", 200, "open");
    }
}

#[test]
fn cached_file_is_redirected_to_the_canonical_host() {
    let mut site = Fixture::ruled(Rules {
        redirects: parsed(&["/open/* -", "/* https://site.example/* 301"]),
        ..Rules::default()
    });
    site.write("file", "content");
    site.write("open/file", "open");
    for _ in 0..2 {
        for (is_secure, host, is_own) in [
            (true, "site.example", true),
            (true, "SITE.example:443", true),
            (false, "site.example", false),
            (true, "www.site.example", false),
            (true, "", false),
        ] {
            (site.is_secure, site.host) = (is_secure, host);
            match is_own {
                true => check(&mut site, "/file?q", 200, "content"),
                false => check(&mut site, "/file?q", 301, "https://site.example/file?q"),
            }
            check(&mut site, "/open/file", 200, "open");
        }
    }
}

#[test]
fn folder_without_slash_is_kept_from_other_clients() {
    let place = tempfile::tempdir().unwrap();
    let passwords = place.path().join("passwords");
    fs::write(&passwords, "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").unwrap();
    let mut site = Fixture::ruled(Rules {
        slashes: Slashes::Remove,
        access: parsed(&["/in/* allow 10.0.0.0/8", "/in/* deny all"]),
        auths: parsed(&[&format!("/private/* {}", passwords.display())]),
        ..Rules::default()
    });
    site.write("in/index.html", "inside");
    site.write("private/index.html", "private");
    site.write("inner", "open");
    let right = basic("ann:secret");
    for _ in 0..2 {
        site.client = Some("10.1.1.1".parse().unwrap());
        check(&mut site, "/in", 200, "inside");
        assert_eq!(site.get_with("/private", &[("Authorization", &right)]).body, b"private");
        site.client = Some("192.0.2.1".parse().unwrap());
        check(&mut site, "/in", 403, "403 Forbidden");
        check(&mut site, "/in/", 403, "403 Forbidden");
        check(&mut site, "/private", 401, "401 Unauthorized");
        check(&mut site, "/inner", 200, "open");
    }
}

#[test]
fn file_without_its_ending_is_kept_from_other_clients() {
    let mut site = Fixture::ruled(Rules {
        endings: vec![".html".to_owned()],
        access: parsed(&["/staff.html allow 10.0.0.0/8", "/staff.html deny all"]),
        ..Rules::default()
    });
    site.write("staff.html", "staff");
    site.write("about.html", "everybody");
    for _ in 0..2 {
        site.client = Some("10.1.1.1".parse().unwrap());
        check(&mut site, "/staff", 200, "staff");
        site.client = Some("192.0.2.1".parse().unwrap());
        check(&mut site, "/staff", 403, "403 Forbidden");
        check(&mut site, "/about", 200, "everybody");
    }
}

#[test]
fn exempt_names_open_no_other_file() {
    for (slashes, exempt) in [(Slashes::Add, "/*.html"), (Slashes::Remove, "/*/")] {
        let mut site = Fixture::ruled(Rules {
            slashes,
            endings: vec![".html".to_owned()],
            access: parsed(&[&format!("{exempt} allow all"), "/* deny all"]),
            ..Rules::default()
        });
        site.write("readme", "closed");
        check(&mut site, "/readme", 403, "403 Forbidden");
    }
}

#[test]
fn text_is_compressed_from_a_later_request_on() {
    let mut site = Fixture::ruled(Rules { compress: true, ..Rules::default() });
    let text = "a line that comes again and again\n".repeat(100);
    site.write("a.css", &text);
    site.write("large.css", text.repeat(100));
    site.write("small.css", "short");
    site.write("a.png", &text);
    for (path, whole) in [("/a.css", text.clone()), ("/large.css", text.repeat(100))] {
        let first = site.get_with(path, &[("Accept-Encoding", "gzip")]);
        assert_eq!((first.field("Content-Encoding"), first.body.len()), (None, whole.len()));
        assert_eq!(first.field("Vary"), Some("Accept-Encoding"));
        let made = loop {
            let answer = site.get_with(path, &[("Accept-Encoding", "gzip")]);
            if answer.field("Content-Encoding").is_some() {
                break answer;
            }
            std::thread::yield_now();
        };
        assert_eq!(made.field("Content-Encoding"), Some("gzip"));
        assert!(made.body.len() < whole.len() / 2 && !made.from_file);
        let (own, coded) = (first.field("ETag").unwrap(), made.field("ETag").unwrap());
        assert!(own != coded && coded.ends_with("-gz\""), "{own} {coded}");
        let hits = site.site.counts().hits;
        let again = site.get_with(path, &[("Accept-Encoding", "gzip"), ("If-None-Match", coded)]);
        assert_eq!((again.status, site.site.counts().hits), (304, hits + 1));
        assert_eq!(site.get(path).body.len(), whole.len(), "a client that does not ask gets the file");
    }
    for path in ["/small.css", "/a.png"] {
        let answer = site.get_with(path, &[("Accept-Encoding", "gzip, br, zstd")]);
        assert_eq!((answer.field("Vary"), answer.field("Content-Encoding")), (None, None), "{path}");
    }
    assert_eq!(site.site.counts().compressed, 2);
}

#[test]
fn folder_is_listed_and_has_no_fallback_by_its_path() {
    let mut site = Fixture::ruled(Rules {
        fallback: Some("/index.html".parse().unwrap()),
        without_fallback: parsed(&["/downloads/*"]),
        listed: parsed(&["/downloads/*"]),
        ..Rules::default()
    });
    site.write("index.html", "app");
    site.write("downloads/x", "x");
    site.write("other/x", "x");
    check(&mut site, "/any", 200, "app");
    check(&mut site, "/other/", 200, "app");
    check(&mut site, "/downloads/none", 404, "404 Not Found");
    assert!(String::from_utf8(site.get("/downloads/").body).unwrap().contains(">x</a>"));
}

#[test]
fn every_answer_with_content_has_the_pace_of_its_path() {
    let mut site = Fixture::ruled(Rules {
        paces: parsed(&["/slow/* 1000 after 5", "/slow/free off", "/*.html 20"]),
        error_pages: parsed(&["404 /404.html"]),
        fixed: parsed(&["/slow/text 200 text"]),
        listed: parsed(&["/slow/*"]),
        ..Rules::default()
    });
    for name in ["slow/file", "slow/free", "file", "404.html"] {
        site.write(name, "0123456789");
    }
    site.write("slow/large", vec![b'x'; 100_000]);
    for path in ["/slow/file", "/slow/large", "/slow/", "/slow/text"] {
        for _ in 0..2 {
            let answer = site.get(path);
            assert_eq!((answer.status, answer.pace), (200, Some((1000, 5))), "{path}");
        }
    }
    for range in ["bytes=0-4", "bytes=0-4,6-"] {
        let answer = site.get_with("/slow//file", &[("Range", range)]);
        assert_eq!((answer.status, answer.pace), (206, Some((1000, 5))), "{range}");
    }
    assert_eq!(site.get("/slow/none").pace, Some((20, 0)), "the page's own");
    for path in ["/file", "/slow/free"] {
        assert_eq!(site.get(path).pace, None, "{path}");
    }
}
