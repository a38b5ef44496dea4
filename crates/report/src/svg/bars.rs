//! Charts of stacked bars.

use serde::Serialize;

use super::markup::{Markup, Px};
use super::scale::{Axis, Unit};

/// The room of a letter, in pixels.
const LETTER: f64 = 6.6;

/// One part of a bar.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The counted thing.
    pub name: String,
    /// The class that gives it its colour.
    pub class: &'static str,
    /// Its height.
    pub height: f64,
    /// Its height in words.
    pub value: String,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Below it: `2×`.
    pub label: String,
    /// Below that, fainter: the rate.
    pub detail: String,
    /// Its place in words.
    pub at: String,
    /// Its parts, from the bottom.
    pub segments: Vec<Segment>,
}

/// A kind of segment, in a legend.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The part's name.
    pub name: String,
    /// The class that gives it its colour.
    pub class: &'static str,
}

/// A chart of bars.
#[derive(Clone, Debug)]
pub struct BarChart {
    /// Unique on the page.
    pub id: String,
    /// More classes of the `svg` element.
    pub class: String,
    /// A description for readers who cannot see the chart.
    pub title: String,
    /// Width and height of the drawing, in pixels.
    pub size: (f64, f64),
    /// Quantity and unit of the bars' height.
    pub y_title: String,
    /// The notation of numbers beside the axis.
    pub unit: Unit,
    /// The height the axis must reach, so that charts beside each other compare.
    pub y_max: f64,
    /// The word before a bar's place.
    pub column: String,
    /// The legend of colours, if nothing around the chart shows it.
    pub legend: Vec<Part>,
    /// The bars, left to right.
    pub bars: Vec<Bar>,
}

impl BarChart {
    /// The chart as one `svg` element.
    pub fn draw(&self) -> String {
        let (width, height) = self.size;
        let y = Axis::to_round((0.0, self.y_max), 5, (height - 46.0, 34.0));
        let (bottom, top) = y.range_px();
        let (title_id, desc_id) = (format!("{}-title", self.id), format!("{}-desc", self.id));
        let mut markup = Markup::default();
        markup.open(
            "svg",
            &[
                ("class", &format!("chart {}", self.class)),
                ("id", &self.id),
                ("viewBox", &format!("0 0 {} {}", Px(width), Px(height))),
                ("role", &"img"),
                ("aria-labelledby", &format!("{title_id} {desc_id}")),
                ("data-mode", &"column"),
                ("data-column", &self.column),
                ("data-top", &Px(top)),
                ("data-bottom", &Px(bottom)),
            ],
        );
        markup.text("title", &[("id", &title_id)], &self.title);
        markup.text("desc", &[("id", &desc_id)], &self.description());
        let left = self.draw_axis(&mut markup, &y);
        self.draw_bars(&mut markup, &y, left);
        markup.close();
        markup.finish()
    }

    /// Draws the vertical axis, and returns the left edge of the bars.
    fn draw_axis(&self, markup: &mut Markup, y: &Axis) -> f64 {
        let letters = y.ticks.iter().map(|tick| self.unit.show(*tick).chars().count()).max();
        let left = 14.0 + letters.unwrap_or(0) as f64 * LETTER;
        let right = self.size.0 - 4.0;
        markup.open("g", &[("class", &"axes"), ("aria-hidden", &"true")]);
        for tick in &y.ticks {
            let Some(at) = y.place(*tick) else { continue };
            let class = if *tick == 0.0 { "base" } else { "grid" };
            let line = format!("M{} {}H{}", Px(left), Px(at), Px(right));
            markup.leaf("path", &[("class", &class), ("d", &line)]);
            markup.text(
                "text",
                &[("class", &"tick y"), ("x", &Px(left - 8.0)), ("y", &Px(at + 4.0))],
                &self.unit.show(*tick),
            );
        }
        markup.text("text", &[("class", &"title"), ("x", &0), ("y", &14)], &self.y_title);
        markup.close();
        self.draw_legend(markup);
        left
    }

