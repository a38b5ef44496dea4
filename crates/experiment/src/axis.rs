//! An axis: a named list of values that an experiment sweeps besides servers and loads.

use record::experiment::Value;
use serde::Deserialize;

/// A quantity with several values, each of which gives a point.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Axis {
    /// What stands in braces where its values go: `offered` for `{offered}`.
    pub name: String,
    /// What an axis of a chart says; its name where absent.
    pub title: Option<String>,
    /// Its values, in the order they are drawn; at least one, all different.
    pub values: Vec<Value>,
    /// Those that the reduced form keeps; all of them where absent.
    pub quick: Option<Vec<Value>>,
}

impl Axis {
    /// What an axis of a chart says.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }
}
