//! An experiment as Markdown: the content of the page, for a terminal, a repository or a review.

use super::claims::{ClaimRow, HOW_JUDGED, NOT_TESTED};
use super::figures::FigureView;
use super::section::Section;
use crate::page::table::Table;

/// A document of one experiment.
pub fn document(section: &Section) -> String {
    let mut out = format!("# {}\n\n", escaped(&section.title));
    push_section(&mut out, section, "##");
    if !section.claims.is_empty() {
        out.push_str(&format!("{HOW_JUDGED}\n\n"));
    }
    push_table(&mut out, "##", "Where this comes from", &section.manifest);
    if !section.again.is_empty() {
        out.push_str(&format!("Run again with `{}`\n", section.again.replace('`', "'")));
    }
    out
}

/// The main finding of an experiment with its picture, if it has one.
pub fn push_finding(out: &mut String, section: &Section) {
    if let Some(figure) = section.leading.as_ref().filter(|figure| !figure.forms.is_empty()) {
        out.push_str(&format!("**{}**\n\n{}", escaped(&section.headline), picture(figure)));
    }
}

fn picture(figure: &FigureView) -> String {
    format!("![{}]({}.svg)\n\n", escaped(&figure.title).replace(['[', ']'], ""), figure.picture)
}

/// A section under a heading of its own, with headings of a given depth.
pub fn push_section(out: &mut String, section: &Section, depth: &str) {
    if let Some(paper) = &section.paper {
        out.push_str(&format!("*{}*\n\n", escaped(paper)));
    }
    if !section.headline.is_empty() {
        out.push_str(&format!("**{}**\n\n", escaped(&section.headline)));
    }
    for paragraph in &section.about {
        out.push_str(&format!("{}\n\n", escaped(paragraph)));
    }
    for [name, about] in &section.about_servers {
        out.push_str(&format!("- **{}**: {}\n", escaped(name), escaped(about)));
    }
    if !section.about_servers.is_empty() {
        out.push('\n');
    }
    out.push_str(&format!("{}\n\n", escaped(&section.how)));
    if !section.differs.is_empty() {
        out.push_str(&format!("{depth} What differs from the paper\n\n{}\n\n", escaped(&section.differs)));
    }
    if !section.claims.is_empty() {
        out.push_str(&format!("{depth} Claims\n\n{}\n\n", section.score_sentence));
        out.push_str(&claims_table(&section.claims, false));
    }
    if !section.warnings.is_empty() {
        out.push_str(&format!("{depth} Before you believe the figures\n\n"));
        for warning in &section.warnings {
            out.push_str(&format!("- {}\n", escaped(warning)));
        }
        out.push('\n');
    }
    for figure in section.leading.iter().chain(&section.figures) {
        push_figure(out, figure, depth);
    }
    push_table(out, depth, "Capacities", &section.capacities);
    push_table(out, depth, "Servers", &section.servers);
}

/// The table of claims. With several experiments, each row begins with the experiment's name. It has a column for
/// the papers' findings if a claim has one.
pub fn claims_table(claims: &[ClaimRow], named: bool) -> String {
    /// A column's heading, whether the table has it, and its cell.
    type Column = (&'static str, bool, fn(&ClaimRow) -> String);
    let with_paper = claims.iter().any(|row| !row.paper.is_empty());
    let differs = claims.iter().any(|row| !row.differs.is_empty());
    let columns: [Column; 10] = [
        ("experiment", named, |row| cell(&row.experiment)),
        ("claim", true, |row| cell(&row.claim)),
        ("paper", with_paper, |row| cell(&row.paper)),
        ("expected", true, |row| cell(&row.expected)),
        ("measured", true, |row| cell(&row.measured)),
        ("interval", true, |row| cell(&row.interval)),
        ("confidence", true, |row| cell(&row.confidence)),
        ("judged", true, |row| format!("{} {}", row.sign, row.judged)),
        ("because", true, |row| cell(&row.because)),
        ("what differs", differs, |row| cell(&row.differs)),
    ];
    let shown: Vec<Column> = columns.into_iter().filter(|(_, is_shown, _)| *is_shown).collect();
    let heads: Vec<&str> = shown.iter().map(|(head, _, _)| *head).collect();
    let cells = |row| shown.iter().map(|(_, _, cell)| cell(row)).collect::<Vec<String>>();
    format!("{}\n", table(&heads, claims.iter().map(cells)))
}

/// The table of claims for a page with text around it: the paper's finding, ours, the verdict, and what to know about it.
pub fn brief_claims_table<'a>(claims: impl IntoIterator<Item = &'a ClaimRow>) -> String {
    let row = |row: &ClaimRow| {
        let here = match row.interval.as_str() {
            "" => row.measured.clone(),
            interval => format!("{} ({interval})", row.measured),
        };
        let is_untested = row.judged == NOT_TESTED;
        let differs = [if is_untested { &row.reason } else { "" }, &row.differs];
        let differs: Vec<&str> = differs.into_iter().filter(|part| !part.is_empty()).collect();
        let paper = if row.paper.is_empty() { "–" } else { &row.paper };
        let verdict = format!("{} {}", row.sign, row.judged);
        vec![cell(&row.claim), cell(paper), cell(&here), verdict, cell(&differs.join("; "))]
    };
    table(&["claim", "paper", "here", "verdict", "what differs"], claims.into_iter().map(row))
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut out = format!("| {} |\n{}|\n", heads.join(" | "), "|---".repeat(heads.len()));
    rows.for_each(|cells| out.push_str(&format!("| {} |\n", cells.join(" | "))));
    out
}

fn push_figure(out: &mut String, figure: &FigureView, depth: &str) {
    let number = if figure.number.is_empty() { String::new() } else { format!("{}: ", figure.number) };
    out.push_str(&format!("{depth} {number}{}\n\n", escaped(&figure.title)));
    if !figure.caption.is_empty() {
        out.push_str(&format!("{}\n\n", escaped(&figure.caption)));
    }
    if figure.forms.is_empty() {
        out.push_str("No trial has a point for it.\n\n");
        return;
    }
    out.push_str(&picture(figure));
    out.push_str(&format!(
        "| line | {} | {} | interval | trials |\n",
        cell(&figure.head[0]),
        cell(&figure.head[1])
    ));
    out.push_str("|---|---:|---:|---|---|\n");
    for point in &figure.points {
        let trial = |trial: &super::figures::TrialLink| match trial.flaws.as_str() {
            "" => trial.y.clone(),
            flaws => format!("({}: {flaws})", trial.y),
        };
        let trials: Vec<String> = point.trials.iter().map(trial).collect();
        let cells =
            [&point.line, &point.x, &point.y, &point.interval, &trials.join(", ")].map(|text| cell(text));
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out.push('\n');
}

fn push_table(out: &mut String, depth: &str, heading: &str, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    out.push_str(&format!("{depth} {heading}\n\n| {} |\n", table.head.join(" | ")));
    out.push_str(&format!("{}|\n", "|---".repeat(table.head.len())));
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(|text| cell(text)).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out.push('\n');
}

/// Text on one line in which nothing is markup.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '`' | '*' | '_' | '<' | '[' | ']' | '#' => out.extend(['\\', letter]),
            '\n' | '\r' => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

/// A cell of a table.
fn cell(text: &str) -> String {
    escaped(text).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_markup() {
        assert_eq!(cell("a|b *c* <d>\n`e`"), r"a\|b \*c\* \<d> \`e\`");
    }
}
