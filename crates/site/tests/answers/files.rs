//! The answers of a site: methods, header lines, conditions, ranges, encodings.

use std::time::Duration;

use http_semantics::Method;
use site::{Options, Rules};

use crate::common::{Fixture, THEN, THEN_DATE, TODAY};

#[test]
fn a_file_comes_with_its_type_validators_and_length() {
    let mut site = Fixture::new();
    site.write("page.html", "hello");
    let answer = site.get("/page.html?query=ignored");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
    let etag = answer.field("ETag").unwrap();
    assert!(etag.len() <= 24 && etag.starts_with('"') && etag.ends_with("-5\""), "{etag}");
    assert_eq!(
        answer.fields,
        format!(
            "Content-Type: text/html; charset=utf-8\r\nAccept-Ranges: bytes\r\n\
             Last-Modified: {THEN_DATE}\r\nETag: {etag}\r\n"
        )
    );
    let head = site.ask(Method::Head, "/page.html", &[("Range", "bytes=0-0")]);
    assert_eq!((head.status, head.fields, head.body), (200, answer.fields, answer.body));
}

#[test]
fn methods() {
    let mut site = Fixture::new();
    site.write("page.html", "hello");
    for (method, target, status) in [
        (Method::Options, "*", 204),
        (Method::Options, "/page.html", 204),
        (Method::Put, "/page.html", 405),
        (Method::Post, "/absent", 405),
        (Method::Delete, "/page.html", 405),
        (Method::Other("PATCH"), "/page.html", 405),
        (Method::Other("TRACE"), "/page.html", 405),
        (Method::Other("BREW"), "/page.html", 501),
        (Method::Other("get"), "/page.html", 501),
    ] {
        let answer = site.ask(method, target, &[]);
        assert_eq!(answer.status, status, "{method:?} {target}");
        let allow = (status != 501).then_some("GET, HEAD, OPTIONS");
        assert_eq!(answer.field("Allow"), allow, "{method:?} {target}");
    }
}

#[test]
fn directory_404_says_only_what_is_missing() {
    let mut site = Fixture::ruled(Rules { index: vec!["start.html".to_owned()], ..Rules::default() });
    site.write("dir/file", "x");
    let page = "404 Not Found\nThere is no folder with start.html here, and folders are not listed: ask for a file by its name.\n";
    for target in ["/", "/dir/", "/nothing/"] {
        let answer = site.get(target);
        assert_eq!((answer.status, str::from_utf8(&answer.body).unwrap()), (404, page), "{target}");
    }
    assert_eq!(site.get("/nothing").body, b"404 Not Found\n");
}

#[test]
fn directories_have_a_slash_and_an_index() {
    let mut site = Fixture::new();
    site.write("index.html", "top");
    site.write("dir/index.html", "inner");
    site.write("empty/file", "x");
    site.write("a b/index.html", "blank");
    site.write("\\evil.example/index.html", "backslash");
    site.write("evil.example/index.html", "host");
    assert_eq!(site.get("/").body, b"top");
    assert_eq!(site.get("/dir/").body, b"inner");
    assert_eq!(site.get("/dir/.").body, b"inner");
    assert_eq!(site.get("/empty/").status, 404);
    assert_eq!(site.get("/dir/index.html/").status, 404);
    for (target, location) in [
        ("/dir", "/dir/"),
        ("/dir?a=1&b=/?", "/dir/?a=1&b=/?"),
        ("/dir?line\r\nSet-Cookie: x", "/dir/?line%0D%0ASet-Cookie:%20x"),
        ("//evil.example", "/evil.example/"),
        ("///evil.example", "/evil.example/"),
        ("/\\evil.example", "/%5Cevil.example/"),
        ("/a%20b", "/a%20b/"),
        ("/dir/../dir", "/dir/"),
    ] {
        for _ in 0..2 {
            let answer = site.get(target);
            assert_eq!((answer.status, answer.field("Location")), (301, Some(location)), "{target}");
        }
    }
}

#[test]
fn large_files_come_from_the_open_file() {
    let mut site = Fixture::new();
    site.write("small", vec![b's'; 64 << 10]);
    site.write("large", vec![b'l'; (64 << 10) + 1]);
    site.write("empty", "");
    assert!(!site.get("/small").from_file);
    let large = site.get("/large");
    assert!(large.from_file);
    assert_eq!(large.body.len(), (64 << 10) + 1);
    let range = site.get_with("/large", &[("Range", "bytes=65530-")]);
    assert_eq!((range.status, range.body, range.from_file), (206, b"lllllll".to_vec(), true));
    assert_eq!(site.get("/empty").body, b"");
    assert_eq!(site.get_with("/empty", &[("Range", "bytes=0-")]).status, 416);
}

