//! The answers that a site's rules decide: redirects, header lines, pages, fallback, index, listings.

use std::os::unix::fs::symlink;

use http_semantics::Method;
use site::{CacheLimits, LiveRules, Options, Rules};

use crate::common::Fixture;

fn headers(lines: &[&str]) -> Rules {
    Rules { headers: lines.iter().map(|line| line.parse().unwrap()).collect(), ..Rules::default() }
}

fn redirects(rules: &[&str]) -> Rules {
    Rules { redirects: rules.iter().map(|rule| rule.parse().unwrap()).collect(), ..Rules::default() }
}

fn listing() -> Rules {
    Rules { listing: true, ..Rules::default() }
}

#[test]
fn a_redirect_comes_before_the_file_in_any_spelling() {
    let mut site = Fixture::ruled(redirects(&["/old/* /new/* 308", "/ /start 303"]));
    site.write("old/file", "never sent");
    for path in ["/old/file", "/old//file", "/x/../old/./file", "/%6fld/fil%65"] {
        for method in [Method::Get, Method::Head] {
            let answer = site.ask(method, &format!("{path}?q=1"), &[("If-None-Match", "*")]);
            assert_eq!((answer.status, answer.field("Location")), (308, Some("/new/file?q=1")), "{path}");
        }
    }
    let answer = site.get("/");
    assert_eq!((answer.status, &answer.body[..]), (303, &b"303 See Other\n"[..]));
    assert_eq!(site.site.counts().redirects, 9);
    assert_eq!(site.ask(Method::Post, "/old/file", &[]).status, 405);
    assert_eq!(site.ask(Method::Options, "/old/file", &[]).status, 204);
    for path in ["/old/../../x", "/old/%00", "/old/a%2fb"] {
        assert_eq!(site.get(path).status, 400, "{path}");
    }
    assert_eq!(site.get("/old/.git").status, 404);
}

#[test]
fn no_path_makes_a_redirect_to_another_host() {
    let mut site = Fixture::ruled(redirects(&["/go* /*"]));
    for (path, location) in [
        ("/go/evil.example", "/evil.example"),
        ("/go//evil.example", "/evil.example"),
        ("/go/%5Cevil.example", "/%5Cevil.example"),
        ("/go\\evil.example", "/%5Cevil.example"),
        ("/go/%0d%0aSet-Cookie:%20a=b", "/%0D%0ASet-Cookie:%20a=b"),
    ] {
        assert_eq!(site.get(path).field("Location"), Some(location), "{path}");
    }
}

#[test]
fn cache_header_lines_are_on_files_alone() {
    let mut site = Fixture::ruled(headers(&["/* X-Own: 1", "/*.css Cache-Control: max-age=9"]));
    site.write("a.css", "12345");
    site.write("folder.css/index.html", "x");
    let etag = site.get("/a.css").field("ETag").unwrap().to_owned();
    for (method, path, field, status, caches) in [
        (Method::Get, "/a.css", ("X", ""), 200, true),
        (Method::Head, "/x/../a.css", ("X", ""), 200, true),
        (Method::Get, "/a.css", ("If-None-Match", etag.as_str()), 304, true),
        (Method::Get, "/a.css", ("Range", "bytes=1-2"), 206, true),
        (Method::Get, "/a.css", ("Range", "bytes=1-1,3-3"), 206, true),
        (Method::Get, "/a.css", ("Range", "bytes=9-"), 416, false),
        (Method::Get, "/a.css", ("If-Match", "\"other\""), 412, false),
        (Method::Get, "/absent.css", ("X", ""), 404, false),
        (Method::Get, "/folder.css", ("X", ""), 301, false),
        (Method::Get, "/.hidden.css", ("X", ""), 404, false),
        (Method::Options, "/a.css", ("Origin", "https://a.example"), 204, false),
    ] {
        let answer = site.ask(method, path, &[field]);
        assert_eq!(answer.status, status, "{path} {field:?}");
        assert_eq!(answer.fields.matches("X-Own: 1\r\n").count(), 1, "{path} {field:?}: {}", answer.fields);
        assert_eq!(answer.field("Cache-Control"), caches.then_some("max-age=9"), "{path} {field:?}");
    }
    assert_eq!(site.ask(Method::Options, "*", &[]).fields, "Allow: GET, HEAD, OPTIONS\r\n");
}

#[test]
fn the_lines_of_a_cached_file_cost_nothing() {
    let mut site = Fixture::ruled(headers(&["/* X-Own: 1"]));
    site.write("a.css", "12345");
    let first = site.get("/a.css");
    let hits = site.site.counts().hits;
    assert_eq!(site.get("/a.css").fields, first.fields);
    assert_eq!(site.site.counts().hits, hits + 1);
}

fn with_pages() -> Fixture {
    let error_pages = ["404 /errors/404.html", "400 /errors/400.html", "403 /absent.html"];
    let error_pages = error_pages.map(|page| page.parse().unwrap()).into();
    let site =
        Fixture::ruled(Rules { error_pages, ..headers(&["/* X-Own: 1", "/* Cache-Control: no-cache"]) });
    site.write("errors/404.html", "<p>Nothing here.");
    site.write("errors/400.html", "<p>Not understood.");
    site
}

