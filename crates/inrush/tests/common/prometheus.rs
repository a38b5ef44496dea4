//! Pages in Prometheus's text format, checked by its rules and by its own tool.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::collections::BTreeMap;

use assert_cmd::Command;

use super::PATIENCE;

/// The page that says what each metric means.
const REFERENCE: &str = include_str!("../../../../docs/reference/metrics.md");

/// The samples of a page by series. Asserts that each family begins with its help and its type and is in the reference.
pub fn samples(page: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) = line.strip_prefix("# HELP ").expect(line).split_once(' ').unwrap();
        assert!(help.trim() == help && help.len() > 8 && !help.contains('\\'), "{name}: {help:?}");
        let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).expect(name);
        assert_eq!(kind, if name.ends_with("_total") { "counter" } else { "gauge" }, "{name}");
        let is_known = ["`", "{"].iter().any(|end| REFERENCE.contains(&format!("| `{name}{end}")));
        assert!(is_known, "docs/reference/metrics.md does not have {name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'));
        let before = samples.len();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(series.split('{').next(), Some(name));
            let value = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap() };
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
        }
        assert!(samples.len() > before, "{name} has no sample");
    }
    samples
}

/// Checks a page with Prometheus's own tool.
pub fn check_metrics(page: &str) {
    if sys::process::find_program("promtool").is_none() {
        println!("skipped: promtool is not installed (Debian package prometheus)");
        return;
    }
    let mut tool = Command::new("promtool");
    let checked = tool.args(["check", "metrics"]).write_stdin(page).timeout(PATIENCE).output().unwrap();
    let said = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
