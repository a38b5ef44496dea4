//! A run as a JUnit report, which continuous integration shows: a test case for each threshold, and one for the run.

use std::fmt::Write;

use record::load::Judged;
use record::{LoadResult, Verdict};

/// The run as one XML file.
pub fn junit(result: &LoadResult) -> String {
    let mut out = String::new();
    write_all(&mut out, result).expect("writing to a string");
    out
}

fn write_all(out: &mut String, result: &LoadResult) -> std::fmt::Result {
    let urls = result.manifest.config.get("urls").map_or("a server", String::as_str);
    let failure = result.total_failure().map(|cause| format!("every request failed: {cause}"));
    let is_invalid = !matches!(result.verdict, Verdict::Valid | Verdict::Degraded);
    let crossed = result.thresholds.iter().filter(|judged| judged.crossed).count();
    let (failures, errors) = (crossed + usize::from(failure.is_some()), usize::from(is_invalid));
    let (tests, seconds) = (result.thresholds.len() + 1, result.duration_s);
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(
        out,
        r#"<testsuite name="inrush load {}" tests="{tests}" failures="{failures}" errors="{errors}" time="{seconds:.3}">"#,
        escaped(urls)
    )?;
    case(out, "the run is valid", is_invalid.then(|| ("error", result.reasons.join(" "))))?;
    for Judged { threshold, measured, crossed } in &result.thresholds {
        let failure = crossed.then(|| ("failure", format!("measured {measured}")));
        case(out, &format!("fails if {threshold}"), failure)?;
    }
    if let Some(failure) = failure {
        case(out, "some requests succeed", Some(("failure", failure)))?;
    }
    writeln!(out, "  <system-out>{}</system-out>\n</testsuite>", escaped(&result.conclusion))
}

/// One test case; a failed one has the kind of its failure and a message.
fn case(out: &mut String, name: &str, failed: Option<(&str, String)>) -> std::fmt::Result {
    let name = escaped(name);
    match failed {
        None => writeln!(out, r#"  <testcase classname="inrush.load" name="{name}"/>"#),
        Some((kind, message)) => writeln!(
            out,
            r#"  <testcase classname="inrush.load" name="{name}"><{kind} message="{}"/></testcase>"#,
            escaped(&message)
        ),
    }
}

/// Text for XML, which has no control characters at all.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;

    #[test]
    fn crossed_thresholds_are_failures() {
        let mut result = run(4);
        let judged = |threshold: &str, crossed| Judged {
            threshold: threshold.to_owned(),
            measured: "8.2\"ms\u{1b}".to_owned(),
            crossed,
        };
        result.thresholds = vec![judged("p99>1ms", true), judged("errors>1%", false)];
        let xml = junit(&result);
        assert!(xml.contains(r#"tests="3" failures="1" errors="0""#), "{xml}");
        let failed = r#"name="fails if p99&gt;1ms"><failure message="measured 8.2&quot;ms�"/></testcase>"#;
        assert!(xml.contains(failed), "{xml}");
        assert!(xml.contains(r#"name="fails if errors&gt;1%"/>"#), "{xml}");
        result.verdict = Verdict::GeneratorLimited;
        assert!(junit(&result).contains(r#"errors="1""#));
    }
}