#[test]
fn error_page_has_its_status_and_no_validators() {
    let mut site = with_pages();
    for (path, status, body) in [
        ("/nothing", 404, "<p>Nothing here."),
        ("/nothing/", 404, "<p>Nothing here."),
        ("/.hidden", 404, "<p>Nothing here."),
        ("/a%00", 400, "<p>Not understood."),
    ] {
        for field in [("X", ""), ("If-None-Match", "*"), ("Range", "bytes=0-1"), ("If-Match", "\"x\"")] {
            let answer = site.get_with(path, &[field]);
            let text = str::from_utf8(&answer.body).unwrap();
            assert_eq!((answer.status, text), (status, body), "{path} {field:?}");
            let own = if status == 400 { "" } else { "X-Own: 1\r\n" };
            assert_eq!(answer.fields, format!("Content-Type: text/html; charset=utf-8\r\n{own}"), "{path}");
        }
    }
    let page = site.get("/errors/404.html");
    assert_eq!((page.status, page.field("Cache-Control")), (200, Some("no-cache")));
    assert_eq!(site.site.counts().error_pages, 16);
}

#[test]
fn an_error_page_is_negotiated_and_may_be_absent() {
    let mut site = with_pages();
    site.write("errors/404.html.gz", "compressed");
    let answer = site.get_with("/nothing", &[("Accept-Encoding", "gzip")]);
    assert_eq!((answer.status, &answer.body[..]), (404, &b"compressed"[..]));
    assert_eq!(answer.field("Content-Encoding"), Some("gzip"));
    assert_eq!(answer.field("Vary"), Some("Accept-Encoding"));
    let none = site.get_with("/nothing", &[("Accept-Encoding", "identity;q=0, gzip;q=0")]);
    assert_eq!((none.status, &none.body[..]), (404, &b"404 Not Found\n"[..]));
    std::fs::remove_dir_all(site.path("errors")).unwrap();
    site.second_passes();
    let absent = site.get("/nothing");
    assert_eq!((absent.status, &absent.body[..]), (404, &b"404 Not Found\n"[..]));
}

#[test]
fn the_fallback_answers_as_if_it_had_been_asked_for() {
    let fallback = Some("/index.html".parse().unwrap());
    let rules = headers(&["/index.html Cache-Control: no-cache", "/app/* X-Own: 1"]);
    let mut site = Fixture::ruled(Rules { fallback, ..rules });
    site.write("index.html", "application");
    site.write("dir/file", "x");
    let own = site.get("/index.html");
    for path in ["/app/users/7", "/app/", "/dir/", "/app/users/7?x"] {
        let answer = site.get(path);
        assert_eq!((answer.status, &answer.body, &answer.fields), (200, &own.body, &own.fields), "{path}");
    }
    let etag = own.field("ETag").unwrap();
    assert_eq!(site.get_with("/app/x", &[("If-None-Match", etag)]).status, 304);
    assert_eq!(site.get_with("/app/x", &[("Range", "bytes=0-2")]).body, b"app");
    assert_eq!(site.ask(Method::Head, "/app/x", &[]).fields, own.fields);
    assert_eq!(site.ask(Method::Post, "/app/x", &[]).status, 405);
    for (path, status) in [("/dir", 301), ("/.git", 404), ("/a%00", 400), ("/../x", 400), ("/dir/file", 200)]
    {
        assert_eq!(site.get(path).status, status, "{path}");
    }
    assert_eq!(site.site.counts().fallbacks, 7);
    assert_eq!(site.site.counts().not_found, 0);
    std::fs::remove_file(site.path("index.html")).unwrap();
    site.second_passes();
    assert_eq!((site.get("/app/x").status, site.get("/index.html").status), (404, 404));
}

#[test]
fn redirect_rule_wins_over_a_cached_page() {
    let fallback = Some("/index.html".parse().unwrap());
    let error_pages = vec!["400 /bad.html".parse().unwrap()];
    let rules = Rules { fallback, error_pages, ..redirects(&["/index.html / 301", "/bad.html / 301"]) };
    let mut site = Fixture::ruled(rules);
    site.write("index.html", "application");
    site.write("bad.html", "not understood");
    for _ in 0..2 {
        assert_eq!((site.get("/some/route").status, site.get("/a%00").status), (200, 400));
        for path in ["/index.html", "/index.html?x", "/x/../index.html", "/bad.html"] {
            assert_eq!(site.get(path).status, 301, "{path}");
        }
    }
    assert_eq!(site.get("/a%00").body, b"not understood");
}

#[test]
fn the_first_index_that_exists_is_served() {
    let index = vec!["index.html".to_owned(), "README.txt".to_owned()];
    let mut site = Fixture::ruled(Rules { index, ..listing() });
    site.write("README.txt", "read me");
    let answer = site.get("/");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"read me"[..]));
    assert_eq!(answer.field("Content-Type"), Some("text/plain; charset=utf-8"));
    site.second_passes();
    assert_eq!(site.get("/").body, b"read me");
    assert_eq!(site.site.counts().revalidations, 1);
    site.write("index.html", "index");
    site.second_passes();
    assert_eq!(site.get("/").body, b"index");
    assert_eq!(site.site.counts().listings, 0);
}

