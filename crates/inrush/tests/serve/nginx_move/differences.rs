//! The answers that differ from those of nginx: each row of the table on the page has a request here that shows it.

use std::collections::BTreeSet;

use super::{Addresses, Ask, Raw, SPELLINGS, arguments, installed, moved, nginx, place, wait_until_coded};

const PAGE: &str = include_str!("../../../../../docs/tasks/from-nginx.md");

/// A request that the servers answer differently.
struct Difference {
    /// The beginning of the row on the page.
    row: &'static str,
    ask: Ask,
    /// `status`, the name of a field, or one with `?` for its presence.
    part: &'static str,
    theirs: String,
    ours: String,
}

/// The part of an answer, without the port of the server.
fn part(addresses: Addresses, ask: &Ask, name: &str) -> String {
    let raw = Raw::of(addresses, ask);
    let text = match name {
        "status" => raw.status.to_string(),
        presence if presence.ends_with('?') => {
            raw.value(presence.trim_end_matches('?')).is_some().to_string()
        }
        field => raw.value(field).unwrap_or_default(),
    };
    text.replace(&format!(":{}", addresses.of(ask.scheme).port()), "")
}

fn all() -> Vec<Difference> {
    let mut all = Vec::new();
    let mut add =
        |row, (scheme, host, path): (_, _, &str), words: &[&str], part, theirs: &str, ours: &str| {
            let ask = Ask { scheme, host, path: path.to_owned(), arguments: arguments(words) };
            all.push(Difference { row, ask, part, theirs: theirs.to_owned(), ours: ours.to_owned() });
        };
    let (main, app) = (|path| ("https", "example.test", path), |path| ("https", "app.example.test", path));
    let hsts = "max-age=63072000";
    add("a folder without index and listing", main("/assets/"), &[], "status", "403", "404");
    let field = "strict-transport-security";
    add("a field of `server`, in a location with", main("/assets/app.css"), &[], field, "", hsts);
    add("`OPTIONS`", main("/about"), &["-X", "OPTIONS"], "status", "405", "204");
    add("`OPTIONS`", main("/about"), &["-X", "OPTIONS"], "allow", "", "GET, HEAD, OPTIONS");
    add("a folder without its slash, at a fallback", app("/downloads"), &[], "status", "200", "301");
    for path in SPELLINGS {
        let canonical = if path.starts_with("/docs//") { "/docs/page" } else { "/about" };
        let url = |path| format!("https://example.test{path}");
        let row = "a redirect with `$request_uri`";
        add(row, ("http", "example.test", path), &[], "location", &url(path), &url(canonical));
    }
    let later = ["-H", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"];
    add("`If-Modified-Since` with a later date", main("/about"), &later, "status", "200", "304");
    add("`add_header` at a refused method", main("/about"), &["-d", "x"], field, hsts, "");
    let twice = format!("{hsts}, {hsts}");
    add("a range behind the end", main("/about"), &["-r", "9999-"], field, &twice, hsts);
    add("a name that begins with a dot", main("/.hidden.txt"), &[], "status", "200", "404");
    let kind = "content-type";
    add(
        "the page of an error without",
        app("/downloads/none"),
        &[],
        kind,
        "text/html",
        "text/plain; charset=utf-8",
    );
    add(
        "the type of JavaScript",
        app("/main.js"),
        &[],
        kind,
        "application/javascript",
        "text/javascript; charset=utf-8",
    );
    add("the type of other text", app("/main.css"), &[], kind, "text/css", "text/css; charset=utf-8");
    add("`return 301 /new`", main("/old"), &[], "location", "https://example.test/new", "/new");
    let gzip = ["-H", "Accept-Encoding: gzip"];
    let coding = "content-encoding";
    add("the first answer with a text", main("/fresh.css"), &gzip, coding, "gzip", "");
    add("`expires`", main("/assets/logo.svg"), &[], "expires?", "true", "false");
    add("a client that takes brotli", main("/style.css"), &["-H", "Accept-Encoding: br"], coding, "", "br");
    add(
        "a file of an unknown type",
        main("/file.unknown"),
        &[],
        kind,
        "text/plain",
        "application/octet-stream",
    );
    add("`add_header` without `always`", main("/zone"), &[], "x-zone", "", "here");
    all
}

#[test]
fn differences_from_nginx_are_those_of_the_page() {
    if !installed("nginx") || !installed("curl") {
        return;
    }
    let files = place();
    let (_nginx, theirs) = nginx(&files);
    let (server, ours, _) = moved(&files);
    wait_until_coded(ours, "/style.css", "br");
    let all = all();
    for Difference { row, ask, part: name, theirs: their, ours: our } in &all {
        let parts = (part(theirs, ask, name), part(ours, ask, name));
        assert_eq!(parts, (their.clone(), our.clone()), "{row}: {name} of {ask:?}");
    }
    server.stop_well();
    let (_, table) =
        PAGE.split_once("| request | nginx | here |\n|---|---|---|\n").expect("the page has a table");
    let rows = table.lines().take_while(|line| line.starts_with("| ")).map(|line| &line[2..]);
    for row in rows.clone() {
        assert!(all.iter().any(|difference| row.starts_with(difference.row)), "nothing shows the row: {row}");
    }
    let unwritten: BTreeSet<&str> = all
        .iter()
        .map(|difference| difference.row)
        .filter(|row| !rows.clone().any(|line| line.starts_with(row)))
        .collect();
    assert!(unwritten.is_empty(), "the page has no row: {unwritten:?}");
}
