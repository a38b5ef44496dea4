//! What a demonstration leaves behind.

use std::path::Path;

use anyhow::{Context, ensure};
use record::Study;

use super::{browser, check_page};

/// The figures of every study, by their ids.
const FIGURES: [&str; 4] = ["goodput", "response", "outcomes", "drops"];

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
    let page = check_page(&path)?;
    for figure in FIGURES {
        ensure!(has_chart(&page, figure), "figure {figure} has no chart");
    }
    println!("{} trials balance; {} needs nothing but itself", study.trials.len(), path.display());
    browser::check(&path, page.matches("<figure").count())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_without_a_chart_is_missed() {
        let page = "<figure class=\"x\" id=\"drops\"><svg class=\"chart\"></svg></figure>";
        assert!(has_chart(page, "drops") && !has_chart(page, "goodput"));
        assert!(!has_chart(&page.replace("class=\"chart\"", "class=\"swatch\""), "drops"));
    }
}
