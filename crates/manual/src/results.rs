//! The JSON of results: the types that serde writes, with their doc comments.
//!
//! Each page reads the sources of its types. A document is a type with a `schema`, or one that its page names. An
//! unknown attribute of serde is an error, because the page would be wrong.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use record::experiment::{FAMILIES, METRICS};
use syn::{Attribute, Expr, Field, Fields, GenericArgument, Item, Lit, PathArguments, Type, TypeParamBound};

use super::{Pages, row};

/// A page of documents.
struct Page {
    file: &'static str,
    introduction: &'static str,
    /// Files and folders below `crates`.
    sources: &'static [&'static str],
    /// Documents without a `schema`.
    documents: &'static [&'static str],
}

const PAGES: [Page; 9] = [
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
        sources: &["analysis/src/load_runs.rs", "statistics/src/lib.rs"],
        documents: &[],
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
        documents: &["Checked"],
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

`inrush load compare --output json` prints one [Comparison](#comparison).

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
end in their unit.

- `inrush load --output json` prints one [LoadResult](#loadresult).
- `inrush load --output ndjson` prints an object a line. `type` is `point` or `result`: the other keys are those of
  [Point](#point), one for each interval, or at the end those of [LoadResult](#loadresult).
- `inrush capacity --output json` prints one [CapacityResult](#capacityresult).
- `inrush lab run` writes `experiment.json`, a [RunRecord](#runrecord), and a [TrialRecord](#trialrecord) for each attempt
  at a trial.

Other documents have pages of their own: the [plan](results/plan.md) of a load, the comparison of two
[loads](results/load-comparison.md) or [runs of experiments](results/lab-comparison.md), the
[summary](results/summary.md) of experiments, [herd](results/herd.md), [wan](results/wan.md),
[doctor](results/doctor.md), and the [status](results/status.md) of a server.

";

/// Types that serde writes as text.
const TEXTS: [&str; 8] = ["String", "str", "AnySetting", "BitRate", "Bytes", "Nanos", "Share", "Wait"];

/// A type, in the file that defines it.
struct Known {
    file: String,
    item: Item,
}

/// The attributes of serde on a type or a field.
#[derive(Default)]
struct Serde {
    rename: Option<String>,
    rename_all: Option<String>,
    into: Option<String>,
    is_flat: bool,
    is_untagged: bool,
    may_be_absent: bool,
}

/// The types, the constants of their files, and the types that still need a section.
struct Schema {
    types: Vec<Known>,
    texts: HashMap<(String, String), String>,
    queue: Vec<usize>,
}

/// All pages, by their path.
pub fn pages() -> Result<Pages> {
    let mut pages = Pages::new();
    for page in &PAGES {
        pages.insert(page.file.into(), self::page(page).with_context(|| page.file)?);
    }
    pages.entry(RESULTS.into()).and_modify(|page| *page += &metrics());
    Ok(pages)
}

fn page(page: &Page) -> Result<String> {
    let mut schema = Schema { types: Vec::new(), texts: HashMap::new(), queue: Vec::new() };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for source in page.sources {
        schema.read(&crates.join(source))?;
    }
    let is_document = |known: &Known| match &known.item {
        Item::Struct(item) => {
            page.documents.iter().any(|name| item.ident == name)
                || item.fields.iter().any(|field| field_name(field) == "schema")
        }
        _ => false,
    };
    let missing = page.documents.iter().find(|name| {
        !schema.types.iter().any(|known| name_of(&known.item).is_some_and(|ident| ident == **name))
    });
    if let Some(name) = missing {
        bail!("no source has the document {name}");
    }
    schema.queue = (0..schema.types.len()).filter(|at| is_document(&schema.types[*at])).collect();
    let mut text = page.introduction.to_owned();
    let mut shown = 0;
    while shown < schema.queue.len() {
        text += &schema.section(schema.queue[shown])?;
        shown += 1;
    }
    Ok(text)
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

impl Schema {
    /// Reads a file, or all files of a folder.
    fn read(&mut self, path: &Path) -> Result<()> {
        if path.is_dir() {
            let mut paths: Vec<_> =
                fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
            paths.sort();
            return paths.iter().try_for_each(|path| self.read(path));
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for item in parsed.items {
            if let Item::Const(constant) = &item
                && let Some(value) = shown(&constant.expr)
            {
                self.texts.insert((file.clone(), constant.ident.to_string()), value);
            } else if name_of(&item).is_some() {
                self.types.push(Known { file: file.clone(), item });
            }
        }
        Ok(())
    }

    /// Finds a type: in the file that uses it, or else in the only file that has it.
    fn find(&self, name: &str, file: &str) -> Result<usize> {
        let named = |at: &usize| name_of(&self.types[*at].item).as_deref() == Some(name);
        let places: Vec<usize> = (0..self.types.len()).filter(named).collect();
        let here = places.iter().find(|at| self.types[**at].file == file);
        match (here, &places[..]) {
            (Some(at), _) => Ok(*at),
            (None, [at]) => Ok(*at),
            _ => bail!("{file}.rs: {} types are named {name}", places.len()),
        }
    }

    /// The name in the page's headings, with the file's name if two types share it.
    fn title(&self, at: usize) -> String {
        let name = name_of(&self.types[at].item).unwrap_or_default();
        let same = self.types.iter().filter(|known| name_of(&known.item).as_ref() == Some(&name));
        if same.count() > 1 { format!("{} {name}", self.types[at].file.replace('_', " ")) } else { name }
    }

    fn section(&mut self, at: usize) -> Result<String> {
        let file = self.types[at].file.clone();
        let item = self.types[at].item.clone();
        let title = self.title(at);
        match &item {
            Item::Struct(item) => {
                let mut section = format!("## {title}\n\n{}\n\n", self.doc(&item.attrs, &file));
                section += "| key | type | meaning |\n|---|---|---|\n";
                let fields = match &serde(&item.attrs)?.into {
                    Some(into) => self.fields(into, &file)?,
                    None => item.fields.clone(),
                };
                Ok(section + &self.rows(&fields, &file)? + "\n")
            }
            Item::Enum(item) => {
                let case = serde(&item.attrs)?.rename_all;
                let mut section = format!(
                    "## {title}\n\n{}\n\n| value | meaning |\n|---|---|\n",
                    self.doc(&item.attrs, &file)
                );
                for variant in &item.variants {
                    let name = match (serde(&variant.attrs)?.rename, &case) {
                        (Some(name), _) => name,
                        (None, Some(case)) => renamed(&variant.ident.to_string(), case)?,
                        (None, None) => bail!("{title} has no rename_all"),
                    };
                    section += &row([&format!("`\"{name}\"`"), &self.doc(&variant.attrs, &file)]);
                }
                Ok(section + "\n")
            }
            _ => bail!("{title} is neither a struct nor an enum"),
        }
    }

    fn fields(&self, name: &str, file: &str) -> Result<Fields> {
        match &self.types[self.find(name, file)?].item {
            Item::Struct(item) => Ok(item.fields.clone()),
            _ => bail!("{name} has no fields"),
        }
    }

    fn rows(&mut self, fields: &Fields, file: &str) -> Result<String> {
        let mut rows = String::new();
        for field in fields {
            let serde = serde(&field.attrs)?;
            if serde.is_flat {
                let Type::Path(path) = &field.ty else {
                    bail!("{file}.rs: only a type by name is flattened")
                };
                let name = path.path.require_ident()?.to_string();
                rows += &self.rows(&self.fields(&name, file)?, file)?;
                continue;
            }
            let mut json = self.json(&field.ty, file)?;
            if serde.may_be_absent {
                json = format!("{}; may be absent", json.trim_end_matches(" or null"));
            }
            let doc = self.doc(&field.attrs, file);
            let name = serde.rename.unwrap_or_else(|| field_name(field));
            ensure!(!doc.is_empty(), "{file}.rs: the field {name} has no comment");
            rows += &row([&format!("`{name}`"), &json, &doc]);
        }
        Ok(rows)
    }

    /// The JSON type that serde makes of a Rust type. A type that has a section of its own is put into the queue.
    fn json(&mut self, rust: &Type, file: &str) -> Result<String> {
        let path = match rust {
            Type::Path(path) => &path.path,
            Type::Array(array) => return Ok(format!("array of {}", self.json(&array.elem, file)?)),
            Type::Slice(slice) => return Ok(format!("array of {}", self.json(&slice.elem, file)?)),
            Type::Reference(reference) => return self.json(&reference.elem, file),
            Type::TraitObject(object) => match object.bounds.first() {
                Some(TypeParamBound::Trait(bound)) => &bound.path,
                _ => bail!("{file}.rs: a trait object begins with its trait"),
            },
            Type::Tuple(tuple) => {
                let parts = tuple.elems.iter().map(|part| self.json(part, file));
                return Ok(format!("array: {}", parts.collect::<Result<Vec<_>>>()?.join(", ")));
            }
            _ => bail!("{file}.rs: a type that is neither a name nor an array"),
        };
        let last = path.segments.last().context("a path has a segment")?;
        let mut inner = Vec::new();
        if let PathArguments::AngleBracketed(arguments) = &last.arguments {
            for argument in &arguments.args {
                let GenericArgument::Type(argument) = argument else {
                    bail!("{file}.rs: not a type argument")
                };
                inner.push(self.json(argument, file)?);
            }
        }
        Ok(match (last.ident.to_string().as_str(), &inner[..]) {
            (name, []) if TEXTS.contains(&name) => "string".to_owned(),
            ("bool", []) => "true or false".to_owned(),
            ("f64", []) => "number".to_owned(),
            ("i64" | "u8" | "u16" | "u32" | "u64" | "usize" | "Seed", []) => "integer".to_owned(),
            ("Value", []) if path.segments.len() > 1 => "any value".to_owned(),
            ("Option", [some]) => format!("{some} or null"),
            ("Vec", [element]) => format!("array of {element}"),
            ("BTreeMap", [key, value]) => format!("object: {value} by {key}"),
            (name, []) => return self.own(name, file),
            (name, _) => bail!("{file}.rs: {name} is not known"),
        })
    }

    /// The JSON type of one of the types that were read.
    fn own(&mut self, name: &str, file: &str) -> Result<String> {
        let at = self.find(name, file)?;
        let file = self.types[at].file.clone();
        let (attributes, within): (&[Attribute], Vec<Type>) = match &self.types[at].item {
            Item::Struct(item) => (&item.attrs, item.fields.iter().map(|field| field.ty.clone()).collect()),
            Item::Enum(item) => {
                let fields = item.variants.iter().flat_map(|variant| &variant.fields);
                (&item.attrs, fields.map(|field| field.ty.clone()).collect())
            }
            _ => bail!("{name} is neither a struct nor an enum"),
        };
        let is_tuple =
            matches!(&self.types[at].item, Item::Struct(item) if matches!(item.fields, Fields::Unnamed(_)));
        if is_tuple || serde(attributes)?.is_untagged {
            let types: Vec<String> =
                within.iter().map(|rust| self.json(rust, &file)).collect::<Result<_>>()?;
            return Ok(types.join(" or "));
        }
        if !self.queue.contains(&at) {
            self.queue.push(at);
        }
        let title = self.title(at);
        Ok(format!("[{title}](#{})", title.to_lowercase().replace(' ', "-")))
    }

    /// Returns a doc comment on one line. A link to a constant of the file becomes its text.
    fn doc(&self, attributes: &[Attribute], file: &str) -> String {
        let mut lines = Vec::new();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
            if let syn::Meta::NameValue(doc) = &attribute.meta {
                lines.extend(text_of(&doc.value));
            }
        }
        let mut doc = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").replace('|', "\\|");
        for ((of, name), text) in &self.texts {
            if of == file {
                doc = doc.replace(&format!("[`{name}`]"), text);
            }
        }
        doc.replace("[`", "`").replace("`]", "`").replace("`None`", "null")
    }
}

fn name_of(item: &Item) -> Option<String> {
    match item {
        Item::Struct(item) => Some(item.ident.to_string()),
        Item::Enum(item) => Some(item.ident.to_string()),
        _ => None,
    }
}

fn field_name(field: &Field) -> String {
    field.ident.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The text of a constant: a string, or the names of a table with their meanings.
fn shown(value: &Expr) -> Option<String> {
    if let Expr::Array(table) = value {
        let rows = table.elems.iter().map(|row| match row {
            Expr::Tuple(row) => {
                match (row.elems.first().and_then(text_of), row.elems.last().and_then(text_of)) {
                    (Some(name), Some(meaning)) => Some(format!("`{name}` ({meaning})")),
                    _ => None,
                }
            }
            _ => None,
        });
        return rows.collect::<Option<Vec<String>>>().map(|rows| rows.join("; "));
    }
    text_of(value).map(|text| format!("`{text}`"))
}

fn serde(attributes: &[Attribute]) -> Result<Serde> {
    let mut found = Serde::default();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute
            .parse_nested_meta(|meta| {
                let name = meta.path.require_ident()?.to_string();
                let value = || meta.value()?.parse::<syn::LitStr>().map(|text| text.value());
                match name.as_str() {
                    "rename" => found.rename = Some(value()?),
                    "rename_all" => found.rename_all = Some(value()?),
                    "into" => found.into = Some(value()?),
                    "from" => drop(value()?),
                    "skip_serializing_if" => found.may_be_absent = !value()?.is_empty(),
                    "flatten" => found.is_flat = true,
                    "untagged" => found.is_untagged = true,
                    "default" | "transparent" => {}
                    _ => return Err(meta.error("the manual does not know what serde makes of this")),
                }
                Ok(())
            })
            .map_err(|error| anyhow!("#[serde]: {error}"))?;
    }
    Ok(found)
}

/// Returns the name of a variant in JSON.
fn renamed(name: &str, case: &str) -> Result<String> {
    let between = match case {
        "lowercase" => "",
        "snake_case" => "_",
        "kebab-case" => "-",
        _ => bail!("the manual does not know rename_all = {case:?}"),
    };
    let mut out = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            out += between;
        }
        out.push(letter.to_ascii_lowercase());
    }
    Ok(out)
}
