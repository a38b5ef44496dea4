//! Paths with weights from a file: lines of `WEIGHT PATH` or `PATH`, or a web server's access log in the
//! common or combined format. The weight of a path in a log is the number of its GET requests.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::WorkloadError;

/// Paths below the URL, each with a weight.
#[derive(Clone, Debug, PartialEq)]
pub struct UrlList {
    file: PathBuf,
    /// Each path once, in alphabetical order; at least one. Weights are above 0.
    weights: Arc<BTreeMap<String, f64>>,
}

impl UrlList {
    /// Reads the file.
    pub(super) fn read(whole: &str, file: &str) -> Result<UrlList, WorkloadError> {
        let refuse = |why: String| WorkloadError { given: whole.to_owned(), why };
        let text =
            std::fs::read_to_string(file).map_err(|cause| refuse(format!("cannot be read: {cause}")))?;
        let weights = parse(&text).map_err(refuse)?;
        Ok(UrlList { file: PathBuf::from(file), weights: Arc::new(weights) })
    }

    /// The paths with their weights.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.weights.iter().map(|(path, weight)| (path.as_str(), *weight))
    }
}

impl fmt::Display for UrlList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "urls:{}", Path::display(&self.file))
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let lines = || text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
    let is_log = lines().next().is_some_and(|(_, line)| line.contains('"'));
    let mut weights = BTreeMap::new();
    for (index, line) in lines() {
        let (entry, expected) = match is_log {
            true => (logged(line), "an access log's line with \"METHOD PATH HTTP/1.1\""),
            false => (listed(line), "WEIGHT /PATH or /PATH"),
        };
        let (weight, path) =
            entry.ok_or_else(|| format!("is wrong: line {} is not {expected}", index + 1))?;
        if weight > 0.0 {
            *weights.entry(path.to_owned()).or_insert(0.0) += weight;
        }
    }
    if weights.is_empty() { Err("holds no paths".to_owned()) } else { Ok(weights) }
}

fn listed(line: &str) -> Option<(f64, &str)> {
    let (weight, path) = match line.split_once(char::is_whitespace) {
        None => (1.0_f64, line),
        Some((weight, path)) => (weight.parse().ok()?, path.trim_start()),
    };
    (is_path(path) && weight > 0.0 && weight.is_finite()).then_some((weight, path))
}

/// Parses a line of an access log; anything but a GET of a path weighs nothing.
fn logged(line: &str) -> Option<(f64, &str)> {
    let request = line.split('"').nth(1)?;
    let path = request.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    Some(path.filter(|path| is_path(path)).map_or((0.0, ""), |path| (1.0, path)))
}

/// Returns true for text that can stand unchanged in a request line.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_weights_and_logs_have_counts() {
        let list = parse("3 /a\n\n/b?c=%20\n0.5  /a\n").unwrap();
        assert_eq!(list, BTreeMap::from([("/a".to_owned(), 3.5), ("/b?c=%20".to_owned(), 1.0)]));
        let line =
            |request| format!("::1 - - [10/Oct/2000:13:55:36 -0700] \"{request}\" 200 5 \"-\" \"curl\"\n");
        let others = ["POST /y HTTP/1.1", "-", "GET http://x/ HTTP/1.1"].map(line).concat();
        let log = line("GET /x HTTP/1.1") + &others + &line("GET /x HTTP/1.0");
        assert_eq!(parse(&log).unwrap(), BTreeMap::from([("/x".to_owned(), 2.0)]));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        for (text, line) in
            [("/a\nb", 2), ("0 /a", 1), ("\n-1 /a", 2), ("inf /a", 1), ("1 /a b", 1), ("/ü", 1)]
        {
            let told = parse(text).unwrap_err();
            assert_eq!(told, format!("is wrong: line {line} is not WEIGHT /PATH or /PATH"));
        }
        assert_eq!(parse("\n").unwrap_err(), "holds no paths");
        assert!(parse("x \"GET /\"\nx").unwrap_err().contains("line 2 is not an access log's"));
    }
}
