//! The report of a study: what it says, what it escapes, and that it says the same twice.

mod study;

use std::fs;
use std::path::Path;

use record::{Outcome, TopologyKind, Verdict};
use report::study::{html, text};
use study::study;

/// Elements whose end tag may not be left out, all of which the page must close.
const CLOSED: [&str; 14] = [
    "html", "head", "body", "main", "header", "section", "figure", "div", "ul", "table", "svg", "g", "text",
    "details",
];

fn assert_well_formed(page: &str) {
    for name in CLOSED {
        let opened = page.matches(&format!("<{name}>")).count() + page.matches(&format!("<{name} ")).count();
        assert_eq!(opened, page.matches(&format!("</{name}>")).count(), "<{name}>");
    }
    let picture = page.split("<script>").next().unwrap();
    for wrong in ["NaN", "=\"inf", "=\"-inf", "undefined"] {
        assert!(!picture.contains(wrong), "{wrong}");
    }
}

#[test]
fn the_page_is_whole_and_the_same_twice() {
    let page = html(&study());
    // Kept for the reader's eyes: open it after a change of the page.
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html"), &page).unwrap();
    assert_eq!(page, html(&study()));
    assert!(page.starts_with("<!doctype html>"));
    assert_well_formed(&page);
    for heading in ["Goodput", "Response time", "Outcomes", "Queue drops", "Accept phases"] {
        assert!(page.contains(&format!("</span> {heading}</h2>")), "{heading}");
    }
    assert!(page.contains("not measured: nginx is not installed"));
    assert!(page.contains("Run again with <code>inrush demo --quick --seed 42</code>"));
}

#[test]
fn the_page_asks_for_nothing_from_elsewhere() {
    let page = html(&study());
    for elsewhere in ["src=", "@import", "url(http", "href=\"http", "fetch("] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
}

#[test]
fn identifiers_are_unique() {
    let page = html(&study());
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn a_hostile_record_stays_text() {
    let attack = "</script><script>alert(1)</script>\"'><img onerror=x>";
    let mut study = study();
    study.title = attack.to_owned();
    study.topology.warnings = vec![attack.to_owned()];
    study.manifest.cpu = attack.to_owned();
    study.manifest.command = vec![attack.to_owned()];
    study.servers[0].name = attack.to_owned();
    study.servers[0].description = attack.to_owned();
    study.servers[3].excluded = Some(attack.to_owned());
    for trial in study.trials.iter_mut().filter(|trial| trial.server == "accept-limit 1") {
        trial.server = attack.to_owned();
        trial.load.verdict = Verdict::GeneratorLimited;
        trial.load.reasons = vec![attack.to_owned()];
    }
    let page = html(&study);
    assert_well_formed(&page);
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("<script").count(), 1);
}

#[test]
fn numbers_that_no_run_yields_do_not_break_the_page() {
    for odd in [f64::NAN, f64::INFINITY, f64::MAX, -1.0, 0.0, 5e-324] {
        let mut study = study();
        for trial in &mut study.trials {
            trial.load.goodput_per_s = odd;
            trial.load.offered_per_s = odd;
            trial.load.duration_s = odd;
            trial.kernel.over_s = odd;
            trial.load.latency_intended_ns.answered.p50 = u64::MAX;
        }
        study.trials[0].factor = odd;
        study.servers[0].capacity_per_s = odd;
        html(&study);
        text(&study);
    }
}

#[test]
fn an_empty_study_says_so() {
    let mut study = study();
    study.trials.clear();
    assert!(html(&study).contains("No server was measured."));
    assert!(text(&study).contains("accept-limit 10: not measured: no trial of it reached it\n"));
    study.servers.clear();
    assert_well_formed(&html(&study));
}

#[test]
fn one_trial_is_enough_for_a_page() {
    let mut study = study();
    study.trials.truncate(1);
    study.topology.kind = TopologyKind::Namespaces;
    assert_well_formed(&html(&study));
}

#[test]
fn a_ledger_that_does_not_balance_is_a_warning() {
    let mut study = study();
    study.trials[0].load.outcomes.add(Outcome::Ok, 1);
    study.trials[1].server = "somebody else".to_owned();
    study.trials[2].load.verdict = Verdict::Unreachable;
    let text = text(&study);
    assert!(text.contains("the ledger of the run does not balance"), "{text}");
    assert!(text.contains("the study lists no such server"), "{text}");
    assert!(text.contains("the server was never reached"), "{text}");
}

#[test]
fn the_table_for_the_terminal() {
    insta::assert_snapshot!(text(&study()));
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let mut study = study();
    study.servers[0].name = "\u{1b}[2J".to_owned();
    assert!(!text(&study).contains('\u{1b}'));
}
