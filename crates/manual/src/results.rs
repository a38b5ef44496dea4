//! The JSON of results: pages of documents, and a JSON Schema of each.
//!
//! Each page reads the sources of its types. A document is a type that its page names, or one with a `schema`.

use std::path::Path;

use anyhow::{Context, Result};
use record::experiment::{FAMILIES, METRICS};

use super::json_schema::json_schema;
use super::types::{Definition, Json, Shape, Types};
use super::{Pages, row};

/// A page of documents.
struct Page {
    file: &'static str,
    introduction: &'static str,
    /// Files and folders below `crates`.
    sources: &'static [&'static str],
    /// The documents by name; if empty, the types with a `schema`.
    documents: &'static [&'static str],
}

const PAGES: [Page; 10] = [
    Page { file: RESULTS, introduction: INTRODUCTION, sources: &["record/src"], documents: &[] },
    Page {
        file: "results/plan.md",
        introduction: PLAN,
        sources: &["load/src/plan/outline.rs"],
        documents: &[],
    },
    Page {
        file: "results/load-comparison.md",
        introduction: LOAD_COMPARISON,
        sources: &["analysis/src/load_runs.rs", "analysis/src/load_gates.rs", "statistics/src/lib.rs"],
        documents: &["PairComparison"],
    },
    Page {
        file: "results/load-runs.md",
        introduction: LOAD_RUNS,
        sources: &["analysis/src/load_runs.rs", "analysis/src/load_gates.rs", "statistics/src/lib.rs"],
        documents: &["RunsComparison"],
    },
    Page {
        file: "results/lab-comparison.md",
        introduction: LAB_COMPARISON,
        sources: &["analysis/src/experiment_runs.rs"],
        documents: &["Comparison"],
    },
    Page {
        file: "results/summary.md",
        introduction: SUMMARY,
        sources: &["report/src/experiment.rs", "analysis/src/claims.rs"],
        documents: &[],
    },
    Page {
        file: "results/herd.md",
        introduction: HERD,
        sources: &["herd/src", "statistics/src/lib.rs"],
        documents: &["Point"],
    },
    Page {
        file: "results/wan.md",
        introduction: WAN,
        sources: &["wan/src/check.rs", "wan/src/report.rs", "wan/src/conditions.rs"],
        documents: &["Report", "Checked"],
    },
    Page {
        file: "results/doctor.md",
        introduction: DOCTOR,
        sources: &["doctor/src/lib.rs", "dispatch/src/capabilities.rs", "dispatch/src/table.rs"],
        documents: &["Finding", "Row"],
    },
    Page {
        file: "results/status.md",
        introduction: STATUS,
        sources: &[
            "server/src/operation/admin.rs",
            "server/src/ground/counters.rs",
            "server/src/connections/overload_control.rs",
            "bpf/src/admission.rs",
        ],
        documents: &["StatusPage"],
    },
];

/// The page of the documents that the crate `record` defines.
const RESULTS: &str = "results.md";

const PLAN: &str = "# Plan of a load

