//! Whether a demonstration left behind what it promises: a report that needs nothing but itself, and
//! records that add up.
//!
//! Looks at the files alone; where chromium is installed it also opens the report and looks at what its
//! script made of it.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use base::Nanos;
use record::Study;
use sys::process::{Program, find_program};

/// The figures of every report, by their ids.
const FIGURES: [&str; 4] = ["goodput", "response", "outcomes", "drops"];
/// Where a page can name another resource; what follows must be in the page itself.
const REFERENCES: [&str; 6] = ["src=\"", "href=\"", "action=\"", "data=\"", "url(", "@import "];
const IN_THE_PAGE: [&str; 2] = ["data:", "#"];
const TICK: Nanos = Nanos::from_millis(20);

/// Checks the folder of a demonstration.
///
/// # Errors
/// The first thing that is not as it should be.
pub fn check(folder: &Path) -> anyhow::Result<()> {
    let study: Study = record::file::read(&folder.join("study.json"))?;
    let measured = study.servers.iter().filter(|server| server.excluded.is_none());
    ensure!(measured.count() >= 3, "fewer than three servers were measured");
    for trial in &study.trials {
        trial.load.balance().with_context(|| format!("{} at {}", trial.server, trial.factor))?;
    }
    let path = folder.join("report.html");
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    check_page(&page)?;
    println!("{} trials balance; {} needs nothing but itself", study.trials.len(), path.display());
    match find_program("chromium") {
        Some(chromium) => check_in_browser(&chromium, &path),
        None => {
            println!("skipped: chromium is not installed, so nobody has looked at the report");
            Ok(())
        }
    }
}

/// Every figure has a chart that needs no script, and nothing is loaded from elsewhere.
fn check_page(page: &str) -> anyhow::Result<()> {
    for figure in FIGURES {
        ensure!(has_chart(page, figure), "figure {figure} has no chart");
    }
    for reference in REFERENCES {
        for (at, _) in page.match_indices(reference) {
            let target = page[at + reference.len()..].trim_start_matches(['"', '\'']);
            let target: String = target.chars().take(60).collect();
            ensure!(
                IN_THE_PAGE.iter().any(|start| target.starts_with(start)),
                "the report refers to another file: {reference}{target}"
            );
        }
    }
    Ok(())
}

/// Whether the figure of this id is there with a drawing in it.
fn has_chart(page: &str, id: &str) -> bool {
    let figures = page.split("<figure").skip(1).map(|rest| rest.split("</figure>").next().unwrap_or(""));
    let mut named = figures.filter(|figure| {
        let tag = figure.split('>').next().unwrap_or("");
        tag.contains(&format!("id=\"{id}\""))
    });
    named.any(|figure| figure.contains("<svg class=\"chart"))
}

/// Opens the page in a browser without a window: the charts are still there when its script has run, and
/// nothing has gone wrong. Blocks.
fn check_in_browser(chromium: &Path, page: &Path) -> anyhow::Result<()> {
    let profile = tempfile::tempdir().context("cannot make a folder for the browser")?;
    let page = fs::canonicalize(page)?;
    let program = Program::new(chromium).arguments([
        "--headless".to_owned(),
        "--no-sandbox".to_owned(),
        "--disable-gpu".to_owned(),
        "--enable-logging=stderr".to_owned(),
        "--virtual-time-budget=2000".to_owned(),
        format!("--user-data-dir={}", profile.path().display()),
        "--dump-dom".to_owned(),
        format!("file://{}", page.display()),
    ]);
    let output = program.start().context("cannot start chromium")?.output(TICK, || true)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if let Some(line) = said.lines().find(|line| line.contains("CONSOLE")) {
        anyhow::bail!("the report's script complains: {line}");
    }
    let dom = String::from_utf8_lossy(&output.stdout);
    for figure in FIGURES {
        ensure!(has_chart(&dom, figure), "in the browser figure {figure} has no chart");
    }
    println!("chromium shows all {} figures, and its console is empty", FIGURES.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(more: &str) -> String {
        let figures =
            FIGURES.map(|id| format!("<figure class=\"x\" id=\"{id}\"><svg class=\"chart\"></svg></figure>"));
        format!("<link href=\"data:,\">{}{more}", figures.concat())
    }

    #[test]
    fn a_page_may_refer_to_itself_alone() {
        check_page(&page("<a href=\"#goodput\"></a><i style=\"fill: url(#hatch)\"></i>")).unwrap();
        for more in ["<script src=\"https://cdn/x.js\">", "url('fonts/a.woff')", "@import \"a.css\""] {
            let error = check_page(&page(more)).unwrap_err().to_string();
            assert!(error.starts_with("the report refers to another file: "), "{error}");
        }
    }

    #[test]
    fn a_figure_without_a_chart_is_missed() {
        let without =
            page("").replace("id=\"drops\"><svg class=\"chart\">", "id=\"drops\"><svg class=\"swatch\">");
        assert_eq!(check_page(&without).unwrap_err().to_string(), "figure drops has no chart");
    }
}
