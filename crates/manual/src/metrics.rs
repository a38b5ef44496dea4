//! The metrics that the program prints for Prometheus.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use super::{literal, row};

/// One metric with its samples.
struct Family {
    name: String,
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// Writes the page of both programs' metrics.
pub fn page() -> Result<String> {
    let mut page = "# Metrics\n\nPrometheus' text format 0.0.4. A name that ends in `_total` only grows. Braces hold the names of labels.\n\n\
                    ## The server\n\n`inrush serve --admin ADDR:PORT` has `/metrics`; [Serve a site](../tasks/serve.md) shows it.\n\n"
        .to_owned();
    let mut known = BTreeSet::new();
    for (needs, text) in inrush::reference::server_metrics() {
        let new = families(&text)?.into_iter().filter(|family| known.insert(family.name.clone())).collect();
        if !needs.is_empty() {
            page += &format!("With `{needs}`:\n\n");
        }
        page += &table(new);
    }
    page +=
        "## The load generator\n\n`inrush load --prometheus ADDR:PORT` has `/metrics` during the run.\n\n";
    page += &table(families(&inrush::reference::load_metrics())?);
    Ok(page)
}

fn table(families: Vec<Family>) -> String {
    let mut table = "| metric | type | meaning |\n|---|---|---|\n".to_owned();
    for Family { name, kind, help, labels } in families {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        table += &row([&format!("`{name}{labels}`"), &kind, &literal(&help)]);
    }
    table + "\n"
}

/// The metrics of a page, each of which begins with its help and its type.
fn families(text: &str) -> Result<Vec<Family>> {
    let mut found: Vec<Family> = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            let (name, help) = head.split_once(' ').context("a metric has a help text")?;
            let (name, help) = (name.to_owned(), help.to_owned());
            found.push(Family { name, kind: String::new(), help, labels: BTreeSet::new() });
            continue;
        }
        let family = found.last_mut().context("a page begins with a help text")?;
        if let Some(head) = line.strip_prefix("# TYPE ") {
            family.kind = head.rsplit(' ').next().unwrap_or_default().to_owned();
        } else if let Some((labels, _)) = line.split_once('{').and_then(|(_, rest)| rest.split_once('}')) {
            family
                .labels
                .extend(labels.split(',').filter_map(|label| label.split('=').next()).map(str::to_owned));
        }
    }
    Ok(found)
}
