//! The types that serde writes as JSON, read from the program's sources with their doc comments.
//!
//! Owns what serde makes of a type. An unknown attribute of serde is an error, because pages and schemas would be wrong.
//! Leaves out their form: `results` writes Markdown, and `json_schema` a JSON Schema.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use syn::{Attribute, Expr, Field, Fields, GenericArgument, Item, Lit, PathArguments, Type, TypeParamBound};

/// Types that serde writes as text.
const TEXTS: [&str; 8] = ["String", "str", "AnySetting", "BitRate", "Bytes", "Nanos", "Share", "Wait"];

/// The kind of a value in JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Text,
    Boolean,
    Number,
    Integer,
    /// Any value.
    Anything,
    /// A value or null.
    Nullable(Box<Json>),
    Array(Box<Json>),
    /// An array with a kind for each place.
    Tuple(Vec<Json>),
    /// An object with keys of one kind and values of another.
    Map(Box<Json>, Box<Json>),
    /// One of several kinds.
    Either(Vec<Json>),
    /// A type with a definition of its own, by its place in [`Types`].
    Named(usize),
}

impl Json {
    /// Calls with the place of each type that has a definition, in the order of the text.
    fn each_named(&self, call: &mut impl FnMut(usize)) {
        match self {
            Json::Named(at) => call(*at),
            Json::Nullable(one) | Json::Array(one) => one.each_named(call),
            Json::Map(key, value) => [key, value].into_iter().for_each(|one| one.each_named(call)),
            Json::Tuple(all) | Json::Either(all) => all.iter().for_each(|one| one.each_named(call)),
            Json::Text | Json::Boolean | Json::Number | Json::Integer | Json::Anything => {}
        }
    }
}

/// A key of an object.
pub struct Key {
    pub name: String,
    pub json: Json,
    pub may_be_absent: bool,
    pub doc: String,
}

/// The definition of a type.
pub struct Definition {
    /// Its name, with the file's name if two types share it.
    pub title: String,
    pub doc: String,
    pub shape: Shape,
}

/// The values of a type.
pub enum Shape {
    /// An object.
    Object(Vec<Key>),
    /// One of several texts, each with its meaning.
    Names(Vec<(String, String)>),
}

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

/// The types of some files, and the constants that their comments name.
#[derive(Default)]
pub struct Types {
    types: Vec<Known>,
    texts: HashMap<(String, String), String>,
}

