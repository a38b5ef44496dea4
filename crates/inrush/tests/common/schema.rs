//! Results beside the JSON Schemas of the manual.

use std::path::Path;

use serde_json::Value;

/// Fails if a document is not what the schema of this name says.
#[track_caller]
pub fn obeys_schema(document: &Value, schema: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/results");
    let text = std::fs::read_to_string(folder.join(format!("{schema}.schema.json"))).unwrap();
    let validator = jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap();
    let wrong: Vec<String> =
        validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{schema}: {}", wrong.join("\n"));
}
