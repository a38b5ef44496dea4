//! The pages of the manual that are generated from the program, in `docs/reference/`.
//!
//! The flags' definitions, the metrics that the program prints and the types of its results make the pages. A page
//! holds no time, machine or measurement. `cargo xtask docs` writes the pages, and a test of `xtask` compares them.
//!
//! The modules: `commands` has a page for each command, `metrics` both metrics pages, and `results` the JSON. `types` reads
//! the types of the results, and `json_schema` makes a schema of each document.
#![forbid(unsafe_code)]

mod commands;
mod json_schema;
mod metrics;
mod results;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The first line of a generated page.
const MARK: &str = "<!-- Written by `cargo xtask docs`; edit the program instead. -->\n\n";

/// Pages by their path below `docs/reference/`.
type Pages = BTreeMap<PathBuf, String>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

/// Writes the pages anew, removes generated pages that are no longer needed, and returns the number of pages.
///
/// # Errors
/// A page cannot be made or written.
pub fn write() -> Result<usize> {
    let pages = pages()?;
    for path in written(&folder())?.keys().filter(|path| !pages.contains_key(*path)) {
        fs::remove_file(folder().join(path))?;
    }
    for (path, text) in &pages {
        let path = folder().join(path);
        fs::create_dir_all(path.parent().context("a page lies in a folder")?)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(pages.len())
}

/// Compares the existing pages with those that the program would write.
///
/// # Errors
/// A page differs, is missing, or is no longer needed.
pub fn check() -> Result<()> {
    let (pages, there) = (pages()?, written(&folder())?);
    let paths: BTreeSet<&PathBuf> = pages.keys().chain(there.keys()).collect();
    let stale = paths.into_iter().filter(|path| pages.get(*path) != there.get(*path));
    let stale: Vec<String> = stale.map(|path| path.display().to_string()).collect();
    let names = stale.join(", ");
    ensure!(stale.is_empty(), "docs/reference is out of date: {names}; `cargo xtask docs` writes it anew");
    Ok(())
}

fn pages() -> Result<Pages> {
    let mut pages = commands::pages();
    pages.insert("metrics.md".into(), metrics::page()?);
    pages.extend(results::pages()?);
    let marked = |(path, text): (PathBuf, String)| {
        // A schema has its mark as a key.
        let mark = if path.extension().is_some_and(|kind| kind == "md") { MARK } else { "" };
        (path, format!("{mark}{}\n", text.trim_end()))
    };
    Ok(pages.into_iter().map(marked).collect())
}

/// Returns the generated pages below a folder.
fn written(folder: &Path) -> Result<Pages> {
    let mut found = Pages::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let (path, name) = entry.map(|entry| (entry.path(), PathBuf::from(entry.file_name())))?;
        if path.is_dir() {
            found.extend(written(&path)?.into_iter().map(|(below, text)| (name.join(below), text)));
        } else if let Ok(text) = fs::read_to_string(&path)
            && (text.starts_with(MARK) || text.contains(json_schema::COMMENT))
        {
            found.insert(name, text);
        }
    }
    Ok(found)
}

/// Escapes a text so that Markdown shows it word for word.
fn literal(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if "\\`*_<>|".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Returns a row of a table.
fn row<const COLUMNS: usize>(cells: [&str; COLUMNS]) -> String {
    format!("| {} |\n", cells.join(" | "))
}
