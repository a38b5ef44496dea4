//! Several experiments as one document: the papers' findings, and the measurements that reproduce or refute them.
//!
//! Owns the findings and the table of all claims at the top, and the order of the sections. A section repeats an
//! experiment's own report and links to it. The document names and leaves out an experiment whose records cannot be read.

use std::path::Path;

use anyhow::{Context, bail};
use record::Manifest;
use record::experiment::Directory;
use record::file::write_whole;
use serde::Serialize;

use analysis::Analysed;
use analysis::claims::judge_together;

use crate::experiment::{
    ClaimRow, HOW_JUDGED, Section, Summary, claims_table, escaped, push_finding, push_section,
    score_sentences,
};
use crate::page::frame::render;

const TITLE: &str = "What the papers found, and what is found today";

#[derive(Serialize)]
struct Page {
    title: &'static str,
    version: String,
    lede: String,
    score: String,
    claims: Vec<ClaimRow>,
    warnings: Vec<String>,
    sections: Vec<Section>,
    lines_most: usize,
}

/// Writes the document of some runs, by the names of their folders in `out`, in this order: `report.html`,
/// `report.md`, `claims.md` and `summary.json`.
///
/// # Errors
/// None of the runs can be read, or a file cannot be written.
pub fn write(out: &Path, names: &[String]) -> anyhow::Result<()> {
    let mut runs = Vec::new();
    let mut warnings = Vec::new();
    for name in names {
        match Analysed::read(&out.join(name)) {
            Ok(analysed) => runs.push((name.as_str(), analysed)),
            Err(error) => warnings.push(format!("{name} is left out: {error:#}.")),
        }
    }
    if runs.is_empty() {
        bail!("{} holds no run that can be read: {}", out.display(), warnings.join(" "));
    }
    judge_together(runs.iter_mut().flat_map(|(_, analysed)| &mut analysed.claims));
    let page = page(&runs, warnings);
    let claims = runs.iter().flat_map(|(_, analysed)| &analysed.claims);
    record::file::write(&out.join("summary.json"), &Summary::of(claims))?;
    write_whole(&out.join("report.md"), markdown(&page).as_bytes())?;
    write_whole(&out.join("claims.md"), claims_alone(&page).as_bytes())?;
    write_whole(&out.join("report.html"), render("paper.html", &page).as_bytes())?;
    Ok(())
}

/// The folders in a folder that hold a run, in the order in which they were started.
///
/// # Errors
/// The folder or a run's file in it cannot be read.
pub fn runs_in(out: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(out).with_context(|| format!("cannot read {}", out.display()))?;
    let mut runs = Vec::new();
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        if let Some(run) = Directory::new(entry.path()).run()? {
            runs.push((run.manifest.started_unix_s, entry.file_name().to_string_lossy().into_owned()));
        }
    }
    runs.sort();
    Ok(runs.into_iter().map(|(_, name)| name).collect())
}

fn page(runs: &[(&str, Analysed)], warnings: Vec<String>) -> Page {
    let sections: Vec<Section> =
        runs.iter().map(|(name, analysed)| Section::new(analysed, &format!("{}/", url_path(name)))).collect();
    let manifest = &runs[0].1.run.run.manifest;
    let lede = format!(
        "{} experiments, most of them of papers from 1997 to 2004, on Linux {} ({}). Each claim is \
         measured anew. It is reproduced or refuted by a one-sided test at 5 % for all claims of this page together, \
         undecided if the test allows neither, and not tested without enough valid trials. The documentation has \
         a page on the method.",
        runs.len(),
        distinct(runs, |manifest| &manifest.kernel),
        distinct(runs, |manifest| &manifest.cpu)
    );
    Page {
        title: TITLE,
        version: manifest.version.clone(),
        lede,
        score: score_sentences(runs.iter().flat_map(|(_, analysed)| &analysed.claims)),
        claims: sections.iter().flat_map(|section| section.claims.iter().cloned()).collect(),
        warnings,
        lines_most: sections.iter().map(|section| section.lines_most).max().unwrap_or(0),
        sections,
    }
}

/// Returns what the manifests of the runs say, each text once, in the order of the runs.
fn distinct(runs: &[(&str, Analysed)], of: fn(&Manifest) -> &str) -> String {
    let mut texts: Vec<&str> = Vec::new();
    for (_, analysed) in runs {
        let text = of(&analysed.run.run.manifest);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join(" and ")
}

fn markdown(page: &Page) -> String {
    let mut out = format!("# {}\n\n{}\n\n**{}**\n\n", page.title, escaped(&page.lede), page.score);
    page.sections.iter().for_each(|section| push_finding(&mut out, section));
    out.push_str(&claims_table(&page.claims, true));
    for warning in &page.warnings {
        out.push_str(&format!("- {}\n", escaped(warning)));
    }
    for section in &page.sections {
        out.push_str(&format!("\n## {}\n\n", escaped(&section.title)));
        push_section(&mut out, section, "###");
    }
    out
}

/// The claims of all experiments, without anything else of them.
fn claims_alone(page: &Page) -> String {
    let mut out = format!("# All claims\n\n{}\n\n{HOW_JUDGED}\n", page.score);
    for section in page.sections.iter().filter(|section| !section.claims.is_empty()) {
        out.push_str(&format!("\n## {}\n\n", escaped(&section.title)));
        let paper = section.paper.iter().map(|paper| format!(" {}.", escaped(paper)));
        out.push_str(&format!("`{}`.{}\n\n", section.anchor, paper.collect::<String>()));
        out.push_str(claims_table(&section.claims, false).trim_end());
        out.push('\n');
    }
    out
}

/// Writes a folder's name as a part of a reference. Characters that would end or split it become numbers.
fn url_path(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_record_is_no_markup() {
        let page = Page {
            title: TITLE,
            version: String::new(),
            lede: "On Linux *6*.".to_owned(),
            score: String::new(),
            claims: Vec::new(),
            warnings: vec!["a_b <c> is left out.".to_owned()],
            sections: Vec::new(),
            lines_most: 0,
        };
        let text = markdown(&page);
        assert!(text.contains(r"On Linux \*6\*.") && text.contains(r"- a\_b \<c> is left out."), "{text}");
    }

    #[test]
    fn names_of_folders_become_references() {
        assert_eq!(url_path("brecht-userver"), "brecht-userver");
        assert_eq!(url_path("a b#c?"), "a%20b%23c%3F");
    }
}