#[test]
fn conditions_lead_to_304_and_412() {
    let mut site = Fixture::new();
    site.write("page.html", "hello");
    let etag = site.get("/page.html").field("ETag").unwrap().to_owned();
    let fresh = site.get_with("/page.html", &[("If-None-Match", &etag)]);
    assert_eq!((fresh.status, fresh.fields), (304, format!("ETag: {etag}\r\n")));
    assert_eq!(site.get_with("/page.html", &[("If-Modified-Since", THEN_DATE)]).status, 304);
    assert_eq!(site.get_with("/page.html", &[("If-Match", "\"other\"")]).status, 412);
    let both = [("If-None-Match", &etag[..]), ("Range", "bytes=0-0")];
    assert_eq!(site.get_with("/page.html", &both).status, 304);
    assert_eq!(site.ask(Method::Head, "/page.html", &[("If-None-Match", &etag)]).status, 304);
}

#[test]
fn future_and_pre_1970_dates_are_not_sent() {
    let mut site = Fixture::new();
    site.write_at("future", "x", Duration::from_secs(TODAY + 1000));
    assert_eq!(site.get("/future").field("Last-Modified"), Some("Wed, 18 May 2033 03:33:20 GMT"));
    site.write("past", "x");
    let file = std::fs::File::options().write(true).open(site.path("past")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH - Duration::from_secs(5)).unwrap();
    let past = site.get("/past");
    assert_eq!((past.status, past.field("Last-Modified")), (200, None));
    assert!(past.field("ETag").is_some());
}

#[test]
fn ranges() {
    let mut site = Fixture::new();
    site.write("ten.txt", "0123456789");
    let one = |site: &mut Fixture, range: &str| {
        let answer = site.get_with("/ten.txt", &[("Range", range)]);
        let content_range = answer.field("Content-Range").unwrap_or("").to_owned();
        (answer.status, content_range, String::from_utf8(answer.body).unwrap())
    };
    let expect =
        |status: u16, content_range: &str, body: &str| (status, content_range.to_owned(), body.to_owned());
    assert_eq!(one(&mut site, "bytes=0-3"), expect(206, "bytes 0-3/10", "0123"));
    assert_eq!(one(&mut site, "bytes=-3"), expect(206, "bytes 7-9/10", "789"));
    assert_eq!(one(&mut site, "bytes=8-99"), expect(206, "bytes 8-9/10", "89"));
    assert_eq!(one(&mut site, "bytes=0-1,1-2,2-5"), expect(206, "bytes 0-5/10", "012345"));
    assert_eq!(one(&mut site, "bytes=10-"), expect(416, "bytes */10", "416 Range Not Satisfiable\n"));
    assert_eq!(one(&mut site, "bytes=5-4"), expect(200, "", "0123456789"));
    assert_eq!(one(&mut site, &format!("bytes={}", "0-0,".repeat(40))), expect(200, "", "0123456789"));
    assert_eq!(site.site.counts().ranges_refused, 1);
    let repeated = site.get_with("/ten.txt", &[("Range", "bytes=0-3"), ("Range", "bytes=4-5")]);
    assert_eq!(repeated.status, 200);
    let partial = site.get_with("/ten.txt", &[("Range", "bytes=0-3")]);
    assert_eq!(partial.field("Content-Type"), Some("text/plain; charset=utf-8"));
    assert!(partial.field("ETag").is_some() && partial.field("Last-Modified").is_some());
}

#[test]
fn several_ranges_are_parts_in_the_order_asked_for() {
    let mut site = Fixture::new();
    let content: Vec<u8> = (0..200_u8).collect();
    for (name, length) in [("memory.txt", 64 << 10), ("file.txt", 80 << 10)] {
        site.write(name, content.repeat(500).split_at(length).0);
        let answer = site.get_with(&format!("/{name}"), &[("Range", "bytes=1000-1002,0-1,-1")]);
        assert_eq!((answer.status, answer.field("Content-Type")), (206, None));
        assert!(answer.field("ETag").is_some());
        let head = |range: &str| {
            format!("Content-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/{length}\r\n")
        };
        let last = ((length - 1) % 200) as u8;
        assert_eq!(
            answer.parts,
            [
                (head("1000-1002"), vec![0, 1, 2]),
                (head("0-1"), vec![0, 1]),
                (head(&format!("{0}-{0}", length - 1)), vec![last]),
            ]
        );
    }
}

#[test]
fn if_range_decides_between_part_and_whole() {
    let mut site = Fixture::new();
    site.write("ten.txt", "0123456789");
    let etag = site.get("/ten.txt").field("ETag").unwrap().to_owned();
    for (validator, status) in [
        (&etag[..], 206),
        (THEN_DATE, 200),
        ("\"other\"", 200),
        (&format!("W/{etag}"), 200),
        ("Sun, 06 Nov 1994 08:49:38 GMT", 200),
    ] {
        let fields = [("Range", "bytes=0-1"), ("If-Range", validator)];
        assert_eq!(site.get_with("/ten.txt", &fields).status, status, "{validator}");
    }
    let unsatisfiable = [("Range", "bytes=99-"), ("If-Range", "\"other\"")];
    assert_eq!(site.get_with("/ten.txt", &unsatisfiable).status, 200);
}

