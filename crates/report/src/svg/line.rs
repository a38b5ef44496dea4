//! A chart of lines: its axes, its reference line, and the names at the ends of its lines.

use super::markup::{Markup, Px};
use super::scale::{Axis, Unit};
use super::series::{Axes, Series, path};

/// An estimate of a letter's width at the size of chart text, in pixels; generous for most fonts.
const LETTER_PX: f64 = 6.6;
/// The least distance of two direct labels, in pixels.
const LABEL_STEP_PX: f64 = 15.0;
const LABEL_MAX_LETTERS: usize = 22;

/// The content of an axis.
#[derive(Clone, Debug)]
pub struct AxisSpec {
    /// Quantity and unit: `offered load (requests/s)`.
    pub title: String,
    /// The layout of values.
    pub kind: AxisKind,
    /// The notation of ticks.
    pub unit: Unit,
    /// Values that the axis must reach besides the chart's own, so that neighbouring charts compare.
    pub also: Vec<f64>,
    /// The categories at 0, 1, 2.. on an axis of categories; otherwise empty.
    pub categories: Vec<String>,
}

impl AxisSpec {
    /// An axis of numbers.
    pub fn new(title: &str, kind: AxisKind, unit: Unit) -> AxisSpec {
        AxisSpec { title: title.to_owned(), kind, unit, also: Vec::new(), categories: Vec::new() }
    }

    /// Returns the text of a tick.
    fn tick(&self, value: f64) -> String {
        match self.categories.get(value as usize) {
            Some(category) => category.clone(),
            None => self.unit.show(value),
        }
    }
}

/// The layout of values along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisKind {
    /// Over zero and all values, to round numbers.
    Linear,
    /// Over zero and all values, and little more.
    Tight,
    /// Logarithmic.
    Log,
    /// Equal steps, one for each category of the axis.
    Categories,
}

/// A thin reference line behind the data.
#[derive(Clone, Debug)]
pub struct Guide {
    /// Its corners, in values.
    pub corners: Vec<(f64, f64)>,
    /// Its meaning, written along its first stretch.
    pub label: String,
}

/// A chart of lines.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// Unique on the page.
    pub id: String,
    /// More classes of the `svg` element.
    pub class: String,
    /// A description for readers who cannot see the chart.
    pub title: String,
    /// Width and height of the drawing, in pixels.
    pub size: (f64, f64),
    /// The x axis.
    pub x: AxisSpec,
    /// The y axis.
    pub y: AxisSpec,
    /// The lines.
    pub series: Vec<Series>,
    /// A reference line.
    pub guide: Option<Guide>,
    /// Names the lines at their ends.
    pub direct_labels: bool,
    /// The word before a place along x, if the points of all lines share their places.
    pub columns: Option<String>,
}

impl LineChart {
    /// The chart as one `svg` element.
    pub fn draw(&self) -> String {
        let axes = self.axes();
        let mut markup = Markup::default();
        let (width, height) = self.size;
        let (title_id, desc_id) = (format!("{}-title", self.id), format!("{}-desc", self.id));
        let (bottom, top) = axes.y.range_px();
        markup.open(
            "svg",
            &[
                ("class", &format!("chart {}", self.class)),
                ("id", &self.id),
                ("viewBox", &format!("0 0 {} {}", Px(width), Px(height))),
                ("role", &"img"),
                ("aria-labelledby", &format!("{title_id} {desc_id}")),
                ("data-mode", &if self.columns.is_some() { "column" } else { "nearest" }),
                ("data-column", &self.columns.as_deref().unwrap_or_default()),
                ("data-top", &Px(top)),
                ("data-bottom", &Px(bottom)),
            ],
        );
        markup.text("title", &[("id", &title_id)], &self.title);
        markup.text("desc", &[("id", &desc_id)], &self.description());
        self.draw_axes(&mut markup, &axes);
        self.draw_guide(&mut markup, &axes);
        let labels = self.label_heights(&axes);
        for (series, label) in self.series.iter().zip(labels) {
            let label = label.map(|y| (shortened(&series.name, LABEL_MAX_LETTERS), y));
            series.draw(&mut markup, &axes, label);
        }
        markup.close();
        markup.finish()
    }

    fn axes(&self) -> Axes {
        let xs = || self.series.iter().flat_map(|series| &series.marks).map(|mark| mark.x);
        let ys = || {
            let marks = self.series.iter().flat_map(|series| &series.marks);
            marks.flat_map(|mark| {
                let trials = mark.trials.iter().map(|trial| trial.y);
                trials.chain([mark.y, mark.band.0, mark.band.1])
            })
        };
        let (width, height) = self.size;
        let vertical = (height - 46.0, 34.0);
        let y = axis(&self.y, ys(), 5, vertical);
        let letters = y.ticks.iter().map(|tick| self.y.unit.show(*tick).chars().count()).max().unwrap_or(0);
        let left = 14.0 + letters as f64 * LETTER_PX;
        let x = axis(&self.x, xs(), 6, (left, width - self.right_margin()));
        Axes { x, y }
    }

