//! An axis: a named list of values that an experiment sweeps besides servers and loads.

use record::experiment::Value;
use serde::Deserialize;

/// A quantity with several values, each of which gives a point.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Axis {
    /// The name that stands in braces for its values: `offered` for `{offered}`.
    pub name: String,
    /// The title of a chart's axis; by default the name.
    pub title: Option<String>,
    /// The values, in the order in which they are drawn; at least one, all different.
    pub values: Vec<Value>,
    /// The values of the reduced form; by default all.
    pub quick: Option<Vec<Value>>,
}

impl Axis {
    /// Returns the title of a chart's axis.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }
}