impl Types {
    /// Reads a file, or all files of a folder.
    ///
    /// # Errors
    /// A file cannot be read or parsed.
    pub fn read(&mut self, path: &Path) -> Result<()> {
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

    /// The places of the types with one of the names, or without names of those with a field `schema`.
    ///
    /// # Errors
    /// No file has a type of one of the names.
    pub fn documents(&self, names: &[&str]) -> Result<Vec<usize>> {
        let is_document = |known: &Known| match &known.item {
            Item::Struct(item) if names.is_empty() => {
                item.fields.iter().any(|field| field_name(field) == "schema")
            }
            Item::Struct(item) => names.iter().any(|name| item.ident == name),
            _ => false,
        };
        let known: Vec<String> = self.types.iter().filter_map(|known| name_of(&known.item)).collect();
        if let Some(name) = names.iter().find(|name| !known.iter().any(|known| known == **name)) {
            bail!("no source has the document {name}");
        }
        Ok((0..self.types.len()).filter(|at| is_document(&self.types[*at])).collect())
    }

    /// The definitions of some types and of all that these need, each once, by their places.
    ///
    /// # Errors
    /// A type is not known, or a key has no comment.
    pub fn definitions(&self, documents: Vec<usize>) -> Result<Vec<(usize, Definition)>> {
        let (mut queue, mut found) = (documents, Vec::new());
        while let Some(at) = queue.get(found.len()).copied() {
            let definition = self.definition(at)?;
            if let Shape::Object(keys) = &definition.shape {
                let mut add = |needed| {
                    if !queue.contains(&needed) {
                        queue.push(needed);
                    }
                };
                keys.iter().for_each(|key| key.json.each_named(&mut add));
            }
            found.push((at, definition));
        }
        Ok(found)
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

    /// The name of a type, with the file's name if two types share it.
    pub fn title(&self, at: usize) -> String {
        let name = name_of(&self.types[at].item).unwrap_or_default();
        let same = self.types.iter().filter(|known| name_of(&known.item).as_ref() == Some(&name));
        if same.count() > 1 { format!("{} {name}", self.types[at].file.replace('_', " ")) } else { name }
    }

    fn definition(&self, at: usize) -> Result<Definition> {
        let Known { file, item } = &self.types[at];
        let title = self.title(at);
        let (attributes, shape) = match item {
            Item::Struct(item) => {
                let fields = match &serde(&item.attrs)?.into {
                    Some(into) => self.fields(into, file)?,
                    None => &item.fields,
                };
                (&item.attrs, Shape::Object(self.keys(fields, file)?))
            }
            Item::Enum(item) => {
                let case = serde(&item.attrs)?.rename_all;
                let name_of = |variant: &syn::Variant| {
                    let name = match (serde(&variant.attrs)?.rename, &case) {
                        (Some(name), _) => name,
                        (None, Some(case)) => renamed(&variant.ident.to_string(), case)?,
                        (None, None) => bail!("{title} has no rename_all"),
                    };
                    Ok((name, self.doc(&variant.attrs, file)))
                };
                (&item.attrs, Shape::Names(item.variants.iter().map(name_of).collect::<Result<_>>()?))
            }
            _ => bail!("{title} is neither a struct nor an enum"),
        };
        Ok(Definition { doc: self.doc(attributes, file), title, shape })
    }

    fn fields(&self, name: &str, file: &str) -> Result<&Fields> {
        match &self.types[self.find(name, file)?].item {
            Item::Struct(item) => Ok(&item.fields),
            _ => bail!("{name} has no fields"),
        }
    }

    fn keys(&self, fields: &Fields, file: &str) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        for field in fields {
            let serde = serde(&field.attrs)?;
            if serde.is_flat {
                let whole = match &field.ty {
                    Type::Reference(reference) => &*reference.elem,
                    whole => whole,
                };
                let Type::Path(path) = whole else { bail!("{file}.rs: only a type by name is flattened") };
                let name = path.path.require_ident()?.to_string();
                keys.extend(self.keys(self.fields(&name, file)?, file)?);
                continue;
            }
            let doc = self.doc(&field.attrs, file);
            let name = serde.rename.unwrap_or_else(|| field_name(field));
            ensure!(!doc.is_empty(), "{file}.rs: the field {name} has no comment");
            keys.push(Key {
                name,
                json: self.json(&field.ty, file)?,
                may_be_absent: serde.may_be_absent,
                doc,
            });
        }
        Ok(keys)
    }

    /// What serde makes of a Rust type.
    fn json(&self, rust: &Type, file: &str) -> Result<Json> {
        let array = |element| Ok(Json::Array(Box::new(self.json(element, file)?)));
        let path = match rust {
            Type::Path(path) => &path.path,
            Type::Array(whole) => return array(&whole.elem),
            Type::Slice(whole) => return array(&whole.elem),
            Type::Reference(reference) => return self.json(&reference.elem, file),
            Type::TraitObject(object) => match object.bounds.first() {
                Some(TypeParamBound::Trait(bound)) => &bound.path,
                _ => bail!("{file}.rs: a trait object begins with its trait"),
            },
            Type::Tuple(tuple) => {
                return Ok(Json::Tuple(
                    tuple.elems.iter().map(|part| self.json(part, file)).collect::<Result<_>>()?,
                ));
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
            (name, []) if TEXTS.contains(&name) => Json::Text,
            ("bool", []) => Json::Boolean,
            ("f64", []) => Json::Number,
            ("MaybeInfinite", []) => Json::Nullable(Box::new(Json::Number)),
            ("i64" | "u8" | "u16" | "u32" | "u64" | "usize" | "Seed", []) => Json::Integer,
            ("Value", []) if path.segments.len() > 1 => Json::Anything,
            ("Option", [some]) => Json::Nullable(Box::new(some.clone())),
            ("Vec", [element]) => Json::Array(Box::new(element.clone())),
            ("BTreeMap", [key, value]) => Json::Map(Box::new(key.clone()), Box::new(value.clone())),
            (name, []) => return self.own(name, file),
            (name, _) => bail!("{file}.rs: {name} is not known"),
        })
    }

    /// What serde makes of one of the types that were read.
    fn own(&self, name: &str, file: &str) -> Result<Json> {
        let at = self.find(name, file)?;
        let Known { file, item } = &self.types[at];
        let (attributes, within): (&[Attribute], Vec<&Type>) = match item {
            Item::Struct(item) => (&item.attrs, item.fields.iter().map(|field| &field.ty).collect()),
            Item::Enum(item) => {
                let fields = item.variants.iter().flat_map(|variant| &variant.fields);
                (&item.attrs, fields.map(|field| &field.ty).collect())
            }
            _ => bail!("{name} is neither a struct nor an enum"),
        };
        let is_tuple = matches!(item, Item::Struct(item) if matches!(item.fields, Fields::Unnamed(_)));
        if !is_tuple && !serde(attributes)?.is_untagged {
            return Ok(Json::Named(at));
        }
        let kinds = within.into_iter().map(|rust| self.json(rust, file)).collect::<Result<Vec<_>>>()?;
        Ok(if let [one] = &kinds[..] { one.clone() } else { Json::Either(kinds) })
    }

    /// Returns a doc comment on one line. A link to a constant of the file becomes its text.
    fn doc(&self, attributes: &[Attribute], file: &str) -> String {
        let mut lines = Vec::new();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
            if let syn::Meta::NameValue(doc) = &attribute.meta {
                lines.extend(text_of(&doc.value));
            }
        }
        let mut doc = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
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
                    "from" | "deserialize_with" => drop(value()?),
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
