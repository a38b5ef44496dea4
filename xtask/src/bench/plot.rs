//! Lines, one a mechanism, as a page of its own: one file that needs no network and no script.
//!
//! Draws what it is given with the report's charts; measures and judges nothing.

use anyhow::Context;
use report::STYLE;
use report::svg::{AxisKind, AxisSpec, LineChart, Look, Mark, Series, Unit, swatch};
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
    std::fs::write(&path, page(title, lede, figures, text))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("plot: {}", path.display());
    Ok(())
}

fn page(title: &str, lede: &str, figures: &[Figure], text: &str) -> String {
    let figures: String =
        figures.iter().enumerate().map(|(number, figure)| figure.draw(&format!("figure-{number}"))).collect();
    let (title, lede, text) = (escaped(title), escaped(lede), escaped(text));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}\npre {{ font-size: 12px; overflow-x: auto; }}\n</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>{title}</h1>\n<p class=\"lede\">{lede}</p>\n</header>\n<div class=\"figures\">\n{figures}</div>\n\
         <section class=\"records\">\n<h2>In numbers</h2>\n<pre>{text}</pre>\n</section>\n</main>\n</body>\n</html>\n"
    )
}

impl Figure {
    fn draw(&self, id: &str) -> String {
        let chart = LineChart {
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
        let key = |series: &Series| {
            format!(
                "<span class=\"key\">{}{}</span>\n",
                swatch(series.index, series.look),
                escaped(&series.name)
            )
        };
        let keys: String = chart.series.iter().map(key).collect();
        format!(
            "<figure class=\"full\">\n<figcaption>\n<h2>{}</h2>\n<p>{}</p>\n</figcaption>\n\
             <div class=\"keys\">\n{keys}</div>\n{}\n</figure>\n",
            escaped(&self.heading),
            escaped(self.caption),
            chart.draw()
        )
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

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_figures_and_no_markup_from_elsewhere() {
        let spread = |median: f64| Spread { median, min: median * 0.9, max: median * 1.1 };
        let figure = Figure {
            heading: "a < b".to_owned(),
            caption: "how",
            x: ("descriptors", AxisKind::Log, Unit::Count),
            y: ("cost", AxisKind::Log, Unit::Time),
            lines: vec![("poll", vec![(10.0, spread(1e3)), (100.0, spread(1e4))])],
        };
        let page = page("title", "lede", &[figure], "1 < 2");
        assert!(page.contains("<h2>a &lt; b</h2>") && page.contains("<pre>1 &lt; 2</pre>"));
        assert_eq!(page.matches("<figure").count(), 1);
        assert!(page.contains("data-name=\"poll\""));
        assert!(!page.contains("<script"));
    }
}
