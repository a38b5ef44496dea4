//! The report of an experiment: which files there are, what they say, and that they are the same twice.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use analysis::Analysed;
use record::experiment::RunDirectory;
use report::experiment::{html, markdown, text};

use super::fixture::{run, write};

/// Returns the targets of a page's links.
fn links(page: &str) -> Vec<String> {
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    links.map(|link| link.replace("&#x2f;", "/")).filter(|link| !link.starts_with("data:")).collect()
}

fn page(run: RunDirectory) -> String {
    html(&Analysed::of(run).unwrap())
}

/// Every file under a folder, by its path in it.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_report_is_made_again_byte_for_byte() {
    // Kept for the reader's eyes: open it after a change of the page.
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("experiment");
    let _ = fs::remove_dir_all(&dir);
    write(&run(), &dir);
    report::write(&dir).unwrap();
    let first = files(&dir);
    for name in ["report.html", "report.md", "summary.json", "points.csv", "figures/8.svg"] {
        assert!(first.contains_key(name), "{name}");
    }
    assert_eq!(first.contains_key("figures/8.png"), cfg!(feature = "png"));
    report::write(&dir).unwrap();
    let second = files(&dir);
    assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
    for (name, contents) in first {
        assert!(second[&name] == contents, "{name} differs");
    }
}

#[test]
fn a_record_of_the_earlier_stage_warns() {
    const WARNING: &str = "Measured with SYN cookies off";
    assert!(!page(run()).contains(WARNING));
    let mut old = run();
    old.run.manifest.sysctls.insert("net.ipv4.tcp_syncookies".to_owned(), "0".to_owned());
    assert!(page(old.clone()).contains(WARNING));
    let own = "[topology]\nsysctls = { 'net.ipv4.tcp_syncookies' = 0 }\n\n[[server]]";
    old.run.text = old.run.text.replacen("[[server]]", own, 1);
    let page = page(old);
    assert!(!page.contains(WARNING) && page.contains("net.ipv4.tcp_syncookies = 0"), "its own setting");
}

#[test]
fn everything_a_page_links_to_is_there() {
    let dir = tempfile::tempdir().unwrap();
    write(&run(), dir.path());
    report::experiment::write(dir.path()).unwrap();
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    let mut within = 0;
    for link in links(&page) {
        if let Some(id) = link.strip_prefix('#') {
            assert!(page.contains(&format!("id=\"{id}\"")), "{link}");
            within += 1;
        } else {
            assert!(dir.path().join(&link).exists(), "{link}");
        }
    }
    assert!(within > 20, "{within}");
}

#[test]
fn identifiers_are_unique_and_markup_is_balanced() {
    let page = page(run());
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    for name in ["section", "figure", "table", "tr", "td", "a", "svg", "g", "details", "label"] {
        let opened = page.matches(&format!("<{name}>")).count() + page.matches(&format!("<{name} ")).count();
        assert_eq!(opened, page.matches(&format!("</{name}>")).count(), "<{name}>");
    }
    let picture = page.split("<script>").next().unwrap();
    for wrong in ["NaN", "undefined"] {
        assert!(!picture.contains(wrong), "{wrong}");
    }
}