#[test]
fn precompressed_siblings_are_negotiated() {
    let mut site = Fixture::new();
    site.write("app.js", "the original text");
    site.write("app.js.br", "brotli");
    site.write("app.js.gz", "gzipped");
    let plain = site.get("/app.js");
    assert_eq!((plain.field("Content-Encoding"), plain.field("Vary")), (None, Some("Accept-Encoding")));
    let mut etags = vec![plain.field("ETag").unwrap().to_owned()];
    for (accept, encoding, body) in
        [("gzip", "gzip", &b"gzipped"[..]), ("gzip, br, zstd", "br", b"brotli"), ("*", "br", b"brotli")]
    {
        for _ in 0..2 {
            let answer = site.get_with("/app.js", &[("Accept-Encoding", accept)]);
            assert_eq!((answer.status, &answer.body[..]), (200, body), "{accept}");
            assert_eq!(answer.field("Content-Encoding"), Some(encoding));
            assert_eq!(answer.field("Vary"), Some("Accept-Encoding"));
            assert_eq!(answer.field("Content-Type"), Some("text/javascript; charset=utf-8"));
            etags.push(answer.field("ETag").unwrap().to_owned());
        }
    }
    etags.sort();
    etags.dedup();
    assert_eq!(etags.len(), 3);
    let br = etags.iter().find(|etag| etag.ends_with("-br\"")).unwrap();
    let fresh = site.get_with("/app.js", &[("Accept-Encoding", "br"), ("If-None-Match", br)]);
    assert_eq!((fresh.status, fresh.field("Vary")), (304, Some("Accept-Encoding")));
    let other = site.get_with("/app.js", &[("Accept-Encoding", "gzip"), ("If-None-Match", br)]);
    assert_eq!(other.status, 200);
    let part = site.get_with("/app.js", &[("Accept-Encoding", "gzip"), ("Range", "bytes=0-2")]);
    assert_eq!((part.status, &part.body[..]), (206, &b"gzi"[..]));
    assert_eq!(part.field("Content-Range"), Some("bytes 0-2/7"));
    let none = site.get_with("/app.js", &[("Accept-Encoding", "identity;q=0")]);
    assert_eq!((none.status, none.field("Vary")), (406, Some("Accept-Encoding")));
    for (field, status) in [(("If-Match", "\"other\""), 412), (("Range", "bytes=99-"), 416)] {
        let refusal = site.get_with("/app.js", &[field]);
        assert_eq!((refusal.status, refusal.field("Vary")), (status, Some("Accept-Encoding")));
    }
}

#[test]
fn unusable_siblings_are_not_offered() {
    let mut site = Fixture::new();
    let accept = [("Accept-Encoding", "gzip, br, zstd")];
    site.write("a.css", "original");
    site.write_at("a.css.gz", "old", Duration::from_secs(THEN - 1));
    std::fs::create_dir(site.path("a.css.br")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", site.path("a.css.zst")).unwrap();
    let answer = site.get_with("/a.css", &accept);
    assert_eq!((answer.field("Vary"), &answer.body[..]), (None, &b"original"[..]));
    assert_eq!(site.site.counts().outdated_siblings, 1);

    // Some compressors copy the time without its fraction.
    site.write_at("b.css", "original", Duration::from_nanos(THEN * 1_000_000_000 + 5));
    site.write("b.css.gz", "gz");
    assert_eq!(site.get_with("/b.css", &accept).body, b"gz");

    // A file without siblings is not negotiated.
    site.write("c.css", "original");
    assert_eq!(site.get_with("/c.css", &[("Accept-Encoding", "identity;q=0")]).status, 200);

    // A request for a sibling's own name gets a plain file.
    let sibling = site.get_with("/b.css.gz", &accept);
    assert_eq!((sibling.status, sibling.field("Content-Encoding")), (200, None));
    assert_eq!(sibling.field("Content-Type"), Some("application/gzip"));
}

#[test]
fn dot_files_are_hidden_unless_shown() {
    for (show, status) in [(false, 404), (true, 200)] {
        let mut site = Fixture::with(Options { show_dot_files: show, ..Options::default() });
        site.write(".env", "SECRET");
        site.write(".git/config", "x");
        site.write("dir/.htpasswd", "x");
        site.write(".well-known/security.txt", "Contact: us");
        for target in ["/.env", "/%2eenv", "/.git/config", "/dir/.htpasswd", "/dir/../.env"] {
            assert_eq!(site.get(target).status, status, "{target}");
        }
        assert_eq!(site.get("/.well-known/security.txt").status, 200);
    }
}
