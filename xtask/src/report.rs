//! Checks of the files that an experiment, or a set of them, left behind. The records must add up, and the report
//! must need nothing but itself and them.
//!
//! Reads the files. If chromium is installed, it also opens the report and examines the page.

mod browser;
mod experiment;

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};

/// The places in which a page can name another resource that it loads. The resource must be in the page itself.
const LOADED: [&str; 5] = ["src=\"", "action=\"", "data=\"", "url(", "@import "];
/// A link is only followed by a reader. It may also lead to a record beside the page, which must then be there.
const LINK: &str = "href=\"";
const IN_THE_PAGE: [&str; 2] = ["data:", "#"];

/// Checks a folder.
///
/// # Errors
/// The first defect.
pub fn check(folder: &Path) -> anyhow::Result<()> {
    if experiment::is_run(folder)? { experiment::check(folder) } else { experiment::check_all(folder) }
}

/// Reads a page. It loads nothing from elsewhere, and its links lead into it or to a file beside it.
fn check_page(path: &Path) -> anyhow::Result<String> {
    let page = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    for reference in LOADED {
        for target in targets(&page, reference) {
            ensure!(is_in_the_page(&target), "the report loads another file: {reference}{target}");
        }
    }
    for target in targets(&page, LINK).filter(|target| !is_in_the_page(target)) {
        let path = folder.join(target.replace("%20", " "));
        ensure!(!target.contains("://") && path.exists(), "the report leads nowhere: {LINK}{target}");
    }
    Ok(page)
}

/// Returns the text after each occurrence of a reference, up to its end.
fn targets<'a>(page: &'a str, reference: &'a str) -> impl Iterator<Item = String> + 'a {
    page.match_indices(reference).map(move |(at, _)| {
        let target = page[at + reference.len()..].trim_start_matches(['"', '\'']);
        let end = target.find(['"', '\'', ')', '>']).unwrap_or(target.len());
        target[..end].replace("&#x2f;", "/").replace("&#47;", "/")
    })
}

fn is_in_the_page(target: &str) -> bool {
    IN_THE_PAGE.iter().any(|start| target.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(page: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("0001-1.json"), "{}").unwrap();
        let path = folder.path().join("report.html");
        fs::write(&path, page).unwrap();
        check_page(&path).err().map(|error| error.to_string())
    }

    #[test]
    fn page_may_link_to_itself_and_its_neighbours() {
        let page = "<link href=\"data:,\"><a href=\"#goodput\"></a><i style=\"fill: url(#hatch)\"></i>\
                    <a href=\"0001-1.json\">";
        assert_eq!(checked(page), None);
        for more in ["<script src=\"https://cdn/x.js\">", "url('fonts/a.woff')", "<img src=\"0001-1.json\">"]
        {
            let error = checked(more).unwrap();
            assert!(error.starts_with("the report loads another file: "), "{error}");
        }
        for more in ["<a href=\"0002-1.json\">", "<a href=\"https://example.com/\">"] {
            let error = checked(more).unwrap();
            assert!(error.starts_with("the report leads nowhere: "), "{error}");
        }
    }
}
