//! A page of line charts with a text below, for results that have no page of their own.

use serde::Serialize;

use crate::page::frame::render;
use crate::svg::{LineChart, swatch};

/// A chart with its heading.
pub struct Chart {
    /// The quantity or the effect that the chart shows.
    pub heading: String,
    /// A reading aid for the chart.
    pub caption: String,
    /// The chart.
    pub lines: LineChart,
}

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    lede: &'a str,
    figures: Vec<Figure<'a>>,
    text: &'a str,
}

#[derive(Serialize)]
struct Figure<'a> {
    heading: &'a str,
    caption: &'a str,
    keys: Vec<Key<'a>>,
    chart: String,
}

#[derive(Serialize)]
struct Key<'a> {
    swatch: String,
    name: &'a str,
}

/// The charts as one HTML file without a script; `text` is shown as it stands, in columns.
pub fn html(title: &str, lede: &str, charts: &[Chart], text: &str) -> String {
    render("charts.html", &Page { title, lede, figures: charts.iter().map(figure).collect(), text })
}

fn figure(chart: &Chart) -> Figure<'_> {
    let series = chart.lines.series.iter();
    Figure {
        heading: &chart.heading,
        caption: &chart.caption,
        keys: series.map(|line| Key { swatch: swatch(line.index, line.look), name: &line.name }).collect(),
        chart: chart.lines.draw(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::{AxisKind, AxisSpec, Look, Mark, Series, Unit};

    #[test]
    fn chart_page_has_figures_and_no_foreign_markup() {
        let mark = |x: f64| Mark { x, y: x * 1e3, band: (x * 9e2, x * 1.1e3), ..Mark::default() };
        let lines = LineChart {
            id: "figure-0".to_owned(),
            class: String::new(),
            title: "a < b".to_owned(),
            size: (840.0, 430.0),
            x: AxisSpec::new("descriptors", AxisKind::Log, Unit::Count),
            y: AxisSpec::new("cost", AxisKind::Log, Unit::Time),
            series: vec![Series {
                name: "poll".to_owned(),
                index: 0,
                look: Look::Measured,
                marks: vec![mark(10.0), mark(100.0)],
            }],
            guide: None,
            direct_labels: true,
            columns: None,
        };
        let chart = Chart { heading: "a < b".to_owned(), caption: "how".to_owned(), lines };
        let page = html("title", "lede", &[chart], "1 < 2");
        assert!(page.contains("<h2>a &lt; b</h2>") && page.contains("<pre>1 &lt; 2</pre>"), "{page}");
        assert_eq!(page.matches("<figure").count(), 1);
        assert!(page.contains("data-name=\"poll\""));
        assert!(!page.contains("<script"));
    }
}
