//! A document as a JSON Schema (draft 2020-12), for programs that read it.
//!
//! New keys may come at any time, so an object may have keys that its schema lacks.

use anyhow::Result;
use serde_json::{Value, json};

use super::types::{Definition, Json, Shape, Types};

/// The first key of a schema, as a mark of a generated file.
pub const COMMENT: &str = "Written by `cargo xtask docs`; edit the program instead.";

/// The schema of a document and of the types that it needs.
///
/// # Errors
/// A source has what the manual does not know.
pub fn json_schema(types: &Types, document: usize) -> Result<String> {
    let definitions = types.definitions(vec![document])?;
    let ((_, whole), parts) = definitions.split_first().expect("the document itself is the first");
    let defined = parts.iter().map(|(_, part)| (part.title.clone(), definition(types, part)));
    let mut schema = definition(types, whole);
    schema["$comment"] = COMMENT.into();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = whole.title.clone().into();
    schema["$defs"] = defined.collect();
    Ok(format!("{schema:#}"))
}

fn definition(types: &Types, Definition { doc, shape, .. }: &Definition) -> Value {
    match shape {
        Shape::Object(keys) => {
            let required = keys.iter().filter(|key| !key.may_be_absent).map(|key| &key.name[..]);
            let properties = keys.iter().map(|key| {
                let mut property = kind(types, &key.json);
                property["description"] = key.doc.clone().into();
                (key.name.clone(), property)
            });
            json!({
                "description": doc,
                "type": "object",
                "required": required.collect::<Value>(),
                "properties": properties.collect::<Value>(),
            })
        }
        Shape::Names(names) => {
            let one = |(name, doc): &(String, String)| json!({ "const": name, "description": doc });
            json!({ "description": doc, "oneOf": names.iter().map(one).collect::<Value>() })
        }
    }
}

fn kind(types: &Types, json: &Json) -> Value {
    let any = |kinds: &[Json]| kinds.iter().map(|one| kind(types, one)).collect::<Value>();
    match json {
        Json::Text => json!({ "type": "string" }),
        Json::Boolean => json!({ "type": "boolean" }),
        Json::Number => json!({ "type": "number" }),
        Json::Integer => json!({ "type": "integer" }),
        Json::Anything => json!({}),
        Json::Nullable(some) => json!({ "anyOf": [kind(types, some), { "type": "null" }] }),
        Json::Array(element) => json!({ "type": "array", "items": kind(types, element) }),
        Json::Tuple(parts) => json!({ "type": "array", "prefixItems": any(parts), "items": false }),
        Json::Map(_, value) => json!({ "type": "object", "additionalProperties": kind(types, value) }),
        Json::Either(kinds) => json!({ "anyOf": any(kinds) }),
        Json::Named(at) => json!({ "$ref": format!("#/$defs/{}", types.title(*at)) }),
    }
}