#[test]
fn the_page_says_what_to_know_first() {
    let mut broken = run();
    broken.run.finished = false;
    broken.run.planned = 500;
    let of_one = broken.trials.iter_mut().filter(|trial| trial.is_valid() && trial.server == "one");
    for (trial, share) in of_one.zip([0.09, 0.121]) {
        trial.metrics.insert("in_flight_share".to_owned(), share);
    }
    let page = page(broken);
    for part in [
        "The run was broken off: 250 of 500 trials were made.",
        "On loopback a refused SYN costs the server nothing.",
        "nginx was not measured: nginx is not installed.",
        "(1 generator-limited, 10 server died)",
        "No trial has a point for this figure.",
        "When a trial ended, up to 12 % of its due requests were in flight (one).",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_headline_leads_with_its_figure() {
    let mut run = run();
    let file = run.run.text.replacen(
        "y = \"replies_per_s\"",
        "y = \"replies_per_s\"\nheadline = \"At {x} times: {y}.\"",
        1,
    );
    run.run.text =
        file.replacen("name = \"one\"", "name = \"one\"\nabout = \"It accepts one connection.\"", 1);
    let analysed = Analysed::of(run).unwrap();
    let (page, text) = (html(&analysed), text(&analysed));
    let headline = text.lines().next().unwrap().trim();
    assert!(headline.starts_with("At ") && headline.contains(" times: one "), "{headline}");
    let place = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is missing"));
    let places =
        [headline, "<strong>one</strong>: It accepts one connection.", "id=\"fixture-8\"", "claims-heading"];
    assert!(places.map(place).is_sorted());
    assert_eq!(page.matches("id=\"fixture-8\"").count(), 1, "the leading figure is drawn once");
    assert!(markdown(&analysed).contains(&format!("**{headline}**")), "{headline}");
}

#[test]
fn published_points_are_dashed_flawed_ones_hollow() {
    let page = page(run());
    assert!(page.contains("class=\"series s4 c0 published\" data-name=\"one (2004)\""));
    assert!(page.contains("class=\"trial hollow\""));
    assert!(page.contains("class=\"dot hollow\""));
}

#[test]
fn stacked_figure_has_a_bar_per_series_and_place() {
    let page = page(run());
    let figure = page.split("id=\"fixture-bars\"").nth(1).unwrap().split("</figure>").next().unwrap();
    // A part of each quantity in two forms, and one more in the legend.
    for class in ["part0", "part1"] {
        assert_eq!(figure.matches(&format!("class=\"bar {class}\"")).count(), 2 * 2 * 3 + 1, "{class}");
    }
    assert!(figure.contains("data-at=\"2, inf\"") && !figure.contains("class=\"series"));
}

#[test]
fn a_hostile_record_stays_text() {
    let attack = "</script><script>alert(1)</script>\"'><img onerror=x>|`";
    let mut run = run();
    run.run.name = attack.to_owned();
    run.run.warnings = vec![attack.to_owned()];
    run.run.manifest.cpu = attack.to_owned();
    run.run.manifest.command = vec![attack.to_owned()];
    run.run.servers[4].excluded = Some(attack.to_owned());
    run.run.text = run.run.text.replace("Reply rate\"", "<img onerror=x>\"");
    for trial in run.trials.iter_mut().filter(|trial| trial.server == "one") {
        trial.server = attack.to_owned();
        trial.failure = Some(attack.to_owned());
    }
    let page = page(run);
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("<script").count(), 1);
}

#[test]
fn numbers_that_no_run_yields_do_not_break_the_report() {
    for odd in [f64::NAN, f64::INFINITY, f64::MAX, -1.0, 0.0, 5e-324] {
        let mut run = run();
        for trial in &mut run.trials {
            trial.metrics.values_mut().for_each(|value| *value = odd);
        }
        let analysed = Analysed::of(run).unwrap();
        html(&analysed);
        markdown(&analysed);
    }
    let mut empty = run();
    empty.trials.clear();
    let analysed = Analysed::of(empty).unwrap();
    assert!(html(&analysed).contains("No trial has a point for this figure."));
}

#[test]
fn the_report_as_markdown() {
    let run = run();
    let text = markdown(&Analysed::of(run).unwrap());
    insta::assert_snapshot!(text);
}

#[test]
fn own_claims_have_no_paper_column() {
    let mut run = run();
    let text = run.run.text.lines().filter(|line| !line.starts_with("paper = "));
    run.run.text = text.collect::<Vec<_>>().join("\n");
    let analysed = Analysed::of(run).unwrap();
    let (page, text) = (html(&analysed), markdown(&analysed));
    assert!(text.contains("4 of 12 claims hold, 4 do not, 2 are undecided, 2 not tested."), "{text}");
    assert!(text.contains("| ✓ holds |") && text.contains("| ✗ does not hold |"), "{text}");
    assert!(text.contains("| claim | expected |"), "{text}");
    assert!(page.contains("</span> holds</span>") && !page.contains("reproduced</span>"));
    assert!(!page.contains("<th scope=\"col\">Paper</th>") && !page.contains("data-label=\"Paper\""));
}

#[test]
fn several_runs_make_one_document() {
    // Kept for the reader's eyes as well.
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("paper");
    let _ = fs::remove_dir_all(&out);
    for (name, started) in [("zuerst", 1_795_297_000), ("then", 1_795_297_900)] {
        let mut run = run();
        name.clone_into(&mut run.run.name);
        run.run.manifest.started_unix_s = started;
        write(&run, &out.join(name));
    }
    report::write(&out).unwrap();
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.find("id=\"zuerst\"").unwrap() < page.find("id=\"then\"").unwrap());
    for link in links(&page) {
        let there = match link.strip_prefix('#') {
            Some(id) => page.contains(&format!("id=\"{id}\"")),
            None => out.join(&link).exists(),
        };
        assert!(there, "{link}");
    }
    let text = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(text.contains("| zuerst | Past saturation accepting all"), "{text}");
    let claims = fs::read_to_string(out.join("claims.md")).unwrap();
    assert_eq!(claims.matches("| Past saturation accepting all").count(), 2, "{claims}");
    let summary: serde_json::Value = record::file::read(&out.join("summary.json")).unwrap();
    assert_eq!(summary["claims"].as_array().unwrap().len(), 24);
    assert_eq!(summary["claims"][0]["experiment"], "zuerst");
    assert_eq!(summary["claims"][0]["judged"], "reproduced");
}

#[test]
fn a_folder_without_records_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let error = report::write(empty.path()).unwrap_err().to_string();
    assert!(error.contains("holds no run of an experiment"), "{error}");
}
