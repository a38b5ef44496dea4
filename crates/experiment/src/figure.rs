//! The figures of an experiment: metrics, axes and series, and published points to compare with.

use serde::Deserialize;

use super::template::Selection;

/// The logarithmic axes of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogAxes {
    /// Neither.
    #[default]
    None,
    /// The horizontal one.
    X,
    /// The vertical one.
    Y,
    /// Both.
    Xy,
}

/// Points that the paper published, drawn as a dashed series.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// The legend's text: `inf (2004)`.
    pub name: String,
    /// Points x, y in the figure's coordinates, normalised as the figure is.
    pub points: Vec<[f64; 2]>,
}

/// A chart: a quantity against another, a line for each series; or bars of several.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    /// Letters, digits and hyphens; unique in the experiment and the name of its files: `2` or `8-latency`.
    pub id: String,
    /// The figure's title.
    pub title: String,
    /// A hint for the reader.
    #[serde(default)]
    pub caption: String,
    /// One sentence for the top of the report. `{x}` stands for the farthest x that all lines reach, and `{y}` for
    /// each line's value there.
    pub headline: Option<String>,
    /// An axis of the experiment, or a metric. With a metric, each point lies at its group's median of it.
    pub x: String,
    /// A metric, or several, of which each is a series.
    #[serde(deserialize_with = "one_or_many")]
    pub y: Vec<String>,
    /// A metric that x is divided by, trial by trial, such as `capacity_per_s`.
    pub x_over: Option<String>,
    /// A metric that y is divided by, trial by trial.
    pub y_over: Option<String>,
    /// The title of the horizontal axis; by default that of its axis or metric.
    pub x_title: Option<String>,
    /// The title of the vertical axis.
    pub y_title: Option<String>,
    /// The coordinates that make a line: `server`, `load` or axes. Several make a line for each combination.
    #[serde(default = "by_server", deserialize_with = "one_or_many")]
    pub series: Vec<String>,
    /// The trials that are drawn; all if absent: `where = { load = "one-packet", idle = 1000 }`.
    #[serde(default, rename = "where")]
    pub selection: Selection,
    /// The logarithmic axes.
    #[serde(default)]
    pub log: LogAxes,
    /// Bars instead of lines: the quantities of `y` stand on each other, a bar for each series at each x.
    #[serde(default)]
    pub stacked: bool,
    /// The paper's own points.
    #[serde(default)]
    pub published: Vec<Published>,
}

fn by_server() -> Vec<String> {
    vec!["server".to_owned()]
}

/// `y = "a"` is `y = ["a"]`.
pub(super) fn one_or_many<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a name or a list of names")]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}
