//! The lines of a benchmark, one for each mechanism, as a page of charts. Measures and judges nothing.

use anyhow::Context;
use report::chart_page::{Chart, html};
use report::svg::{AxisKind, AxisSpec, LineChart, Look, Mark, Series, Unit};
use statistics::Spread;

use super::Common;

const SIZE: (f64, f64) = (840.0, 430.0);

/// What stands along an axis: the quantity, how it is laid out, and how its ticks are written.
pub type Along = (&'static str, AxisKind, Unit);

/// One figure.
pub struct Figure {
    /// What it shows.
    pub heading: String,
    /// How to read it.
    pub caption: &'static str,
    /// The horizontal axis.
    pub x: Along,
    /// The vertical axis.
    pub y: Along,
    /// A name, and for each point its place along x and the values there.
    pub lines: Vec<(&'static str, Vec<(f64, Spread)>)>,
}

/// Writes the figures, and the tables as text, as `NAME.html` in the folder for results.
///
/// # Errors
/// Those of writing the file.
pub fn write(
    common: &Common,
    name: &str,
    title: &str,
    lede: &str,
    figures: &[Figure],
    text: &str,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(&common.out).with_context(|| format!("cannot make {}", common.out.display()))?;
    let path = common.out.join(format!("{name}.html"));
    let numbered = figures.iter().enumerate();
    let charts: Vec<Chart> =
        numbered.map(|(number, figure)| figure.chart(&format!("figure-{number}"))).collect();
    std::fs::write(&path, html(title, lede, &charts, text))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("plot: {}", path.display());
    Ok(())
}

impl Figure {
    fn chart(&self, id: &str) -> Chart {
        let lines = LineChart {
            id: id.to_owned(),
            class: String::new(),
            title: self.heading.clone(),
            size: SIZE,
            x: axis(self.x),
            y: axis(self.y),
            series: self.series(),
            guide: None,
            direct_labels: true,
            columns: None,
        };
        Chart { heading: self.heading.clone(), caption: self.caption.to_owned(), lines }
    }

    fn series(&self) -> Vec<Series> {
        let lines = self.lines.iter().enumerate();
        let series = lines.map(|(index, (name, points))| Series {
            name: (*name).to_owned(),
            index,
            look: Look::Measured,
            marks: points.iter().map(|(x, spread)| self.mark(*x, *spread)).collect(),
        });
        series.collect()
    }

    fn mark(&self, x: f64, spread: Spread) -> Mark {
        let ((quantity, _, x_unit), (_, _, unit)) = (self.x, self.y);
        let range = if spread.min < spread.max {
            format!("{} to {}", unit.show(spread.min), unit.show(spread.max))
        } else {
            String::new()
        };
        Mark {
            x,
            y: spread.median,
            band: (spread.min, spread.max),
            at: format!("{} {quantity}", x_unit.show(x)),
            value: unit.show(spread.median),
            range,
            ..Mark::default()
        }
    }
}

fn axis((title, kind, unit): Along) -> AxisSpec {
    AxisSpec::new(title, kind, unit)
}