`inrush load --dry-run --output json` prints one [Outline](#outline).

";

const LOAD_COMPARISON: &str = "# Comparison of two loads

`inrush load compare A.json B.json --output json` prints one [PairComparison](#paircomparison). Several results of each
have [another document](load-runs.md).

";

const LOAD_RUNS: &str = "# Comparison of several runs of two loads

`inrush load compare A.json... -- B.json... --output json` prints one [RunsComparison](#runscomparison). One result of each
has [another document](load-comparison.md).

";

const LAB_COMPARISON: &str = "# Comparison of two runs of experiments

`inrush lab compare --output json` prints an array of [comparisons](#comparison), one for each experiment.

";

const SUMMARY: &str = "# Summary of experiments

`inrush lab run`, `paper` and `report` write `summary.json`: one [Summary](#summary).

";

const HERD: &str = "# Results of inrush herd

`inrush herd --output json` prints an array of [points](#point), sorted by way to wait and number of waiters.

";

const WAN: &str = "# Results of inrush wan

- `inrush wan run --output json` prints one [Report](#report).
- `inrush wan check --output json` prints one [Checked](#checked).

";

const DOCTOR: &str = "# Results of inrush doctor

- `inrush doctor --output json` prints an array of [findings](#finding).
- `inrush doctor --mechanisms --output json` prints an array of [rows](#row), one for each event mechanism.

";

const STATUS: &str = "# Status of a server

`GET /status` of `inrush serve --admin ADDR:PORT` returns one [StatusPage](#statuspage).

";

const INTRODUCTION: &str = "# Results

Each kind of document has a `schema`. Its number changes when a change breaks a reader; new keys may come at any time. Keys
end in their unit. A section about a document links its JSON Schema (draft 2020-12), which tests compare with results.

- `inrush load --output json` prints one [LoadResult](#loadresult).
- `inrush load --output ndjson` prints an object a line. `type` is `point` or `result`: the other keys are those of
  [Point](#point), one for each interval, or at the end those of [LoadResult](#loadresult).
- `inrush capacity --output json` prints one [CapacityResult](#capacityresult).
- `inrush lab run` writes `experiment.json`, a [RunRecord](#runrecord), and a [TrialRecord](#trialrecord) for each attempt
  at a trial.

Other documents have pages of their own: the [plan](results/plan.md) of a load, the comparison of two
[loads](results/load-comparison.md), of [several runs](results/load-runs.md) of each, or of
[runs of experiments](results/lab-comparison.md), the [summary](results/summary.md) of experiments,
[herd](results/herd.md), [wan](results/wan.md), [doctor](results/doctor.md), and the [status](results/status.md) of a
server.

";

/// All pages and schemas, by their path.
///
/// # Errors
/// A source has what the manual does not know.
pub fn pages() -> Result<Pages> {
    let mut pages = Pages::new();
    for page in &PAGES {
        pages.extend(self::page(page).with_context(|| page.file)?);
    }
    pages.entry(RESULTS.into()).and_modify(|page| *page += &metrics());
    Ok(pages)
}

/// A page, and the schemas of its documents.
fn page(page: &Page) -> Result<Pages> {
    let mut types = Types::default();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for source in page.sources {
        types.read(&crates.join(source))?;
    }
    let documents = types.documents(page.documents)?;
    let folder = if page.file == RESULTS { "results/" } else { "" };
    let mut pages = Pages::new();
    let mut text = page.introduction.to_owned();
    for (at, mut definition) in types.definitions(documents.clone())? {
        if documents.contains(&at) {
            let name = schema_name(page.file, &definition.title, documents.len());
            definition.doc += &format!(" Its JSON Schema: [{name}]({folder}{name}).");
            pages.insert(Path::new("results").join(name), json_schema(&types, at)?);
        }
        text += &section(&types, &definition);
    }
    pages.insert(page.file.into(), text);
    Ok(pages)
}

/// The file of a document's schema: the page's name, and the document's if the page has several.
fn schema_name(page: &str, title: &str, documents: usize) -> String {
    let mut words = String::new();
    for letter in title.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.push(letter.to_ascii_lowercase());
    }
    match page.trim_start_matches("results/").trim_end_matches(".md") {
        _ if page == RESULTS => format!("{words}.schema.json"),
        page if documents == 1 => format!("{page}.schema.json"),
        page => format!("{page}-{words}.schema.json"),
    }
}

/// The names of the numbers in a trial's `metrics`.
fn metrics() -> String {
    let mut table = format!(
        "## Metrics of a trial\n\nNames that begin with `{}` are followed by names of the client or the server.\n\n\
         | name | meaning | unit |\n|---|---|---|\n",
        FAMILIES.join("`, `")
    );
    for metric in METRICS {
        table += &row([&format!("`{}`", metric.name), metric.title, metric.unit.word()]);
    }
    table
}

fn section(types: &Types, Definition { title, doc, shape }: &Definition) -> String {
    let mut section = format!("## {title}\n\n{}\n\n", cell(doc));
    match shape {
        Shape::Object(keys) => {
            section += "| key | type | meaning |\n|---|---|---|\n";
            for key in keys {
                let json = match &key.json {
                    Json::Nullable(some) if key.may_be_absent => kind(types, some),
                    json => kind(types, json),
                };
                let json = if key.may_be_absent { json + "; may be absent" } else { json };
                section += &row([&format!("`{}`", key.name), &json, &cell(&key.doc)]);
            }
        }
        Shape::Names(names) => {
            section += "| value | meaning |\n|---|---|\n";
            for (name, doc) in names {
                section += &row([&format!("`\"{name}\"`"), &cell(doc)]);
            }
        }
    }
    section + "\n"
}

/// A text as the cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The words for a kind of value. A type with a section of its own is a link.
fn kind(types: &Types, json: &Json) -> String {
    let all =
        |kinds: &[Json], between| kinds.iter().map(|one| kind(types, one)).collect::<Vec<_>>().join(between);
    match json {
        Json::Text => "string".to_owned(),
        Json::Boolean => "true or false".to_owned(),
        Json::Number => "number".to_owned(),
        Json::Integer => "integer".to_owned(),
        Json::Anything => "any value".to_owned(),
        Json::Nullable(some) => format!("{} or null", kind(types, some)),
        Json::Array(element) => format!("array of {}", part(types, element)),
        Json::Tuple(parts) => {
            let parts: Vec<String> = parts.iter().map(|one| part(types, one)).collect();
            format!("array: {}", parts.join(", "))
        }
        Json::Map(key, value) => format!("object: {} by {}", kind(types, value), kind(types, key)),
        Json::Either(kinds) => all(kinds, " or "),
        Json::Named(at) => {
            let title = types.title(*at);
            format!("[{title}](#{})", title.to_lowercase().replace(' ', "-"))
        }
    }
}

/// The words for a part of an array. What may be null stands in parentheses, because the array itself may be null too.
fn part(types: &Types, json: &Json) -> String {
    let words = kind(types, json);
    if matches!(json, Json::Nullable(_)) { format!("({words})") } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The schema of a document, and the words for its keys.
    fn of(sources: &[&str], document: &str) -> (Value, String) {
        let mut types = Types::default();
        for source in sources {
            types.read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(source)).unwrap();
        }
        let places = types.documents(&[document]).unwrap();
        let schema = json_schema(&types, places[0]).unwrap();
        let definitions = types.definitions(places).unwrap();
        (serde_json::from_str(&schema).unwrap(), section(&types, &definitions[0].1))
    }

    #[test]
    fn numbers_that_may_be_infinite_may_be_null() {
        let or_null = json!([{ "type": "number" }, { "type": "null" }]);
        let (row, text) = of(&["analysis/src/experiment_runs.rs"], "Row");
        assert_eq!(row["properties"]["ratio"]["anyOf"], or_null);
        assert_eq!(row["properties"]["interval"]["items"]["anyOf"], or_null);
        assert_eq!(row["properties"]["first"]["type"], "number");
        for words in [
            "| `interval` | array of (number or null) |",
            "| `most_at` | array: string, (number or null) or null |",
        ] {
            assert!(text.contains(words), "{text}");
        }
        let (interval, _) = of(&["statistics/src/lib.rs"], "Interval");
        assert_eq!(interval["properties"]["high"]["anyOf"], or_null);
    }

    #[test]
    fn flattened_reference_adds_its_keys() {
        let sources = &["analysis/src/load_runs.rs", "analysis/src/load_gates.rs", "statistics/src/lib.rs"];
        let (pair, _) = of(sources, "PairComparison");
        for key in ["schema", "rows", "warnings", "thresholds"] {
            assert!(pair["required"].as_array().unwrap().contains(&key.into()), "{key}: {pair}");
        }
    }
}