    fn right_margin(&self) -> f64 {
        if !self.direct_labels {
            return 16.0;
        }
        let letters =
            self.series.iter().map(|series| shortened(&series.name, LABEL_MAX_LETTERS).chars().count()).max();
        34.0 + letters.unwrap_or(0) as f64 * LETTER_PX
    }

    fn draw_axes(&self, markup: &mut Markup, axes: &Axes) {
        let ((left, right), (bottom, _)) = (axes.x.range_px(), axes.y.range_px());
        markup.open("g", &[("class", &"axes"), ("aria-hidden", &"true")]);
        for tick in &axes.y.ticks {
            let Some(y) = axes.y.place(*tick) else { continue };
            let line = format!("M{} {}H{}", Px(left), Px(y), Px(right));
            markup.leaf("path", &[("class", &"grid"), ("d", &line)]);
            let place: [(&str, &dyn std::fmt::Display); 3] =
                [("class", &"tick y"), ("x", &Px(left - 8.0)), ("y", &Px(y + 4.0))];
            markup.text("text", &place, &self.y.tick(*tick));
        }
        let line = format!("M{} {}H{}", Px(left), Px(bottom), Px(right));
        markup.leaf("path", &[("class", &"base"), ("d", &line)]);
        let room = ((right - left) / axes.x.ticks.len().max(1) as f64 / LETTER_PX) as usize;
        for tick in &axes.x.ticks {
            let Some(x) = axes.x.place(*tick) else { continue };
            let line = format!("M{} {}v5", Px(x), Px(bottom));
            markup.leaf("path", &[("class", &"base"), ("d", &line)]);
            let place: [(&str, &dyn std::fmt::Display); 3] =
                [("class", &"tick x"), ("x", &Px(x)), ("y", &Px(bottom + 19.0))];
            markup.text("text", &place, &shortened(&self.x.tick(*tick), room));
        }
        markup.text("text", &[("class", &"title"), ("x", &0), ("y", &14)], &self.y.title);
        let middle = Px((left + right) / 2.0);
        let place: [(&str, &dyn std::fmt::Display); 3] =
            [("class", &"title x"), ("x", &middle), ("y", &Px(self.size.1 - 6.0))];
        markup.text("text", &place, &self.x.title);
        markup.close();
    }

    fn draw_guide(&self, markup: &mut Markup, axes: &Axes) {
        let Some(guide) = &self.guide else { return };
        let corners: Vec<(f64, f64)> =
            guide.corners.iter().filter_map(|(x, y)| Some((axes.x.place(*x)?, axes.y.place(*y)?))).collect();
        let [from, to, ..] = corners[..] else { return };
        markup.open("g", &[("class", &"guide"), ("aria-hidden", &"true")]);
        markup.leaf("path", &[("d", &path(&corners))]);
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let room = dx.hypot(dy) - 30.0;
        if guide.label.chars().count() as f64 * LETTER_PX < room {
            // Just above the line, where no measurement can lie.
            let (x, y) = (from.0 + dx * 0.5, from.1 + dy * 0.5);
            let turn = format!(
                "translate({} {}) rotate({}) translate(0 -11)",
                Px(x),
                Px(y),
                Px(dy.atan2(dx).to_degrees())
            );
            markup.text("text", &[("transform", &turn)], &guide.label);
        }
        markup.close();
    }

    /// Returns the height of each line's name: at its last point, pushed apart if names would overlap.
    fn label_heights(&self, axes: &Axes) -> Vec<Option<f64>> {
        let mut heights = vec![None; self.series.len()];
        if !self.direct_labels {
            return heights;
        }
        let mut wanted: Vec<(usize, f64)> = self
            .series
            .iter()
            .enumerate()
            .filter_map(|(index, series)| Some((index, axes.place(series.marks.last()?)?.1)))
            .collect();
        wanted.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let mut previous = f64::NEG_INFINITY;
        for (_, y) in &mut wanted {
            *y = y.max(previous + LABEL_STEP_PX);
            previous = *y;
        }
        // Pushing down may have pushed past the axis: push back up from there.
        let mut next = axes.y.range_px().0 + LABEL_STEP_PX;
        for (index, y) in wanted.iter().rev() {
            next = y.min(next - LABEL_STEP_PX);
            heights[*index] = Some(next);
        }
        heights
    }

    /// Every value in words, for those who cannot see the lines.
    fn description(&self) -> String {
        let mut lines = vec![format!("{} over {}.", self.y.title, self.x.title)];
        for series in &self.series {
            let marks: Vec<String> = series.marks.iter().map(|mark| mark.words()).collect();
            let marks = if marks.is_empty() { "no values".to_owned() } else { marks.join("; ") };
            lines.push(format!("{}: {marks}.", series.name));
        }
        lines.join(" ")
    }
}