#[test]
fn a_folder_without_an_index_is_listed() {
    let mut site = Fixture::ruled(Rules { listing: true, ..headers(&["/dir/ X-Own: 1"]) });
    for name in ["dir/b <&>.txt", "dir/a:b", "dir/sub/x", "dir/.hidden", "dir/.well-known/x", "secret"] {
        site.write(name, "content");
    }
    symlink("../secret", site.path("dir/link")).unwrap();
    symlink("sub", site.path("dir/linked-folder")).unwrap();
    symlink("../../outside", site.path("dir/out")).unwrap();
    symlink("absent", site.path("dir/broken")).unwrap();
    symlink(".hidden", site.path("dir/shown")).unwrap();
    std::os::unix::net::UnixListener::bind(site.path("dir/socket")).unwrap();
    let answer = site.get("/dir/");
    let page = String::from_utf8(answer.body.clone()).unwrap();
    let links: Vec<&str> =
        page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let expected = ["../", "./a:b", "./b%20%3C&amp;%3E.txt", "./link", "./linked-folder/", "./sub/"];
    assert_eq!(links, expected, "{page}");
    assert_eq!(answer.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(answer.field("X-Own"), Some("1"));
    let etag = answer.field("ETag").unwrap();
    assert_eq!(site.get_with("/dir/", &[("If-None-Match", etag)]).status, 304);
    assert_eq!(site.get_with("/dir/", &[("Range", "bytes=0-8")]).body, b"<!DOCTYPE");
    let head = site.ask(Method::Head, "/dir/", &[]);
    assert_eq!((head.status, &head.fields), (200, &answer.fields));
    assert_eq!(site.get("/dir").status, 301);
    assert_eq!((site.get("/nothing/").status, site.get("/secret/").status), (404, 404));
    assert_eq!(site.site.counts().listings, 1);
}

#[test]
fn a_listing_is_read_anew_each_second() {
    let mut site = Fixture::ruled(listing());
    let before = site.get("/");
    site.write("new", "x");
    assert_eq!(site.get("/").fields, before.fields);
    site.second_passes();
    let after = site.get("/");
    assert!(str::from_utf8(&after.body).unwrap().contains("./new"));
    assert_ne!(before.field("ETag"), after.field("ETag"));
    site.second_passes();
    assert_eq!(site.get("/").fields, after.fields);
    let counts = site.site.counts();
    assert_eq!((counts.listings, counts.changed, counts.hits), (3, 0, 1));
}

#[test]
fn a_folder_is_not_listed_unless_its_owner_says_so() {
    let mut site = Fixture::new();
    site.write("file", "x");
    assert_eq!(site.get("/").status, 404);
    let dot_files = Options { show_dot_files: true, rules: LiveRules::new(listing()), ..Options::default() };
    let mut site = Fixture::with(dot_files);
    site.write(".file", "x");
    let page = String::from_utf8(site.get("/").body).unwrap();
    assert!(page.contains("\"./.file\"") && !page.contains("\"./../\""), "{page}");
}

#[test]
fn a_long_folder_is_listed_in_part() {
    let mut site = Fixture::ruled(listing());
    for number in 0..4100 {
        std::fs::File::create(site.path(&number.to_string())).unwrap();
    }
    let page = String::from_utf8(site.get("/").body).unwrap();
    assert_eq!(page.matches("<li>").count(), 4096);
    assert!(page.contains("more files than are listed"));
}

#[test]
fn new_rules_are_in_force_within_a_second() {
    let rules = LiveRules::new(headers(&["/a X-Own: 1"]));
    let cache = CacheLimits { fresh_for: base::Nanos::from_secs(100), ..CacheLimits::default() };
    let mut site = Fixture::with(Options { rules: rules.clone(), cache, ..Options::default() });
    site.write("a", "x");
    assert_eq!(site.get("/a").field("X-Own"), Some("1"));
    assert_eq!(site.get("/b").status, 404);
    rules.take_from(&LiveRules::new(Rules {
        fallback: Some("/a".parse().unwrap()),
        ..headers(&["/a X-Own: 2"])
    }));
    site.second_passes();
    assert_eq!(site.get("/a").field("X-Own"), Some("2"));
    assert_eq!(site.get("/b").field("X-Own"), Some("2"));
}

#[test]
fn memory_alone_answers_what_it_can() {
    let mut site = Fixture::ruled(Rules { fallback: Some("/a".parse().unwrap()), ..listing() });
    site.write("a", "content");
    let request = http_semantics::Request::get;
    // A folder may have to come from the disk, even if its name is known.
    assert!(site.site.respond_from_memory(&request("/"), site.now).is_none());
    assert_eq!(site.get("/").status, 200);
    assert_eq!(site.site.respond_from_memory(&request("/"), site.now).unwrap().status.0, 200);
    assert_eq!(site.get("/x").body, b"content");
    assert_eq!(site.site.respond_from_memory(&request("/x"), site.now).unwrap().status.0, 200);
}
