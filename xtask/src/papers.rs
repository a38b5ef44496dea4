//! `cargo xtask papers`: the report of the runs of the papers' experiments, and what the pages of `docs/papers` show of it.
//!
//! ```text
//! docs/papers/records.tar.xz + remarks.toml ──> target/papers: reports, figures, summary.json
//!                                                    │
//!      docs/papers: summary.json, claims.md, tables between the lines of README.md, shown figures
//! ```
//!
//! The tree keeps the records and what a reader sees first; a release has the rest. In a page, the line
//! `<!-- claims: brecht-select/2 -->` stands above a table of these claims, by their places in the experiment, from 1.
//!
//! Invariant: `docs/papers` shows no number in a table or a figure that the command would write otherwise. A test compares.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use analysis::claims::Judged;
use anyhow::{Context, bail, ensure};
use base::Nanos;
use experiment::Remarks;
use report::experiment::{brief_claims_table, row};
use serde::Deserialize;
use sys::process::{Program, Streams};

/// The page that people write, but for its tables.
const PAGE: &str = "README.md";
const MARK: &str = "<!-- claims: ";

/// Makes the report in `target/papers`, and writes the files of `docs/papers` that come from it. Blocks for some seconds.
///
/// # Errors
/// `tar` or `xz` is missing, a record cannot be read, a page names a claim or a figure that does not exist, or a file cannot
/// be written.
pub fn write() -> anyhow::Result<()> {
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/papers");
    make_report(&out)?;
    for (name, contents) in shown(&out)? {
        let path = papers().join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder"))?;
        fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("report: target/papers/report.html; docs/papers is written anew");
    Ok(())
}

fn papers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/papers")
}

/// Unpacks the records into a folder, and makes their report there.
fn make_report(out: &Path) -> anyhow::Result<()> {
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let records = papers().join("records.tar.xz");
    let words = ["-xJf".as_ref(), records.as_os_str(), "-C".as_ref(), out.as_os_str()];
    let mut tar = Program::new("tar").arguments(words).with_streams(Streams::Ours).start()?;
    let exit = tar.wait(Nanos::from_secs(120))?;
    ensure!(exit.is_some_and(|exit| exit.status.success()), "tar cannot unpack {}", records.display());
    fs::copy(papers().join(Remarks::FILE), out.join(Remarks::FILE))?;
    report::write(out)
}

/// The files of `docs/papers` that come from a report, by their names.
fn shown(report: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let page = with_tables(&fs::read_to_string(papers().join(PAGE))?, &summary(report)?)?;
    for name in figures(&page).map(str::to_owned).chain(["summary.json", "claims.md"].map(str::to_owned)) {
        let path = report.join(&name);
        files.insert(name, fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    files.insert(PAGE.to_owned(), page.into_bytes());
    Ok(files)
}

/// The figures that a page shows.
fn figures(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| target.ends_with(".svg"))
}

fn summary(report: &Path) -> anyhow::Result<Vec<Judged>> {
    #[derive(Deserialize)]
    struct Summary {
        claims: Vec<Judged>,
    }
    let text = fs::read_to_string(report.join("summary.json"))?;
    Ok(serde_json::from_str::<Summary>(&text)?.claims)
}

/// A page with the tables of its marks written anew.
fn with_tables(page: &str, claims: &[Judged]) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(names) = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        let rows: Vec<_> =
            names.split(' ').map(|name| Ok(row(claim(name, claims)?))).collect::<anyhow::Result<_>>()?;
        out.push('\n');
        out.push_str(&brief_claims_table(&rows));
        while lines.next_if(|line| line.is_empty() || line.starts_with('|')).is_some() {}
        out.push('\n');
    }
    Ok(out)
}

/// The claim of a name such as `brecht-select/2`.
fn claim<'a>(name: &str, claims: &'a [Judged]) -> anyhow::Result<&'a Judged> {
    let place = |(experiment, place): (&str, &str)| {
        let mut of_it = claims.iter().filter(|claim| claim.experiment == experiment);
        of_it.nth(place.parse::<usize>().ok()?.checked_sub(1)?)
    };
    match name.split_once('/').and_then(place) {
        Some(claim) => Ok(claim),
        None => {
            bail!("{PAGE} names the claim '{name}'; expected EXPERIMENT/PLACE of a claim in summary.json")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn papers_show_what_the_command_makes() {
        let report = tempfile::tempdir().unwrap();
        make_report(report.path()).unwrap();
        let shown = shown(report.path()).unwrap();
        for (name, contents) in &shown {
            let there = fs::read(papers().join(name)).unwrap_or_default();
            assert!(there == *contents, "docs/papers/{name} is stale: run cargo xtask papers");
        }
        let judged = summary(report.path()).unwrap();
        for remark in Remarks::read(&papers()).unwrap().all {
            let is_known = judged.iter().any(|claim| claim.experiment == remark.experiment);
            assert!(is_known, "{}: there is no run of {}", Remarks::FILE, remark.experiment);
        }
    }

    #[test]
    fn stale_table_is_replaced_and_wrong_mark_is_named() {
        let judged = summary(&papers()).unwrap();
        let first = judged[0].experiment.clone();
        let page = format!("Text.\n\n{MARK}{first}/1 -->\n\n| old |\n|---|\n\nMore.\n");
        let filled = with_tables(&page, &judged).unwrap();
        assert!(filled.contains(&judged[0].claim) && !filled.contains("| old |"), "{filled}");
        assert!(filled.ends_with("|\n\nMore.\n"), "{filled}");
        assert_eq!(with_tables(&filled, &judged).unwrap(), filled, "a second time changes nothing");
        let wrong = with_tables(&format!("{MARK}{first}/0 -->\n"), &judged).unwrap_err().to_string();
        assert!(wrong.contains(&format!("'{first}/0'")), "{wrong}");
    }
}
