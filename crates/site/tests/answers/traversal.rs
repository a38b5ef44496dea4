//! Path traversal: every spelling of "one directory up" with every separator, from every depth, towards files
//! outside the root. No file outside is served, and each served file is the one that RFC 3986 assigns to the
//! path.

use std::fs;
use std::os::unix::fs::symlink;

use site::Options;

use crate::common::Fixture;

const SECRET: &str = "the secret outside";

/// Names that mean the parent to some reader: encoded, encoded twice, overlong, in other alphabets, with
/// appendices.
const PARENTS: [&str; 34] = [
    "..",
    "%2e%2e",
    "%2E%2E",
    ".%2e",
    "%2e.",
    "%252e%252e",
    "%25252e%25252e",
    "%25%32%65%25%32%65",
    "..%00",
    "%00..",
    "..;",
    "..;a=b",
    "..,",
    "..?",
    "...",
    "....",
    ".. ",
    "..%20",
    "%20..",
    "..%09",
    "..%0a",
    "..%0d",
    "..%ff",
    "%c0%ae%c0%ae",
    "%e0%80%ae%e0%80%ae",
    "%f0%80%80%ae%f0%80%80%ae",
    "%ef%bc%8e%ef%bc%8e",
    "%u002e%u002e",
    "%%32%65%%32%65",
    "..%u2215",
    "..\\",
    "..%5c",
    "..%c0%af",
    "..%252f",
];
/// Strings that separate names for some reader.
const SEPARATORS: [&str; 16] = [
    "/",
    "//",
    "/./",
    "/%2e/",
    "/;/",
    "/x/../",
    "%2f",
    "%2F",
    "%252f",
    "\\",
    "%5c",
    "%255c",
    "%c0%af",
    "%e0%80%af",
    "%ef%bc%8f",
    "%u2215",
];
const STARTS: [&str; 6] = ["/", "/a/", "/a/b/", "/in/", "/nothing/", "//"];
const ENDS: [&str; 5] = ["secret", "index.html", "etc/passwd", "root/index.html", ""];

/// A root within directories that contain a secret under every requested name.
fn besieged(show_dot_files: bool) -> Fixture {
    let site = Fixture::with(Options { show_dot_files, ..Options::default() });
    let outside = site.place.path();
    fs::create_dir_all(outside.join("etc")).unwrap();
    for name in ["secret", "index.html", "etc/passwd"] {
        fs::write(outside.join(name), SECRET).unwrap();
    }
    for name in ["index.html", "a/index.html", "a/b/file", "%2e%2e", "...", "..;"] {
        site.write(name, format!("inside {name}"));
    }
    symlink("a/b", site.path("in")).unwrap();
    symlink("..", site.path("out")).unwrap();
    site
}

#[test]
fn no_spelling_of_a_path_reaches_what_is_outside() {
    let mut tried = 0;
    for show_dot_files in [false, true] {
        let mut site = besieged(show_dot_files);
        for (parent, separator) in
            PARENTS.iter().flat_map(|parent| SEPARATORS.map(|separator| (parent, separator)))
        {
            for (depth, start) in
                [1, 2, 3, 6].into_iter().flat_map(|depth| STARTS.map(|start| (depth, start)))
            {
                for end in ENDS {
                    let path = format!("{start}{}{end}", format!("{parent}{separator}").repeat(depth));
                    let answer = site.get(&path);
                    assert!([200, 301, 400, 404].contains(&answer.status), "{path}: {}", answer.status);
                    let inside = answer.status != 200 || answer.body.starts_with(b"inside");
                    assert!(inside, "{path}: {}", String::from_utf8_lossy(&answer.body));
                    tried += 1;
                }
            }
        }
        assert!(site.site.counts().bad_paths > 1000, "{:?}", site.site.counts());
    }
    assert_eq!(tried, 2 * PARENTS.len() * SEPARATORS.len() * 4 * STARTS.len() * ENDS.len());
}

#[test]
fn rfc3986_5_2_4_path_above_the_root_is_malformed() {
    let mut site = besieged(false);
    for parent in ["..", "%2e%2e", "%2E%2E", ".%2e", "%2e."] {
        for separator in ["/", "//", "/./", "/%2e/"] {
            for (depth, start) in
                [(1, "/"), (2, "/a/"), (3, "/a/b/"), (2, "/in/"), (2, "/nothing/"), (1, "//")]
            {
                let path = format!("{start}{}secret", format!("{parent}{separator}").repeat(depth));
                assert_eq!(site.get(&path).status, 400, "{path}");
            }
        }
    }
}

#[test]
fn rfc3986_what_a_path_means() {
    let mut site = besieged(false);
    for (path, meaning) in [
        // 5.2.4: dot segments are removed by name, before links are looked at.
        ("/a/../index.html", Some("inside index.html")),
        ("/a/b/../index.html", Some("inside a/index.html")),
        ("/in/../index.html", Some("inside index.html")),
        ("/nothing/../index.html", Some("inside index.html")),
        ("/./a/./b/./file", Some("inside a/b/file")),
        ("/a/b/..", Some("inside a/index.html")),
        ("/a/b/.", None),
        // 6.2.2.2: an escape of a character that needs none is that character.
        ("/%61/%62/%66ile", Some("inside a/b/file")),
        ("/a/%2e%2e/index.html", Some("inside index.html")),
        // 2.4: decoded once, and only once.
        ("/%252e%252e", Some("inside %2e%2e")),
        ("/a/%252e%252e/index.html", None),
        // 3.3: a parameter is a part of its segment's name, and dots beyond two are a name.
        ("/..;", None),
        ("/...", None),
        ("/a;b/index.html", None),
        // Empty segments are dropped, as file systems do.
        ("//a///b//file", Some("inside a/b/file")),
        // 2.2: an encoded slash is data, which no file name can hold; a backslash is not a separator.
        ("/a%2fb/file", None),
        ("/a\\b\\file", None),
        ("/a%5cb%5cfile", None),
        // 2.1: a percent sign begins an escape.
        ("/a/b/file%", None),
        ("/a/b/file%2", None),
        ("/a/b/file%zz", None),
        ("/a/b/file%00", None),
    ] {
        let answer = site.get(path);
        let found = (answer.status == 200).then(|| String::from_utf8(answer.body).unwrap());
        assert_eq!(found.as_deref(), meaning, "{path}");
    }
}