    /// In one line, behind the title of the axis.
    fn draw_legend(&self, markup: &mut Markup) {
        let mut x = self.y_title.chars().count() as f64 * LETTER + 28.0;
        for Part { name, class } in &self.legend {
            markup.leaf(
                "rect",
                &[
                    ("class", &format!("bar {class}")),
                    ("x", &Px(x)),
                    ("y", &4),
                    ("width", &11),
                    ("height", &11),
                ],
            );
            markup.text("text", &[("x", &Px(x + 16.0)), ("y", &14)], name);
            x += 16.0 + name.chars().count() as f64 * LETTER + 22.0;
        }
    }

    fn draw_bars(&self, markup: &mut Markup, y: &Axis, left: f64) {
        let slot = (self.size.0 - 4.0 - left) / self.bars.len().max(1) as f64;
        let thickness = (slot * 0.66).min(56.0);
        let bottom = y.range_px().0;
        for (index, bar) in self.bars.iter().enumerate() {
            let middle = left + slot * (index as f64 + 0.5);
            let mut below = bottom;
            let mut sum = 0.0;
            for segment in &bar.segments {
                sum += if segment.height.is_finite() { segment.height.max(0.0) } else { 0.0 };
                let Some(above) = y.place(sum) else { continue };
                markup.leaf(
                    "rect",
                    &[
                        ("class", &format!("bar {}", segment.class)),
                        ("x", &Px(middle - thickness / 2.0)),
                        ("y", &Px(above)),
                        ("width", &Px(thickness)),
                        ("height", &Px(below - above)),
                        ("data-x", &Px(middle)),
                        ("data-at", &bar.at),
                        ("data-name", &segment.name),
                        ("data-value", &segment.value),
                    ],
                );
                below = above;
            }
            for (class, text, drop) in [("tick x", &bar.label, 18.0), ("tick x faint", &bar.detail, 34.0)] {
                markup.text(
                    "text",
                    &[
                        ("class", &class),
                        ("x", &Px(middle)),
                        ("y", &Px(bottom + drop)),
                        ("aria-hidden", &"true"),
                    ],
                    text,
                );
            }
        }
    }

    fn description(&self) -> String {
        let bar = |bar: &Bar| {
            let parts: Vec<String> =
                bar.segments.iter().map(|part| format!("{} {}", part.name, part.value)).collect();
            format!("At {}: {}.", bar.at, parts.join(", "))
        };
        let bars: Vec<String> = self.bars.iter().map(bar).collect();
        if bars.is_empty() { "No values.".to_owned() } else { bars.join(" ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(heights: &[f64]) -> String {
        let segment = |height: &f64| Segment {
            name: "ok".to_owned(),
            class: "o-ok",
            height: *height,
            value: "1".to_owned(),
        };
        let bar = Bar {
            label: "1×".to_owned(),
            detail: "10k".to_owned(),
            at: "1×".to_owned(),
            segments: heights.iter().map(segment).collect(),
        };
        BarChart {
            id: "b".to_owned(),
            class: String::new(),
            title: "t".to_owned(),
            size: (400.0, 246.0),
            y_title: "y".to_owned(),
            unit: Unit::Count,
            y_max: 10.0,
            column: "offered".to_owned(),
            legend: Vec::new(),
            bars: vec![bar],
        }
        .draw()
    }

    #[test]
    fn segments_stand_on_each_other() {
        let text = chart(&[5.0, 2.5]);
        assert!(text.contains("y=\"117\" width=\"56\" height=\"83\""), "{text}");
        assert!(text.contains("y=\"75.5\" width=\"56\" height=\"41.5\""), "{text}");
    }

    #[test]
    fn odd_heights_take_no_room() {
        let text = chart(&[f64::NAN, -3.0, f64::INFINITY, 10.0]);
        assert_eq!(text.matches("height=\"0\"").count(), 3, "{text}");
        assert!(!text.contains("NaN"));
    }
}