fn axis(spec: &AxisSpec, values: impl Iterator<Item = f64>, steps: usize, px: (f64, f64)) -> Axis {
    let values = values.chain(spec.also.iter().copied());
    let ends = |values: &mut dyn Iterator<Item = f64>| {
        let shown = values.filter(|value| value.is_finite());
        shown.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
    };
    let mut values = values;
    match spec.kind {
        AxisKind::Linear => Axis::to_round(ends(&mut values), steps, px),
        AxisKind::Tight => Axis::to_value(ends(&mut values), steps, px),
        AxisKind::Log => Axis::log(values, px),
        AxisKind::Categories => Axis::places(spec.categories.len(), px),
    }
}

fn shortened(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters.max(3) {
        return name.to_owned();
    }
    name.chars().take(letters.max(3) - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::{Look, Mark};

    fn chart(series: Vec<Series>, kind: AxisKind) -> LineChart {
        let axis = |kind| AxisSpec::new("t", kind, Unit::Count);
        LineChart {
            id: "a".to_owned(),
            class: "wide".to_owned(),
            title: "title".to_owned(),
            size: (400.0, 300.0),
            x: axis(AxisKind::Tight),
            y: axis(kind),
            series,
            guide: Some(Guide { corners: vec![(0.0, 0.0), (5.0, 5.0)], label: "ideal".to_owned() }),
            direct_labels: true,
            columns: None,
        }
    }

    fn series(name: &str, index: usize, points: &[(f64, f64)]) -> Series {
        let mark = |(x, y): &(f64, f64)| Mark {
            x: *x,
            y: *y,
            band: (y * 0.9, y * 1.1),
            at: x.to_string(),
            value: y.to_string(),
            ..Mark::default()
        };
        let marks = points.iter().map(mark).collect();
        Series { name: name.to_owned(), index, look: Look::Measured, marks }
    }

    fn count(text: &str, part: &str) -> usize {
        text.matches(part).count()
    }

    #[test]
    fn no_series_and_no_points_still_make_a_chart() {
        for kind in [AxisKind::Linear, AxisKind::Tight, AxisKind::Log] {
            let text = chart(vec![series("none", 0, &[])], kind).draw();
            assert!(text.contains("no values"), "{text}");
            assert!(chart(vec![], kind).draw().ends_with("</svg>"));
        }
    }

    #[test]
    fn one_point_is_a_marker_without_a_line() {
        let text = chart(vec![series("one", 0, &[(1.0, 2.0)])], AxisKind::Linear).draw();
        assert_eq!((count(&text, "class=\"dot\""), count(&text, "class=\"line\"")), (1, 0));
    }

    #[test]
    fn line_leaves_out_infinities_and_zero_on_log_axis() {
        let points = [(0.0, 0.0), (1.0, f64::NAN), (f64::INFINITY, 1.0), (2.0, 3.0), (3.0, 4.0)];
        let text = chart(vec![series("odd", 0, &points)], AxisKind::Log).draw();
        assert_eq!(count(&text, "class=\"dot\""), 2);
        let drawn: String = text.split(" d=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }

    #[test]
    fn line_labels_do_not_overlap_or_leave_the_chart() {
        let all = (0..9).map(|index| series("x", index, &[(0.0, 1.0), (1.0, 0.001)])).collect();
        let chart = chart(all, AxisKind::Linear);
        let axes = chart.axes();
        let mut heights: Vec<f64> = chart.label_heights(&axes).into_iter().flatten().collect();
        heights.sort_by(f64::total_cmp);
        assert_eq!(heights.len(), 9);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_STEP_PX - 1e-9), "{heights:?}");
        assert!(heights[8] <= axes.y.range_px().0 && heights[0] > 0.0);
    }

    #[test]
    fn a_negative_point_lies_below_zero() {
        let axes = chart(vec![series("a", 0, &[(-1.0, -2.0), (2.0, 3.0)])], AxisKind::Linear).axes();
        assert!(axes.y.place(-2.0) > axes.y.place(0.0) && axes.x.place(-1.0) < axes.x.place(0.0));
    }

    #[test]
    fn an_axis_of_words_has_a_place_for_each() {
        let mut chart = chart(vec![series("a", 0, &[(0.0, 1.0), (2.0, 3.0)])], AxisKind::Linear);
        chart.x = AxisSpec { categories: ["none", "1%", "5%"].map(str::to_owned).to_vec(), ..chart.x };
        chart.x.kind = AxisKind::Categories;
        let text = chart.draw();
        let ticks: Vec<&str> =
            text.split("class=\"tick x\"").skip(1).filter_map(|rest| rest.split(['>', '<']).nth(1)).collect();
        assert_eq!(ticks, ["none", "1%", "5%"]);
    }

    #[test]
    fn names_are_escaped_and_long_ones_cut() {
        let text = chart(
            vec![series("<script>alert(1)</script> and much more", 0, &[(1.0, 1.0), (2.0, 2.0)])],
            AxisKind::Linear,
        )
        .draw();
        assert!(!text.contains("<script"));
        assert!(text.contains("&lt;script&gt;alert(1)&lt;/scr…"), "{text}");
    }
}
